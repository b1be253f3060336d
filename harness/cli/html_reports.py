"""What `--html FILE` does: writes the report of a duel, a launch, a trace or a difference as one file."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from harness.analysis.analyze import TraceAnalysis
    from harness.analysis.difference import TraceDiff
    from harness.bench import BenchResult
    from harness.comparison import Comparison


def write_duel(comparison: Comparison, reports: Path, repo: Path, target: Path) -> None:
    """Write the report of a stored duel, and the index of the reports folder where it lies in that.

    `repo` is asked for the commits between both sides. UsageError where the file cannot be written.
    """
    from harness.comparison.rows import duel_rows
    from harness.report import render_comparison, write_index, write_report
    from harness.store import RESULTS, Duels, Store
    from harness.subject.commits import commits_between

    base, head = comparison.base.revision, comparison.head.revision
    with Store(reports / RESULTS) as store:
        duels = Duels(store)
        page = render_comparison(
            comparison,
            duel_rows(duels, comparison, reports),
            commits_between(repo, base, head) if base and head else None,
            folder=relative_folder(target, reports),
        )
        write_report(target, page)
        if reports.resolve() in target.resolve().parents:
            write_index(reports, duels.find())
    _say_written(target)


def write_bench(result: BenchResult, target: Path) -> None:
    """Write the report of one launch, with what its trace says where it has one."""
    from harness.analysis.analyze import analyze
    from harness.report import render_bench, write_report
    from harness.trace.reader import read_trace

    analysis = None if result.trace is None else analyze(read_trace(result.trace), warmup_steps=result.warmup_steps)
    write_report(target, render_bench(result, analysis, folder=relative_folder(target, result.reports)))
    _say_written(target)


def write_analysis(found: TraceAnalysis, target: Path) -> None:
    """Write the report of a trace."""
    from harness.report import render_analysis, write_report

    write_report(target, render_analysis(found))
    _say_written(target)


def write_diff(found: TraceDiff, target: Path) -> None:
    """Write the report of two traces."""
    from harness.report import render_diff, write_report

    write_report(target, render_diff(found))
    _say_written(target)


def relative_folder(target: Path, reports: Path) -> str:
    """Return the reports folder as a link from the file `target` sees it."""
    return Path(os.path.relpath(reports.resolve(), target.resolve().parent)).as_posix()


def _say_written(target: Path) -> None:
    click.echo(f"wrote {target}", err=True)
