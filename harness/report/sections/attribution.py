"""Where the difference lies: the way from base's step to head's in parts, and all parts as a table."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from markupsafe import Markup
from matplotlib.axes import Axes

from harness.analysis.range_part import JudgedPart, RangePart
from harness.comparison import Comparison
from harness.names import PATH_SEPARATOR
from harness.report import figures
from harness.report.drawing import WIDE, Plots, both_widths
from harness.report.page import Section, draw, path
from harness.report.page import name as shown
from harness.report.plots import colour, place, plot, svg
from harness.report.tables import Column, Row, numbers, table
from harness.units import milliseconds, percent, signed_ms

MOST_BARS: Final = 10
"""Bars of the waterfall between base and head; what is left is summed up in the last."""
MOST_ROWS: Final = 400
SMALLEST_NS: Final = 500
"""What reads as 0.000 ms has not moved."""
ROW: Final = 38
"""CSS pixels a bar."""

TEMPLATE: Final = """
{% if table %}
<p>{{ note }}</p>
{% endif %}
{% if plots %}
{{ m.figure(plots, "From base’s mean step to head’s, the largest parts first. The axis does not begin at zero.") }}
{% endif %}
{% if table %}
{{ table }}
{% if judged %}
<p class="note">Grey rows did not move beyond their noise (Benjamini-Hochberg at q = 0.10). They are kept because all
rows add up to the whole. Ranges explain a verdict and never make one.</p>
{% endif %}
{% else %}
<p class="nothing">There is no step to split.</p>
{% endif %}
"""
SMALLEST_BAR: Final = 0.005
"""Of the largest part: what would be narrower is no bar of its own."""
_PATH: Final = Markup('<span class="parent">{}</span>{}')
_OWN: Final = Markup(' <span class="own">own time</span>')
_ONLY: Final = Markup(' <span class="tag">{} only</span>')
_DELTA: Final = Markup('<strong class="{}">{}</strong>')


def of_comparison(comparison: Comparison) -> Section:
    """Return the section for the parts of a duel."""
    note = "The difference of the mean step in parts. Each is a range’s own time, without the ranges inside it."
    if comparison.uncapped_delta_ns is not None:
        whole = signed_ms(comparison.uncapped_delta_ns)
        note += f" Hiccups of the machine are capped, as in the verdict; with them it is {whole} ms."
    return section(comparison.ranges, note)


def section(parts: Sequence[RangePart], note: str) -> Section:
    """Return the waterfall and the table of parts, which come sorted by their cost."""
    judged = any(isinstance(part, JudgedPart) for part in parts)
    return Section(
        anchor="attribution",
        title="Where the difference lies",
        html=draw(
            TEMPLATE,
            note=note,
            plots=_plots(parts) if len(parts) > 1 else None,
            table=_table(parts, judged) if parts else None,
            judged=judged,
        ),
    )


def _table(parts: Sequence[RangePart], judged: bool) -> Markup:
    paths = [part.path for part in parts]
    base_ns, head_ns = sum(part.base_ns for part in parts), sum(part.head_ns for part in parts)
    judgement = numbers("95 % interval", "q") if judged else []
    columns = [Column(title="Range", kind="path"), *numbers("Base ms", "Head ms", "Difference ms"), *judgement]
    columns.extend(numbers("Of the difference"))
    rows = [
        Row(cells=_cells(part, head_ns - base_ns, paths, judged), role="" if _moved(part) else "quiet")
        for part in parts[:MOST_ROWS]
    ]
    rest = parts[MOST_ROWS:]
    if rest:
        whole = RangePart(path="", base_ns=sum(p.base_ns for p in rest), head_ns=sum(p.head_ns for p in rest))
        rows.append(
            Row(cells=[f"{len(rest)} smaller parts", *_figures(whole, head_ns - base_ns, judged)], role="quiet")
        )
    total = RangePart(path="", base_ns=base_ns, head_ns=head_ns)
    return table(
        "Parts of the difference",
        columns,
        rows,
        Row(cells=["Whole step", *_figures(total, head_ns - base_ns, judged)]),
    )


def _moved(part: RangePart) -> bool:
    """Whether it is worth a colour: beyond its noise, where that is known, and beyond what is shown."""
    return abs(part.delta_ns) >= SMALLEST_NS and (not isinstance(part, JudgedPart) or part.significant)


def _cells(part: RangePart, whole_ns: float, paths: Sequence[str], judged: bool) -> list[str | Markup]:
    parent, separator, leaf = part.path.rpartition(PATH_SEPARATOR)
    label = _PATH.format(path(parent + separator, 90) if parent else "", path(leaf, 90))
    if any(other.startswith(part.path + PATH_SEPARATOR) for other in paths):
        label += _OWN
    if bool(part.base_ns) != bool(part.head_ns):
        label += _ONLY.format("base" if part.base_ns else "head")
    return [label, *_figures(part, whole_ns, judged)]


def _figures(part: RangePart, whole_ns: float, judged: bool) -> list[str | Markup]:
    delta: str | Markup = signed_ms(part.delta_ns)
    if part.path and _moved(part):
        delta = _DELTA.format(figures.direction(part.delta_ns), figures.typographic(delta))
    cells: list[str | Markup] = [milliseconds(part.base_ns), milliseconds(part.head_ns), delta]
    if judged:
        ci_ns, q_value = (part.ci_ns, part.q) if isinstance(part, JudgedPart) else (None, None)
        low_high = "" if ci_ns is None else ", ".join(map(signed_ms, ci_ns))
        q = "" if q_value is None else "< 0.001" if q_value < 0.001 else f"{q_value:.3f}"
        cells += [f"[{low_high}]" if low_high else "", q]
    return [*cells, percent(part.delta_ns / whole_ns) if whole_ns else ""]


def _plots(parts: Sequence[RangePart]) -> Plots:
    base_ns, head_ns = sum(part.base_ns for part in parts), sum(part.head_ns for part in parts)
    visible_ns = SMALLEST_BAR * max(abs(part.delta_ns) for part in parts)
    moved = [part for part in parts if _moved(part) and abs(part.delta_ns) >= visible_ns]
    bars = [(part.path, part.delta_ns, True) for part in (moved if len(moved) <= MOST_BARS else moved[: MOST_BARS - 1])]
    rest = len(parts) - len(bars)
    if rest:
        left_ns = head_ns - base_ns - sum(delta for _, delta, _ in bars)
        words = "smaller parts" if sum(_moved(part) for part in parts) > len(bars) else "ranges within their noise"
        bars.append((f"{rest} {words}", left_ns, False))
    return both_widths("waterfall", lambda width, name: _plot(bars, base_ns, head_ns, width, name))


def _plot(bars: Sequence[tuple[str, float, bool]], base_ns: float, head_ns: float, width: int, name: str) -> Markup:
    levels = [base_ns / 1e6]
    for _, delta_ns, _ in bars:
        levels.append(levels[-1] + delta_ns / 1e6)
    reach = max(levels) - min(levels) or max(levels[0], 1e-6) * 0.01
    with plot(width, (len(bars) + 2) * ROW + 44) as (figure, axes):
        place(figure, axes, left=8, right=8, top=2, bottom=42)
        axes.grid(axis="x", color=colour("grid"), lw=1)
        axes.set_xlim(min(levels) - 0.15 * reach, max(levels) + (0.15 if width == WIDE else 0.3) * reach)
        axes.set_ylim(-len(bars) - 1.5, 0.6)
        _end(axes, 0, "base", base_ns)
        for row, (label, delta_ns, loud) in enumerate(bars, start=1):
            start, end = levels[row - 1], levels[row]
            role = figures.direction(delta_ns) if loud else "quiet"
            axes.plot([start, start], [0.72 - row, -row - 0.32], color=colour("quiet"), lw=1)
            axes.barh(-row - 0.17, end - start, 0.32, left=start, color=colour(role), lw=0)
            _label(
                axes,
                row,
                _fitted(label, width),
                f"{figures.typographic(signed_ms(delta_ns))} ms",
                "text" if loud else "muted",
            )
        axes.plot([levels[-1]] * 2, [-len(bars) - 0.28, -len(bars) - 1.17], color=colour("quiet"), lw=1)
        _end(axes, len(bars) + 1, "head", head_ns)
        axes.set_yticks([])
        axes.locator_params(axis="x", nbins=9 if width == WIDE else 4)
        axes.xaxis.set_major_formatter(lambda ms, _: f"{ms:,.7g}")
        axes.set_xlabel("step time, ms", color=colour("muted"))
        alt = "; ".join(f"{shown(label, 60)} {figures.typographic(signed_ms(delta))} ms" for label, delta, _ in bars)
        return svg(figure, name, f"Base {milliseconds(base_ns)} ms; {alt}; head {milliseconds(head_ns)} ms")


def _end(axes: Axes, row: int, side: str, ns: float) -> None:
    axes.plot([ns / 1e6], [-row - 0.17], "D", ms=8, color=colour(side))
    _label(axes, row, side, f"{milliseconds(ns)} ms", side)


def _label(axes: Axes, row: int, left: str, right: str, role: str) -> None:
    """The row's name at the left edge and its figure at the right one, above the row's bar."""
    inside = axes.get_yaxis_transform()
    ground = {"facecolor": colour("page"), "edgecolor": "none", "pad": 1.5}  # no line crosses a name
    axes.text(0, 0.2 - row, left, transform=inside, ha="left", va="center", color=colour(role), bbox=ground)
    axes.text(1, 0.2 - row, right, transform=inside, ha="right", va="center", color=colour(role))


def _fitted(label: str, width: int) -> str:
    """As many characters as fit beside the figure, at about seven pixels each."""
    return shown(label, max((width - 100) // 7, 12))
