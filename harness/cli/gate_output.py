"""The gate's answer for people: a table with one row a duel, the answer last, where an eye lands."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path

from rich.table import Table
from rich.text import Text

from harness.cli.duel_progress import TerminalProgress
from harness.cli.output import clean, print_json, print_wrapped, stdout_console
from harness.cli.subjects import tell_of_subjects
from harness.gate import GateJob, GateResult, Judgement, Result
from harness.gate.document import document
from harness.gate.explain import LimitCurve, LimitsExplained
from harness.units import change, percent, signed_ms


class TerminalGateProgress(TerminalProgress):
    """Tells a person what the gate is doing. A context manager."""

    def remark(self, text: str) -> None:
        """Something about the machine or the policy."""
        self._line(text)

    def planned(self, job: GateJob) -> None:
        """A job has its subjects: say which run with what they did not ask for."""
        tell_of_subjects(job.plan.base.subject, job.plan.head.subject)
        self._began_s = time.monotonic()  # of the duels: until then environments may have been made

    def started(self, job: GateJob) -> None:
        """A job is being run."""
        self._line(f"{job.name}: base {job.plan.base.subject.name}, head {job.plan.head.subject.name}", "bold")


STYLES = {Result.PASS: "bold green", Result.REGRESSION: "bold red", Result.UNDECIDED: "bold yellow"}
MOST_RANGES = 3


def print_gate(gate: GateResult, written: Sequence[Path], *, as_json: bool) -> None:
    """Print one JSON document, or the table, what grew, the reports and the answer."""
    if as_json:
        print_json(document(gate))
        return
    console = stdout_console()
    console.print(_table(gate.judgements), width=None if console.is_terminal else 200)
    for judgement in gate.judgements:
        for part in judgement.grown[:MOST_RANGES]:
            _say(f"  {judgement.job.name}: {part.path} {signed_ms(part.delta_ns)} ms a step")
    for path in written:
        _say(f"wrote {path}", "dim")
    _say(gate.line, STYLES.get(gate.result, "bold magenta"))


def print_limits(explained: LimitsExplained, *, as_json: bool) -> None:
    """Print one JSON document, or a table a duel and whether its promise holds."""
    if as_json:
        print_json(explained.document())
        return
    for curve in explained.curves:
        name = curve.scenario if curve.against == "base" else f"{curve.scenario} (baseline)"
        _say(f"{name}: limit {percent(curve.limit)}, α = {curve.alpha:g}, at most {curve.pairs} pairs", "bold")
        stdout_console().print(_curve(curve))
        print_wrapped(curve.line, "" if curve.holds else "yellow")


def _curve(curve: LimitCurve) -> Table:
    table = Table(box=None, pad_edge=False, header_style="dim")
    for heading in ("true slowdown", "x limit", "fails", "passes", "undecided", "mean pairs"):
        table.add_column(heading, justify="right", no_wrap=True)
    for point in curve.points:
        shares = (point.fails, point.passes, point.undecided)
        times = f"{point.effect / curve.limit:.1f}"
        table.add_row(percent(point.effect), times, *map(percent, shares), f"{point.mean_pairs:.1f}")
    return table


def _table(judgements: Sequence[Judgement]) -> Table:
    table = Table(box=None, pad_edge=False, header_style="dim")
    table.add_column("duel", overflow="fold")
    table.add_column("result", no_wrap=True)
    for heading in ("change", "limit", "p (Holm)"):
        table.add_column(heading, justify="right", no_wrap=True)
    table.add_column("why", overflow="fold")
    for judgement in judgements:
        ratio = None if judgement.comparison is None else judgement.comparison.verdict.ratio
        table.add_row(
            clean(judgement.job.name),
            Text(judgement.result, style=STYLES.get(judgement.result, "bold magenta")),
            "" if ratio is None else change(ratio),
            percent(judgement.job.max_slowdown),
            "" if judgement.adjusted_p is None else f"{judgement.adjusted_p:.2g}",
            clean(judgement.detail),
        )
    return table


def _say(text: str, style: str = "") -> None:
    stdout_console().print(Text(clean(text), style=style), soft_wrap=True)
