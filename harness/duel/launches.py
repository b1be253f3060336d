"""From a side to its launch, and from what the launch left to the rows that are stored."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import fields
from pathlib import Path
from statistics import median
from typing import Final

from harness import names
from harness.collectors.registry import collect_trace, collectors
from harness.duel.lockstep import ClockError, PairRun
from harness.duel.plan import DuelSide
from harness.errors import LaunchError, TraceError
from harness.launch import LaunchRequest, Pace, scenario_request
from harness.launch.rows import launch_steps
from harness.measured import MeasuredRange
from harness.store import DuelRangeRecord, SideName
from harness.units import milliseconds

CLOCK_ROOM: Final = 0.05
CLOCK_ROOM_NS: Final = 500_000
"""By so much a step's reported time and its traced range may differ: making the range, and a tool's own clock."""
_STORED: Final = (*(field.name for field in fields(MeasuredRange)), "grown_bytes")


def launch_request(side: DuelSide, launch_dir: Path, pace: Pace, env: Mapping[str, str]) -> LaunchRequest:
    """Return the launch of a side; `env` is the same for both sides of a launch pair."""
    return scenario_request(side.scenario, side.subject, collectors()[side.collector], pace, launch_dir, env)


def collected_trace(side: DuelSide, launch_dir: Path) -> Path:
    """Return the one trace of an ended launch, made in its folder."""
    ranks = side.scenario.run.ranks
    return collect_trace(collectors()[side.collector], launch_dir, ranks, launch_dir / "trace.sqlite")


def range_records(trace: Path, run: PairRun, side: SideName) -> list[DuelRangeRecord]:
    """Return the ranges of a side's measured steps. LaunchError if the trace lacks one of them."""
    assert run.pace is not None
    try:
        table = launch_steps(trace, warmup_steps=run.pace.warmup_steps)
    except TraceError as error:
        raise LaunchError(f"the launch left no trace of its steps: {error}") from error
    measured = run.measured
    ranges = [
        DuelRangeRecord(**{name: getattr(row, name) for name in _STORED}, pair=run.pair, side=side)
        for row in table.rows()
        if row.sequence in measured
    ]
    found = len({record.sequence for record in ranges})
    if found != len(measured):
        raise LaunchError(
            f"launch pair {run.pair}, {side}: {trace} holds {found} measured steps, expected {len(measured)}"
        )
    problem = trace_problem(ranges, run, side)
    if problem is not None:
        raise ClockError(f"launch pair {run.pair}, {side}: {problem}")
    return ranges


def trace_problem(ranges: Sequence[DuelRangeRecord], run: PairRun, side: SideName) -> str | None:
    """Return what keeps the reported times of a side's steps from being those of its trace; None if nothing does.

    The rank reads its clock around the `step` range, so no range is longer than its time, and the typical one hardly
    shorter: a hiccup falls between the two readings now and then.
    """
    reported = {(step.sequence, step.rank): step.duration_ns for step in run.steps if step.side == side}
    gaps = []
    for step in ranges:
        if step.path == names.STEP:
            duration_ns = reported[step.sequence, step.rank]
            room_ns = CLOCK_ROOM_NS + CLOCK_ROOM * duration_ns
            if step.total_ns > duration_ns + room_ns:
                return (
                    f"step {step.sequence} of rank {step.rank} reports {milliseconds(duration_ns)} ms, "
                    f"and its trace has {milliseconds(step.total_ns)} ms"
                )
            gaps.append((duration_ns - step.total_ns) / room_ns)
    if gaps and median(gaps) > 1:
        return "its steps report longer times than its trace has"
    return None
