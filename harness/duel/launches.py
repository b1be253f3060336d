"""From a side to its launch, and from what the launch left to the rows that are stored."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path

from harness.analysis.steps import step_table
from harness.duel.lockstep import Pace, PairRequest, PairRun
from harness.duel.plan import DuelSide
from harness.errors import LaunchError
from harness.launch import LaunchRequest
from harness.launch.launch import Wrap
from harness.store import DuelRangeRecord, SideName
from harness.trace.reader import read_trace


def launch_request(side: DuelSide, launch_dir: Path, pace: Pace, env: Mapping[str, str]) -> LaunchRequest:
    """Return the launch of a side; `env` is the same for both sides of a launch pair."""
    scenario, subject = side.scenario, side.subject
    return LaunchRequest(
        launch_dir=launch_dir,
        factory=scenario.factory,
        engine=scenario.engine,
        engine_root=subject.engine_root,
        ranks=scenario.run.ranks,
        mode=scenario.run.mode,
        seed=scenario.run.seed,
        warmup_steps=pace.warmup_steps,
        steps=pace.steps,
        capture=None,
        probes=[asdict(probe) for probe in scenario.probes],
        collector=side.collector,
        python=subject.python,
        env=env,
        start_timeout_s=scenario.run.start_timeout_s,
        timeout_s=scenario.run.timeout_s,
    )


def wrap_of(collector: str) -> Wrap | None:
    """Return how a collector wraps the command line."""
    return None


def collected_ranges(collector: str, request: PairRequest, run: PairRun, side: SideName) -> list[DuelRangeRecord]:
    """Return the ranges of a side's measured steps; none where nothing traced it."""
    if collector == "none":
        return []
    traces = run.outcomes[side].traces
    assert run.pace is not None
    first = run.pace.warmup_steps
    rows = step_table(read_trace(*traces)).rows()
    ranges = [
        DuelRangeRecord(
            pair=run.pair,
            side=side,
            sequence=row.step,
            rank=row.rank,
            path=row.path,
            calls=row.calls,
            total_ns=row.total_ns,
            self_ns=row.self_ns,
        )
        for row in rows
        if row.step >= first
    ]
    found = len({row.sequence for row in ranges})
    if found != run.pace.steps:
        folder = request.requests[side].launch_dir
        raise LaunchError(
            f"launch pair {run.pair}, {side}: {found} measured steps traced, expected {run.pace.steps} ({folder})"
        )
    return ranges
