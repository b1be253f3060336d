"""From a side to its launch, and from what the launch left to the rows that are stored."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import fields
from pathlib import Path
from typing import Final

from harness.collectors.registry import collect_trace, collectors
from harness.duel.lockstep import PairRun
from harness.duel.plan import DuelSide
from harness.errors import LaunchError, TraceError
from harness.launch import LaunchRequest, Pace, scenario_request
from harness.launch.rows import launch_steps
from harness.measured import MeasuredRange
from harness.store import DuelRangeRecord, SideName

_MEASURED: Final = tuple(field.name for field in fields(MeasuredRange))


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
        DuelRangeRecord(**{name: getattr(row, name) for name in _MEASURED}, pair=run.pair, side=side)
        for row in table.rows()
        if row.sequence in measured
    ]
    found = len({record.sequence for record in ranges})
    if found != len(measured):
        raise LaunchError(
            f"launch pair {run.pair}, {side}: {trace} holds {found} measured steps, expected {len(measured)}"
        )
    return ranges


def engine_digest(side: DuelSide) -> str | None:
    """Return a hash of the engine's Python files, which tells whether they were edited; None for an installed one.

    The files of a package that the engine adapts count, too; a release cannot be edited where it lies.
    """
    subject = side.subject
    engine = side.scenario.factory.partition(":")[0].partition(".")[0]
    places = ((subject.engine_root, engine), (subject.measured_root, subject.package))
    digest, known = hashlib.sha256(), False
    for root, package in places:
        if root is None or package is None:
            continue
        known = True
        for path in sorted((root / package).rglob("*.py")) or [root / f"{package}.py"]:
            digest.update(f"{path.relative_to(root)}\0".encode() + path.read_bytes() + b"\0")
    return digest.hexdigest()[:16] if known else None
