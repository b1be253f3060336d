"""From what a launch reported and left behind to the rows that a bench and a duel store.

Not part of what `harness.launch` offers by itself: reading traces takes numpy, and starting launches does not.
"""

from __future__ import annotations

from pathlib import Path

from harness.analysis.step_finder import worker_steps
from harness.analysis.steps import StepTable, step_table
from harness.launch.request import StepReport
from harness.store import StepRecord
from harness.trace.nesting import range_tree
from harness.trace.reader import read_trace


def step_records(report: StepReport, *, measured: bool) -> list[StepRecord]:
    """Return one record a rank; what is known only of all ranks together goes with rank 0."""
    records = []
    for rank, duration_ns in enumerate(report.durations_ns):
        lead = rank == 0
        records.append(
            StepRecord(
                sequence=report.index,
                rank=rank,
                measured=measured,
                duration_ns=duration_ns,
                loss=report.losses[rank],
                tokens=report.tokens if lead else None,
                figures=report.figures if lead else {},
            )
        )
    return records


def launch_steps(trace: Path, *, warmup_steps: int = 0) -> StepTable:
    """Return the step table of our own worker's trace. TraceError if it cannot be read or holds no step."""
    content = read_trace(trace)
    tree = range_tree(content)
    return step_table(content, tree=tree, steps=worker_steps(content, tree, warmup_steps=warmup_steps))
