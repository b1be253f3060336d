"""Results databases made up from step times, for tests of what is done with them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from harness.environment import Environment
from harness.store import (
    SIDES,
    DuelRangeRecord,
    DuelRecord,
    Duels,
    DuelStepRecord,
    PairRecord,
    RangeRecord,
    RunRecord,
    StepRecord,
    Store,
)

ENVIRONMENT = Environment(
    cpu_model="Test CPU",
    logical_cores=4,
    usable_cores=2,
    memory_bytes=2**33,
    gpus=(),
    kernel="Linux 6",
    python="3.11.7",
    versions={"torch": "2.13.0"},
)
OTHER_MACHINE = replace(ENVIRONMENT, cpu_model="Other CPU")
RULE = {
    "looks": [4, 6, 8, 10],
    "alpha": 0.01,
    "min_effect": 0.01,
    "min_abs_ns": 0.0,
    "margin": 0.02,
    "pass_level": 0.95,
    "power": 0.8,
}


def revision(number: int) -> str:
    return f"{number:040x}"


def moment(minute: int) -> str:
    return f"2026-01-{1 + minute // 1440:02d}T{minute // 60 % 24:02d}:{minute % 60:02d}:00.000+00:00"


def add_run(
    path: Path,
    run_id: str,
    step_ms: float,
    *,
    minute: int = 0,
    environment: Environment = ENVIRONMENT,
    steps: int = 3,
    ranges: Sequence[str] = ("step",),
    **changes: Any,
) -> None:
    """Add a run whose measured steps all take `step_ms` on rank 0 and half of it on rank 1."""
    values: dict[str, Any] = {
        "id": run_id,
        "started_at": moment(minute),
        "scenario": "smoke",
        "scenario_hash": "abc",
        "scenario_document": {},
        "subject": ".",
        "revision": revision(minute),
        "dirty": False,
        "collector": "recorder",
        "device": "cpu",
        "ranks": 2,
        "status": "completed",
        "reason": None,
        "harness_version": "0.1.0",
        "load_average": 0.2,
        "trace": f"traces/{run_id}.sqlite",
        "logs": f"logs/{run_id}",
        "engine_versions": {},
        "engine": {},
    }
    rows = [
        StepRecord(
            sequence=sequence,
            rank=rank,
            measured=sequence > 0,
            duration_ns=int(step_ms * 1e6 / (rank + 1)),
            loss=None,
            tokens=None,
            figures={},
        )
        for sequence in range(steps + 1 if steps else 0)
        for rank in (0, 1)
    ]
    spans = [
        RangeRecord(
            sequence=1,
            rank=0,
            path=name,
            calls=1,
            total_ns=10,
            self_ns=5,
            moved_bytes=None,
            collected_objects=None,
        )
        for name in ranges
    ]
    with Store(path) as store:
        store.add_run(RunRecord(**{**values, **changes}), environment, rows, spans)


def add_duel(
    path: Path,
    duel_id: str,
    base_ms: float,
    head_ms: float,
    *,
    minute: int = 0,
    pairs: int = 2,
    measured_steps: int = 2,
    ranges: Sequence[str] = ("step",),
    **changes: Any,
) -> None:
    """Add a duel of two commits, `minute` and `minute` + 1."""

    def subject(name: str, number: int) -> dict[str, Any]:
        return {"subject": name, "revision": revision(number), "dirty": False, "changes": None, "overrides": []}

    record: dict[str, Any] = {
        "id": duel_id,
        "kind": "compare",
        "started_at": moment(minute),
        "scenario": "smoke",
        "scenario_hash": "abc",
        "scenario_document": {"compare": {"loss_tolerance": 0.0}},
        "key": "k",
        "base": subject("HEAD~1", minute),
        "head": subject("HEAD", minute + 1),
        "environment_id": ENVIRONMENT.id,
        "collector": "recorder",
        "interleave": "steps",
        "ranks": 1,
        "warmup_steps": 1,
        "steps": 2,
        "seed": 0,
        "rule": RULE,
        "prior": None,
        "status": "completed",
        "reason": None,
        "objection": None,
        "detectable_effect": None,
        "device": "cpu",
        "explanation": None,
        "harness_version": "0.1.0",
        "logs": f"duels/{duel_id}",
    }
    with Store(path) as store:
        duels = Duels(store)
        if not duels.find(id=duel_id):
            duels.add(DuelRecord(**{**record, **changes}), ENVIRONMENT)
        for pair in range(1 + len(duels.pairs(duel_id)), pairs + 1):
            add_pair(duels, duel_id, pair, base_ms, head_ms, ranges, measured_steps)


def add_pair(
    duels: Duels,
    duel_id: str,
    pair: int,
    base_ms: float,
    head_ms: float,
    ranges: Sequence[str] = ("step",),
    measured_steps: int = 2,
) -> None:
    steps = [
        DuelStepRecord(
            pair=pair,
            side=side,
            sequence=sequence,
            rank=0,
            slot=slot,
            measured=sequence > 0,
            began_ns=sequence,
            duration_ns=int(1e6 * (base_ms if side == "base" else head_ms)),
            loss=1.0,
            tokens=None,
            figures={},
        )
        for sequence in range(measured_steps + 1)
        for slot, side in enumerate(SIDES)
    ]
    spans = [
        DuelRangeRecord(
            pair=pair, side="base", sequence=1, rank=0, path=name, calls=1, total_ns=10, self_ns=pair + number
        )
        for number, name in enumerate(ranges)
    ]
    duels.add_pair(
        duel_id,
        PairRecord(
            pair=pair,
            started_at=moment(pair),
            order_seed=1,
            starter="base",
            start_ns=1,
            conditions={},
            base_launch={},
            head_launch={},
        ),
        steps,
        spans,
    )
