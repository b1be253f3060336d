"""Each launch pair's difference beside the interval and the margin, and under which conditions it was measured."""

from __future__ import annotations

import math
from typing import Final

from harness.comparison import Comparison
from harness.gate import State
from harness.metrics import percent
from harness.report import figures
from harness.report.drawing import Plots, both_widths
from harness.report.page import Section, draw
from harness.report.plots import colour, place, plot, svg

ROW: Final = 24
"""CSS pixels a launch pair."""

TEMPLATE: Final = """
<p>A launch pair starts both sides afresh and steps them in turn. It counts once, with the median over its step pairs of
head/base; the verdict rests on how these agree.</p>
{% if plots %}{{ m.figure(plots, caption) }}{% endif %}
{% if c.pairs %}
<div class="scroll" role="region" aria-label="Table of launch pairs" tabindex="0">
<table>
<thead><tr><th scope="col">Pair</th><th scope="col" class="n">Base ms</th><th scope="col" class="n">Head ms</th>
<th scope="col" class="n">Difference</th><th scope="col" class="n">Steps</th><th scope="col" class="n">Base first</th>
<th scope="col">Started first</th><th scope="col" class="n">Load</th><th scope="col" class="n">Stolen</th>
<th scope="col" class="n">Clock MHz</th><th scope="col" class="n">Throttled</th></tr></thead>
<tbody>
{% for pair in c.pairs %}
<tr><th scope="row">{{ pair.number }}</th>
<td class="n">{{ "–" if pair.base_ns is none else pair.base_ns | ms }}</td>
<td class="n">{{ "–" if pair.head_ns is none else pair.head_ns | ms }}</td>
<td class="n">{{ "–" if pair.ratio is none else pair.ratio | change }}</td>
<td class="n">{{ pair.steps }}</td><td class="n">{{ pair.base_first }}</td><td>{{ pair.starter | name }}</td>
<td class="n">{{ known(pair.conditions.get("load_average"), "%.1f") }}</td>
<td class="n">{{ share(pair.conditions.get("steal_share")) }}</td>
<td class="n">{{ known(pair.conditions.get("clock_mhz"), "%.0f") }}</td>
<td class="n">{{ known(pair.conditions.get("throttled"), "%d") }}</td></tr>
{% endfor %}
</tbody></table></div>
{% else %}
<p class="nothing">No launch pair was completed.</p>
{% endif %}
"""


def section(comparison: Comparison) -> Section:
    """Return the launch pairs of a comparison: the plot and the table."""
    rule = comparison.rule
    caption = (
        "Each dot is a launch pair; the diamond is their mean with the interval that the verdict rests on. "
        f"The band is the margin, ±{percent(rule.margin)}: an interval inside it means “same”."
    )
    return Section(
        anchor="pairs",
        title="Launch pairs",
        html=draw(
            TEMPLATE,
            c=comparison,
            plots=_plots(comparison),
            caption=caption,
            known=lambda value, pattern: "–" if value is None else pattern % value,
            share=lambda value: "–" if value is None else percent(value),
        ),
    )


def _plots(comparison: Comparison) -> Plots | None:
    ratios = [(pair.number, pair.ratio) for pair in comparison.pairs if pair.ratio is not None]
    if not ratios:
        return None
    return both_widths("pairs", 720, lambda width, name: _plot(comparison, ratios, width, name))


def _plot(comparison: Comparison, ratios: list[tuple[int, float]], width: int, name: str) -> str:
    verdict, margin = comparison.verdict, comparison.rule.margin
    changes = [(ratio - 1) * 100 for _, ratio in ratios]
    mean = None if verdict.ratio is None else (verdict.ratio - 1) * 100
    bounds = [] if verdict.ci is None else [(bound - 1) * 100 for bound in verdict.ci]
    reach = 1.12 * max(map(abs, [*changes, *bounds, margin * 100]))
    rows = len(changes) + (mean is not None)
    with plot(width, rows * ROW + 50) as (figure, axes):
        place(figure, axes, left=54, right=14, top=8, bottom=42)
        axes.axvspan(-margin * 100, margin * 100, color=colour("same-soft"), lw=0)
        axes.grid(axis="x", color=colour("grid"), lw=1)
        axes.axvline(0, color=colour("muted"), lw=1)
        at = [-row for row in range(len(changes))]
        axes.hlines(at, 0, changes, color=colour("quiet"), lw=1.5)
        axes.plot(changes, at, "o", ms=6.5, color=colour("head"), clip_on=False)
        labels = [f"pair {number}" for number, _ in ratios]
        if mean is not None:
            role = colour(verdict.state.value)
            if bounds:
                axes.plot(bounds, [-len(at)] * 2, "-", color=role, lw=3.5, solid_capstyle="round")
            axes.plot([mean], [-len(at)], "D", ms=8, color=role, clip_on=False)
            at, labels = [*at, -len(at)], [*labels, "mean"]
        axes.set_yticks(at, labels)
        axes.set_ylim(-rows + 0.4, 0.6)
        axes.set_xlim(-reach, reach)
        axes.xaxis.set_major_formatter(lambda value, _: figures.signed(f"{abs(value):.3g}", value) + " %")
        axes.locator_params(axis="x", nbins=5 if width < 500 else 9)
        axes.set_xlabel("← head faster    head slower →", color=colour("muted"))
        return svg(figure, name, _alt(comparison, changes))


def _alt(comparison: Comparison, changes: list[float]) -> str:
    said = ", ".join(figures.signed_percent(change / 100) for change in changes)
    state = comparison.verdict.state
    mean = "" if comparison.verdict.ratio is None else f"; mean {figures.change(comparison.verdict.ratio)}"
    spread = math.dist([max(changes)], [min(changes)])
    verdict = "no verdict" if state is State.INVALID else state.value
    return f"Difference of each launch pair: {said}{mean}; spread {spread:.1f} points; {verdict}"
