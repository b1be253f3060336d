"""A scenario's history as one self-contained HTML page: a trend plot and a table for each series of points."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from markupsafe import Markup
from matplotlib.ticker import MaxNLocator

from harness.history.series import DuelPoint, Point, ScenarioHistory, Series, code_label
from harness.history.words import changed, day, running_text, sentences, subtitle, title
from harness.report import figures
from harness.report.drawing import Plots, both_widths
from harness.report.page import Page, Section, draw, name
from harness.report.plots import colour, place, plot, svg
from harness.report.sections import headline
from harness.report.tables import Column, Row, numbers, table
from harness.units import change, milliseconds, plural

HEIGHT = 220
ODD: Final = ("suspicious", "confirmed")
MOST_ROWS: Final = 200
"""Newest points that a table lists; the plot shows all."""

SERIES: Final = """
<p class="note">{{ about | name(400) }}</p>
{{ m.figure(plots, caption) }}
<ul>
{% for line in said %}<li>{{ line | name(300) }}</li>
{% endfor %}
</ul>
{{ table }}
{% if left_out %}<p class="note">{{ left_out }} older points are in the plot and the database.</p>{% endif %}
"""
CAPTION: Final = (
    "Each dot is the mean step of one measurement, in the order told above; bars are levels, dashed lines their "
    "changes, diamonds odd points, and the dotted line is the pinned baseline."
)
REMARKS: Final = """
<ul>
{% for line in lines %}<li>{{ line | name(400) }}</li>
{% endfor %}
</ul>
"""


def render_history(history: ScenarioHistory) -> str:
    """Return the page. Equal history gives equal bytes."""
    return Page(
        kind="History",
        heading=history.scenario,
        lead=_lead(history),
        sections=tuple(_sections(history)),
    ).render()


def _lead(history: ScenarioHistory) -> Section:
    tiles = [
        headline.Tile(
            title=name(title(series), 80),
            value=f"{milliseconds(series.levels[-1].mean_ns)} ms",
            detail="; ".join(sentences(series)),
        )
        for series in history.series[:4]
    ]
    count = sum(len(series.points) for series in history.series)
    return headline.section(
        crumb=history.scenario,
        sentence=f"{plural(count, 'measurement')} in {plural(len(history.series), 'series', 'series')}",
        lines=["What is not comparable is kept apart: other machines, collectors, or versions, of the scenario too."],
        tiles=tiles,
    )


def _sections(history: ScenarioHistory) -> Iterator[Section]:
    for number, series in enumerate(history.series):
        yield Section(anchor=f"series-{number}", title=name(title(series), 100), html=_series(series, number))
    if history.duels:
        yield Section(anchor="duels", title="Duels", html=_duels(history.duels))
    remarks = [
        f"{day(record.started_at)}: {record.kind} {record.id} measured nothing: {record.reason or record.status}"
        for record in history.failed
    ]
    remarks += map(running_text, history.running)
    if remarks or history.notes:
        yield Section(anchor="remarks", title="Remarks", html=draw(REMARKS, lines=[*history.notes, *remarks]))


def _series(series: Series, number: int) -> Markup:
    changes = {change.index: change for change in series.changes}
    columns = [
        Column(title="Code", kind="path"),
        Column(title="Measured", kind="name"),
        *numbers("Mean step, ms", "Median, ms", "Launches", "Steps"),
        Column(title="Remark", kind="name"),
    ]
    rows = [
        _row(point, changed(changes[index]) if index in changes else "") for index, point in enumerate(series.points)
    ]
    return draw(
        SERIES,
        about="; ".join(subtitle(series)),
        caption=CAPTION,
        plots=_plots(series, f"series-{number}"),
        said=sentences(series),
        table=table("Points", columns, rows[::-1][:MOST_ROWS]),
        left_out=max(0, len(rows) - MOST_ROWS),
    )


def _row(point: Point, change: str) -> Row:
    code = name(code_label(point.subject, point.revision, point.dirty), 60)
    remark = ", ".join(filter(None, (change, point.mark)))
    return Row(
        cells=[
            code,
            day(point.started_at),
            milliseconds(point.step_ns),
            milliseconds(point.median_ns),
            str(point.launches),
            str(point.steps),
            remark,
        ]
    )


def _duels(duels: tuple[DuelPoint, ...]) -> Markup:
    columns = [
        Column(title="Base", kind="path"),
        Column(title="Head", kind="path"),
        Column(title="Measured", kind="name"),
        *numbers("In total", "Typical step", "Launch pairs"),
        Column(title="Duel", kind="name"),
    ]
    rows = [
        Row(
            cells=[
                name(duel.base, 60),
                name(duel.head, 60),
                day(duel.started_at),
                "" if duel.ratio is None else change(duel.ratio),
                "" if duel.typical_ratio is None else change(duel.typical_ratio),
                str(duel.pairs),
                name(duel.id, 60),
            ]
        )
        for duel in duels[:MOST_ROWS]
    ]
    return table("Duels", columns, rows)


def _plots(series: Series, anchor: str) -> Plots:
    def one(width: int, own: str) -> Markup:
        with plot(width, HEIGHT) as (figure, axes):
            place(figure, axes, left=48, right=8, top=10, bottom=24)
            axes.grid(axis="y", color=colour("grid"), lw=1)
            places = range(1, len(series.points) + 1)
            values = [point.step_ns / 1e6 for point in series.points]
            axes.plot(places, values, color=colour("quiet"), lw=1)
            axes.plot(places, values, ls="none", marker="o", ms=5, color=colour("head"))
            odd = [at for at, point in zip(places, series.points, strict=True) if point.mark in ODD]
            axes.plot(odd, [values[at - 1] for at in odd], ls="none", marker="D", ms=7, color=colour("slower"))
            for level in series.levels:
                axes.plot([level.first + 0.6, level.last + 1.4], [level.mean_ns / 1e6] * 2, color=colour("head"), lw=2)
            for change in series.changes:
                axes.axvline(change.index + 0.5, color=colour(figures.direction(change.ratio - 1)), lw=1.5, ls="--")
            if series.baseline_ns is not None:
                axes.axhline(series.baseline_ns / 1e6, color=colour("base"), lw=1.5, ls=":")
            axes.set_xlim(0.4, len(values) + 0.6)
            axes.margins(y=0.15)
            axes.locator_params(axis="y", nbins=5)
            axes.xaxis.set_major_locator(MaxNLocator(6, integer=True, min_n_ticks=1))
            alt = f"Mean step in ms over {plural(len(values), 'point')}: {'; '.join(sentences(series))}"
            return svg(figure, own, name(alt, 600))

    return both_widths(anchor, one)
