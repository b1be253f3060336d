"""Each launch pair's difference beside the interval and the margin, and under which conditions it was measured."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from markupsafe import Markup

from harness.comparison import Comparison, Pair
from harness.report import figures
from harness.report.drawing import WIDE, Plots, both_widths
from harness.report.page import Section, draw
from harness.report.page import name as shown
from harness.report.plots import colour, place, plot, svg
from harness.report.tables import Column, Row, numbers, table
from harness.units import change, milliseconds, percent, signed_percent

ROW: Final = 24
"""CSS pixels a launch pair."""
NONE: Final = "–"

TEMPLATE: Final = """
{% if table %}
<p>A launch pair starts both sides afresh and steps them in turn. It counts once, with the ratio of the total times of
both sides; the verdict rests on how these agree. Base and head in the table are mean steps. A hiccup of the machine,
which one launch has and no other, is capped in them. Beside them is the typical step, the median over step pairs of
head/base.</p>
{% if plots %}
{{ m.figure(plots, caption) }}
{% endif %}
{{ table }}
{% else %}
<p class="nothing">No launch pair was completed.</p>
{% endif %}
"""


def section(comparison: Comparison) -> Section:
    """Return the launch pairs of a comparison: the plot and the table."""
    margin = f"The band is the margin, ±{percent(comparison.rule.margin)}"
    caption = f"Each dot is a launch pair. {margin}."
    if comparison.verdict.ci is not None:
        caption = (
            "Each dot is a launch pair; the diamond is their mean with the interval that the verdict rests on. "
            f"{margin}: an interval inside it means “same”."
        )
    pairs = _table(comparison) if comparison.pairs else None
    return Section(
        anchor="pairs",
        title="Launch pairs",
        html=draw(TEMPLATE, plots=_plots(comparison), caption=caption, table=pairs),
    )


def _table(comparison: Comparison) -> Markup:
    columns = [
        Column(title="Pair", kind="name"),
        *numbers("Base ms", "Head ms", "Difference", "Typical step", "Steps", "Base first"),
        Column(title="Started first", kind="name"),
        *numbers("Load", "Stolen", "Clock MHz", "Throttled"),
    ]
    return table("Launch pairs", columns, [Row(cells=_cells(pair)) for pair in comparison.pairs])


def _cells(pair: Pair) -> list[str]:
    def condition(key: str, written: Callable[[Any], str]) -> str:
        value = pair.conditions.get(key)
        return NONE if value is None else written(value)

    return [
        str(pair.number),
        NONE if pair.base_ns is None else milliseconds(pair.base_ns),
        NONE if pair.head_ns is None else milliseconds(pair.head_ns),
        NONE if pair.ratio is None else change(pair.ratio),
        NONE if pair.typical_ratio is None else change(pair.typical_ratio),
        str(pair.steps),
        str(pair.base_first),
        shown(pair.starter),
        condition("load_average", "{:.1f}".format),
        condition("steal_share", percent),
        condition("clock_mhz", "{:,.0f}".format),
        condition("throttled", str),
    ]


def _plots(comparison: Comparison) -> Plots | None:
    ratios = [(pair.number, pair.ratio) for pair in comparison.pairs if pair.ratio is not None]
    if not ratios:
        return None
    return both_widths("pairs", lambda width, name: _plot(comparison, ratios, width, name))


def _plot(comparison: Comparison, ratios: list[tuple[int, float]], width: int, name: str) -> Markup:
    verdict, margin = comparison.verdict, comparison.rule.margin * 100
    changes = [(ratio - 1) * 100 for _, ratio in ratios]
    bounds = [] if verdict.ci is None else [(bound - 1) * 100 for bound in verdict.ci]
    shown_values = [*changes, *bounds, -margin, margin]
    room = 0.06 * (max(shown_values) - min(shown_values))
    rows = [-row for row in range(len(changes))]
    labels = [f"pair {number}" for number, _ in ratios]
    with plot(width, (len(rows) + 1) * ROW + 52) as (figure, axes):
        place(figure, axes, left=56, right=14, top=8, bottom=44)
        axes.axvspan(-margin, margin, color=colour("same-soft"), lw=0)
        axes.grid(axis="x", color=colour("grid"), lw=1)
        axes.axvline(0, color=colour("muted"), lw=1)
        axes.hlines(rows, 0, changes, color=colour("quiet"), lw=1.5)
        axes.plot(changes, rows, "o", ms=6.5, color=colour("head"), clip_on=False)
        if verdict.ratio is not None:
            role, row = colour(verdict.state.value), -len(rows)
            axes.plot(bounds, [row] * len(bounds), "-", color=role, lw=3.5, solid_capstyle="round")
            axes.plot([(verdict.ratio - 1) * 100], [row], "D", ms=8, color=role, clip_on=False)
            rows, labels = [*rows, row], [*labels, "mean"]
        axes.set_yticks(rows, labels)
        axes.set_ylim(-len(rows) + 0.4, 0.6)
        axes.set_xlim(min(shown_values) - room, max(shown_values) + room)
        axes.xaxis.set_major_formatter(lambda value, _: figures.typographic(f"{value:+.7g} %" if value else "0 %"))
        axes.locator_params(axis="x", nbins=9 if width == WIDE else 5)
        axes.set_xlabel("← head faster  ·  head slower →", color=colour("muted"))
        return svg(figure, name, _alt(comparison, changes))


def _alt(comparison: Comparison, changes: list[float]) -> str:
    said = ", ".join(signed_percent(each / 100) for each in changes)
    mean = "" if comparison.verdict.ratio is None else f"; mean {change(comparison.verdict.ratio)}"
    return figures.typographic(f"Difference of each launch pair: {said}{mean}; {comparison.verdict.state.value}")
