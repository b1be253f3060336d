"""A scenario's history for people: one table a series, with its levels below."""

from __future__ import annotations

from rich.table import Table
from rich.text import Text

from harness.cli.output import clean, stdout_console
from harness.history.series import RUNNING, Point, ScenarioHistory, Series, code_label
from harness.history.words import changed, day, ratios, running_text, sentences, subtitle, title
from harness.units import milliseconds, plural

MOST_POINTS = 30
PIPE_WIDTH = 120


def print_history(history: ScenarioHistory) -> None:
    """Print every series, the duels, what failed, and remarks."""
    for series in history.series:
        _say(title(series), "bold")
        for line in subtitle(series):
            _say(line, "dim")
        stdout_console().print(_table(series), width=_width())
        for line in sentences(series):
            _say(f"  {line}")
        _say("")
    if history.duels:
        _say("duels, newest first", "bold")
        for duel in history.duels[:MOST_POINTS]:
            made = plural(duel.pairs, "launch pair") + (" so far" if duel.status == RUNNING else "")
            moved = "nothing measured" if duel.ratio is None else f"{ratios(duel)} over {made}"
            _say(f"  {day(duel.started_at)}  {duel.base} → {duel.head}: {moved}  ({duel.id})")
        _say("")
    for record in history.failed:
        _say(f"{day(record.started_at)}  {record.kind} {record.id} measured nothing: {record.reason or record.status}")
    for duel_id in history.running:
        _say(running_text(duel_id))
    for note in history.notes:
        _say(note)


def _table(series: Series) -> Table:
    table = Table(box=None, pad_edge=False, header_style="dim")
    table.add_column("code", overflow="fold")
    table.add_column("measured", no_wrap=True)
    for heading in ("mean ms", "median ms", "steps"):
        table.add_column(heading, justify="right", no_wrap=True)
    table.add_column("", overflow="fold")
    changes = {change.index: change for change in series.changes}
    first = max(0, len(series.points) - MOST_POINTS)
    if first:
        table.add_row(f"… {first} older ones", style="dim")
    for index, point in enumerate(series.points[first:], start=first):
        remarks = [changed(changes[index])] if index in changes else []
        style = "yellow" if point.mark in ("suspicious", "confirmed") else ""
        table.add_row(*_cells(point), clean(", ".join([*remarks, *filter(None, [point.mark])])), style=style)
    return table


def _cells(point: Point) -> tuple[str, ...]:
    code = code_label(point.subject, point.revision, point.dirty)
    steps = f"{point.launches} x {point.steps // point.launches}"
    return clean(code), clean(day(point.started_at)), milliseconds(point.step_ns), milliseconds(point.median_ns), steps


def _width() -> int | None:
    return None if stdout_console().is_terminal else PIPE_WIDTH


def _say(text: str, style: str = "") -> None:
    stdout_console().print(Text(clean(text), style=style), soft_wrap=True)
