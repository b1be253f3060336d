"""Where the difference lies: the way from base's step to head's in parts, and all parts as a table."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from matplotlib.axes import Axes

from harness.comparison import RangePart
from harness.metrics import milliseconds
from harness.names import PATH_SEPARATOR
from harness.report import figures
from harness.report.drawing import Plots, both_widths
from harness.report.page import Section, draw
from harness.report.page import name as shown
from harness.report.plots import colour, place, plot, svg

MOST_STEPS: Final = 10
"""Parts of the waterfall; the others are summed up in one."""
MOST_ROWS: Final = 400
ROW: Final = 38

TEMPLATE: Final = """
<p>{{ note }}</p>
{% if plots %}{{ m.figure(plots, "From base’s mean step to head’s, the largest parts first. The axis does not begin at zero.") }}{% endif %}
{% if rows %}
<div class="scroll" role="region" aria-label="Table of parts" tabindex="0">
<table class="parts">
<thead><tr><th scope="col">Range, own time</th><th scope="col" class="n">Base ms</th><th scope="col" class="n">Head ms</th>
<th scope="col" class="n">Difference ms</th>{% if judged %}<th scope="col" class="n">95 % interval</th>{% endif %}
<th scope="col" class="n">Of the difference</th>{% if judged %}<th scope="col" class="n">q</th>{% endif %}</tr></thead>
<tbody>
{% for row in rows %}
<tr{% if not row.loud %} class="quiet"{% endif %}><th scope="row" class="path"><span class="parent">{{ row.parent }}</span>{{ row.leaf }}
{%- if row.own %} <span class="own">own time</span>{% endif %}{% if row.only %} <span class="tag">{{ row.only }} only</span>{% endif %}</th>
<td class="n">{{ row.base_ns | ms }}</td><td class="n">{{ row.head_ns | ms }}</td>
<td class="n delta"><span class="{{ row.role }}">{{ row.delta_ns | signed_ms }}</span></td>
{% if judged %}<td class="n">{% if row.ci_ns %}{{ m.interval(row.ci_ns[0] | signed_ms, row.ci_ns[1] | signed_ms) }}{% else %}–{% endif %}</td>{% endif %}
<td class="n">{{ row.share }}</td>{% if judged %}<td class="n">{{ row.q }}</td>{% endif %}</tr>
{% endfor %}
{% if left_out %}<tr class="quiet"><th scope="row">{{ left_out }} smaller parts</th><td colspan="{{ 6 if judged else 4 }}"></td></tr>{% endif %}
</tbody>
<tfoot><tr><th scope="row">Whole step</th><td class="n">{{ base_ns | ms }}</td><td class="n">{{ head_ns | ms }}</td>
<td class="n">{{ (head_ns - base_ns) | signed_ms }}</td>{% if judged %}<td></td>{% endif %}<td class="n">100 %</td>{% if judged %}<td></td>{% endif %}</tr></tfoot>
</table></div>
{% if judged %}<p class="note">Grey rows did not move beyond their noise (Benjamini-Hochberg at q = 0.10). They are kept because all
rows add up to the whole. Ranges explain a verdict and never make one.</p>{% endif %}
{% else %}
<p class="nothing">Nothing was traced: only whole steps were timed.</p>
{% endif %}
"""


@dataclass(frozen=True, kw_only=True)
class Part:
    """One part of the difference: own time of a range path. Without a judgement `ci_ns` and `q` are None."""

    path: str
    base_ns: float
    head_ns: float
    ci_ns: tuple[float, float] | None = None
    q: float | None = None
    significant: bool = True

    @property
    def delta_ns(self) -> float:
        """Head less base."""
        return self.head_ns - self.base_ns


def of_comparison(parts: Sequence[RangePart]) -> Section:
    """Return the section for the parts of a duel."""
    note = (
        "The difference of the mean step in parts: each is a range’s own time, without the ranges inside it, so that the "
        "parts add up."
    )
    converted = [
        Part(path=p.path, base_ns=p.base_ns, head_ns=p.head_ns, ci_ns=p.ci_ns, q=p.q, significant=p.significant)
        for p in parts
    ]
    return section(converted, note, judged=True)


def section(parts: Sequence[Part], note: str, *, judged: bool) -> Section:
    """Return the waterfall and the table of parts, which are sorted by their cost."""
    base_ns, head_ns = sum(part.base_ns for part in parts), sum(part.head_ns for part in parts)
    paths = [part.path for part in parts]
    return Section(
        anchor="attribution",
        title="Where the difference lies",
        html=draw(
            TEMPLATE,
            note=note,
            plots=_plots(parts, base_ns, head_ns) if len(parts) > 1 else None,
            rows=[_row(part, head_ns - base_ns, paths) for part in parts[:MOST_ROWS]],
            left_out=len(parts) - MOST_ROWS if len(parts) > MOST_ROWS else 0,
            judged=judged,
            base_ns=base_ns,
            head_ns=head_ns,
        ),
    )


def _row(part: Part, whole_ns: float, paths: Sequence[str]) -> dict[str, object]:
    parent, separator, leaf = part.path.rpartition(PATH_SEPARATOR)
    only = "" if part.base_ns and part.head_ns else "head" if part.head_ns else "base" if part.base_ns else ""
    return {
        "parent": shown(parent + separator, 90) if parent else "",
        "leaf": shown(leaf, 90),
        "own": any(other.startswith(part.path + PATH_SEPARATOR) for other in paths),
        "only": only,
        "loud": part.significant and bool(part.delta_ns),
        "role": figures.direction(part.delta_ns) if part.significant and part.delta_ns else "",
        "base_ns": part.base_ns,
        "head_ns": part.head_ns,
        "delta_ns": part.delta_ns,
        "ci_ns": part.ci_ns,
        "share": figures.signed_percent(part.delta_ns / whole_ns, 0).lstrip("+") if whole_ns else "–",
        "q": "–" if part.q is None else "< 0.001" if part.q < 0.001 else f"{part.q:.3f}",
    }


def _plots(parts: Sequence[Part], base_ns: float, head_ns: float) -> Plots:
    moved = [part for part in parts if part.delta_ns]
    shown_parts = moved if len(moved) <= MOST_STEPS else moved[: MOST_STEPS - 1]
    bars = [(shown(part.path, 200), part.delta_ns, part.significant) for part in shown_parts]
    rest = moved[len(shown_parts) :]
    if rest:
        bars.append((f"{len(rest)} other ranges", sum(part.delta_ns for part in rest), False))
    return both_widths("waterfall", 720, lambda width, name: _plot(bars, base_ns, head_ns, width, name))


def _plot(bars: Sequence[tuple[str, float, bool]], base_ns: float, head_ns: float, width: int, name: str) -> str:
    levels = [base_ns / 1e6]
    for _, delta_ns, _ in bars:
        levels.append(levels[-1] + delta_ns / 1e6)
    reach = max(levels) - min(levels) or max(levels[0], 1e-6) * 0.01
    with plot(width, (len(bars) + 2) * ROW + 40) as (figure, axes):
        place(figure, axes, left=12, right=12, top=4, bottom=36)
        axes.grid(axis="x", color=colour("grid"), lw=1)
        axes.set_xlim(min(levels) - 0.2 * reach, max(levels) + 0.2 * reach)
        axes.set_ylim(-len(bars) - 1.45, 0.75)
        _end(axes, 0, levels[0], "base", base_ns)
        for row, (label, delta_ns, loud) in enumerate(bars, start=1):
            role = figures.direction(delta_ns) if loud else "quiet"
            start, end = levels[row - 1], levels[row]
            axes.plot([start, start], [1 - row, -row - 0.28], color=colour("quiet"), lw=1)
            axes.barh(-row - 0.16, end - start, 0.3, left=start, color=colour(role), lw=0)
            _label(axes, -row, _fitted(label, width), f"{figures.signed_ms(delta_ns)} ms", loud)
        axes.plot([levels[-1]] * 2, [-len(bars), -len(bars) - 1.3], color=colour("quiet"), lw=1)
        _end(axes, -len(bars) - 1, head_ns / 1e6, "head", head_ns)
        axes.set_yticks([])
        axes.locator_params(axis="x", nbins=4 if width < 500 else 8)
        axes.set_xlabel("step time, ms", color=colour("muted"))
        alt = "; ".join(f"{shown(label, 60)} {figures.signed_ms(delta)} ms" for label, delta, _ in bars)
        return svg(figure, name, f"Base {milliseconds(base_ns)} ms; {alt}; head {milliseconds(head_ns)} ms")


def _end(axes: Axes, row: float, level: float, side: str, ns: float) -> None:
    axes.plot([level], [row - 0.16], "D", ms=8, color=colour(side))
    _label(axes, row, side, f"{milliseconds(ns)} ms", True)


def _label(axes: Axes, row: float, left: str, right: str, loud: bool) -> None:
    """The row's name at the left edge and its figure at the right one, above the row's bar."""
    place_in = axes.get_yaxis_transform()
    role = colour("text" if loud else "muted")
    for x, text, side in ((0, left, "left"), (1, right, "right")):
        axes.text(x, row + 0.2, text, transform=place_in, ha=side, va="center", color=role)


def _fitted(label: str, width: int) -> str:
    """As many characters as fit beside the figure, at about 6.4 pixels each."""
    return shown(label, max(int((width - 110) / 6.4), 12))
