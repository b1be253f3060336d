"""Every step in the order it ran, one panel a launch pair, one line a rank."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from markupsafe import Markup
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from harness.report.page import Section, draw
from harness.report.plots import colour, place, plot, svg
from harness.units import milliseconds, plural

WIDTH, HEIGHT = 328, 150
MOST_PANELS: Final = 40

TEMPLATE: Final = """
{% if panels %}
<p>{{ note }}</p>
<p class="legend">
{% for side in sides %}
<span><i class="{{ side }}"></i>{{ side }}</span>
{% endfor %}
{% if ranks > 1 %}
<span><i class="thin"></i>one rank</span><span><i class="thick"></i>slowest rank, which is the step’s time</span>
{% endif %}
{% if warmup %}
<span><i class="shade"></i>warm-up, not counted</span>
{% endif %}
</p>
<div class="panels">
{% for panel in panels %}
<figure>{{ panel.plot }}<figcaption>{{ panel.title }}</figcaption></figure>
{% endfor %}
</div>
{% if left_out %}<p class="note">{{ left_out }} more launch pairs are in the database and not drawn.</p>{% endif %}
{% else %}
<p class="nothing">No step was measured.</p>
{% endif %}
"""


@dataclass(frozen=True, kw_only=True)
class Line:
    """Steps of one rank of one launch: `order` is when each ran within its panel, `times_ns` how long it took."""

    side: str
    rank: int
    order: Sequence[int]
    times_ns: Sequence[int]


@dataclass(frozen=True, kw_only=True)
class Panel:
    """One launch pair, or one launch. `warmup` is how many first positions are warm-up."""

    title: str
    warmup: int
    lines: Sequence[Line]


def section(panels: Sequence[Panel], note: str) -> Section:
    """Return one plot a panel, all with the same time axis, which spans the measured steps; warm-up may leave it."""
    measured = [ns for panel in panels for line in panel.lines for ns in _measured(panel, line)]
    bounds = (min(measured, default=0), max(measured, default=0))
    lines = [line for panel in panels for line in panel.lines]
    drawn = panels[:MOST_PANELS] if measured else []
    return Section(
        anchor="steps",
        title="Every step in run order",
        html=draw(
            TEMPLATE,
            note=note,
            panels=[
                {"title": panel.title, "plot": picture}
                for panel, picture in zip(drawn, _plots(drawn, bounds), strict=True)
            ],
            sides=("base", "head") if len({line.side for line in lines}) > 1 else (),
            ranks=len({line.rank for line in lines}),
            warmup=any(panel.warmup for panel in panels),
            left_out=len(panels) - len(drawn),
        ),
    )


def _measured(panel: Panel, line: Line) -> list[int]:
    return [ns for at, ns in zip(line.order, line.times_ns, strict=True) if at >= panel.warmup]


def _plots(panels: Sequence[Panel], bounds: tuple[int, int]) -> list[Markup]:
    """Draw all panels on one pair of axes, one after the other: making axes takes longer than drawing lines."""
    if not panels:
        return []
    with plot(WIDTH, HEIGHT) as (figure, axes):
        place(figure, axes, left=44, right=6, top=8, bottom=22)
        axes.grid(axis="y", color=colour("grid"), lw=1)
        room = 0.08 * (bounds[1] - bounds[0]) or 0.05 * bounds[1]
        axes.set_ylim((bounds[0] - room) / 1e6, (bounds[1] + room) / 1e6)
        axes.yaxis.set_major_formatter(lambda ms, _: f"{ms:,.7g}")
        axes.locator_params(axis="y", nbins=4)
        axes.locator_params(axis="x", nbins=5, integer=True)
        return [_plot(figure, axes, panel, f"steps-{number}") for number, panel in enumerate(panels)]


def _plot(figure: Figure, axes: Axes, panel: Panel, name: str) -> Markup:
    length = max(max(line.order) for line in panel.lines if line.order) + 1
    many = len({line.rank for line in panel.lines}) > 1
    drawn: list[Artist] = []
    if panel.warmup:
        drawn.append(axes.axvspan(-0.5, panel.warmup - 0.5, color=colour("panel"), lw=0))
    slowest: dict[str, dict[int, int]] = {}
    for line in panel.lines:
        longest = slowest.setdefault(line.side, {})
        for at, ns in zip(line.order, line.times_ns, strict=True):
            longest[at] = max(ns, longest.get(at, 0))
        if many:
            times_ms = [ns / 1e6 for ns in line.times_ns]
            drawn += axes.plot(line.order, times_ms, color=colour(line.side), lw=0.5, alpha=0.4)
    for side, longest in slowest.items():
        drawn += axes.plot(list(longest), [ns / 1e6 for ns in longest.values()], color=colour(side), lw=1.3)
    axes.set_xlim(-0.5, length - 0.5)
    picture = svg(figure, name, _alt(panel, slowest))
    for artist in drawn:
        artist.remove()
    return picture


def _alt(panel: Panel, slowest: dict[str, dict[int, int]]) -> str:
    said = []
    for side, longest in slowest.items():
        times = sorted(ns for at, ns in longest.items() if at >= panel.warmup)
        if times:
            low, middle, high = times[0], times[len(times) // 2], times[-1]
            said.append(
                f"{side} {plural(len(times), 'step')}, {milliseconds(low)} to {milliseconds(high)} ms, "
                f"half above {milliseconds(middle)} ms"
            )
    return f"{panel.title}: {'; '.join(said)}"
