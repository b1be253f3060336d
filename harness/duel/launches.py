"""From a side to its launch, and from what the launch left to the rows that are stored."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import asdict, replace
from pathlib import Path

import numpy as np

from harness.analysis.step_finder import find_steps
from harness.analysis.steps import StepTable, step_table
from harness.collectors.registry import collectors
from harness.duel.lockstep import Pace, PairRun
from harness.duel.plan import DuelSide
from harness.errors import LaunchError
from harness.launch import LaunchRequest
from harness.store import DuelRangeRecord, SideName
from harness.trace.nesting import range_tree
from harness.trace.reader import read_trace

EXIT_TIMEOUT_S = 10.0
"""How long a launch may take to end after its last word, unless its collector needs longer to write its report."""


def launch_request(side: DuelSide, launch_dir: Path, pace: Pace, env: Mapping[str, str]) -> LaunchRequest:
    """Return the launch of a side; `env` is the same for both sides of a launch pair."""
    scenario, subject, collector = side.scenario, side.subject, collectors()[side.collector]
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
        capture=(pace.warmup_steps, pace.warmup_steps + pace.steps - 1),
        probes=[asdict(probe) for probe in scenario.probes],
        collector=collector.name,
        python=subject.python,
        env=env,
        start_timeout_s=scenario.run.start_timeout_s,
        timeout_s=scenario.run.timeout_s,
        exit_timeout_s=float(getattr(collector, "finish_timeout_s", EXIT_TIMEOUT_S)),
    )


def collected_trace(side: DuelSide, launch_dir: Path) -> Path:
    """Return the one trace of an ended launch, made in its folder."""
    destination = launch_dir / "trace.sqlite"
    ranks = side.scenario.run.ranks
    trace = collectors()[side.collector].collect(launch_dir, ranks, destination)
    for rank in range(ranks):
        (launch_dir / f"rank{rank}.sqlite").unlink(missing_ok=True)  # its rows are in the trace now
    return trace


def range_records(trace: Path, run: PairRun, side: SideName) -> list[DuelRangeRecord]:
    """Return the ranges of a side's measured steps. LaunchError if the trace lacks one of them."""
    assert run.pace is not None
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
        for row in _table(trace).rows()
        if row.step >= run.pace.warmup_steps
    ]
    found = len({record.sequence for record in ranges})
    if found != run.pace.steps:
        raise LaunchError(
            f"launch pair {run.pair}, {side}: {trace} holds {found} measured steps, expected {run.pace.steps}"
        )
    return ranges


def _table(trace: Path) -> StepTable:
    """The step table, its steps numbered as the launch did: a trace may begin at the first measured step."""
    content = read_trace(trace)
    tree = range_tree(content)
    steps = find_steps(content, tree)
    # The worker gives each step's range its number as payload.
    index = content.ranges.payload[steps.range_row].astype(np.int64)
    return step_table(content, tree=tree, steps=replace(steps, index=index))


def engine_digest(side: DuelSide) -> str | None:
    """Return a hash of the engine's Python files, which tells whether they were edited; None for an installed one."""
    root = side.subject.engine_root
    if root is None:
        return None
    package = side.scenario.factory.partition(":")[0].partition(".")[0]
    files = sorted((root / package).rglob("*.py")) or [root / f"{package}.py"]
    digest = hashlib.sha256()
    for path in files:
        digest.update(f"{path.relative_to(root)}\0".encode() + path.read_bytes() + b"\0")
    return digest.hexdigest()[:16]
