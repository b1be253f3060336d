"""Duels as `stepduel compare` stores them, made from a seeded generator instead of launches.

The engine they seem to come from walks its modules twice in base. Steps have drift, hiccups and luck of the launch, so
that a report shows what a real one would.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from harness.comparison import Comparison, compare_stored
from harness.comparison.rows import DuelRows, duel_rows
from harness.environment import Environment
from harness.store import SIDES, DuelRangeRecord, DuelRecord, Duels, DuelStepRecord, PairRecord, SideName, Store

MS = 1_000_000
LEAVES: Mapping[str, float] = {
    # path below the step: own time in ms
    "train_mode_enter": 0.4,
    "train_mode_enter/load_fsdp_model_to_gpu": 18.2,
    "train_mode_enter/load_fsdp_optimizer": 1.9,
    "train_mode_enter/gc.collect": 34.5,
    "forward_backward": 71.0,
    "forward_backward/all_gather": 6.3,
    "forward_backward/reduce_scatter": 5.1,
    "optimizer_step": 9.6,
    "train_mode_exit": 0.3,
    "train_mode_exit/offload_fsdp_model_to_cpu": 11.0,
    "train_mode_exit/offload_fsdp_optimizer": 1.1,
}
ENVIRONMENT = Environment(
    cpu_model="Generated Processor 9000",
    logical_cores=16,
    usable_cores=16,
    memory_bytes=64 * 10**9,
    gpus=(),
    kernel="Linux 6.1.0",
    python="3.12.4",
    versions={"stepduel": "0.1.0", "torch": "2.13.0", "nvtx": "0.2.15"},
)


@dataclass(frozen=True, kw_only=True)
class DuelSpec:
    """What to generate. `changes` are head's own times in ms by path; `None` is a range that head does not have."""

    seed: int = 7
    pairs: int = 6
    steps: int = 30
    ranks: int = 2
    warmup: int = 3
    changes: Mapping[str, float | None] = field(
        default_factory=lambda: {"train_mode_enter/load_fsdp_model_to_gpu": 25.4, "train_mode_exit/clone_state": 1.2}
    )
    base_only: tuple[str, ...] = ("train_mode_exit/offload_fsdp_optimizer",)
    part_at: int | None = None
    """Step at which the losses part."""
    traced: bool = True
    scenario: str = "fsdp2_lora_param_offload"
    description: str = "LoRA training, parameters offloaded between steps"
    base: Mapping[str, Any] = field(
        default_factory=lambda: {
            "subject": "origin/main",
            "revision": "9f1c3d5e7a9b1c3d5e7f9a1b3c5d7e9f1a3b5c7d",
            "dirty": False,
            "identity": "a",
            "overrides": [],
            "notes": [],
            "collector": "recorder",
            "versions": {"python": "3.12.4", "torch": "2.13.0"},
        }
    )
    head: Mapping[str, Any] = field(
        default_factory=lambda: {
            "subject": ".",
            "revision": "1b2d4f6a8c0e2a4c6e8a0c2e4a6c8e0a2c4e6a8c",
            "dirty": True,
            "identity": "b",
            "overrides": ["engine.param_offload=true"],
            "notes": [],
            "collector": "recorder",
            "versions": {"python": "3.12.4", "torch": "2.13.0"},
        }
    )
    renamed: Mapping[str, str] = field(default_factory=dict)
    """Other names for the paths' last components, for hostile ones."""


def comparison_of(folder: Path, made: DuelSpec) -> tuple[Comparison, DuelRows]:
    """Store the duel in `folder` and return what is computed from it."""
    with Store(folder / "results.db") as store:
        duels = Duels(store)
        store_duel(duels, made)
        comparison = compare_stored(duels, DUEL_ID)
        return comparison, duel_rows(duels, comparison, folder)


DUEL_ID = "20260901-120000-000-abcdef"


def store_duel(duels: Duels, made: DuelSpec) -> None:
    """Write the duel that `made` describes."""
    chance = random.Random(made.seed)
    duels.add(_record(made), ENVIRONMENT)
    for pair in range(1, made.pairs + 1):
        steps: list[DuelStepRecord] = []
        ranges: list[DuelRangeRecord] = []
        for step, own in _launch_pair(chance, made, pair):
            steps.append(step)
            if made.traced and step.measured:
                ranges.extend(_ranges(step, own))
        record = PairRecord(
            pair=pair,
            started_at=f"2026-09-01T12:{pair:02d}:00.000+00:00",
            order_seed=chance.getrandbits(31),
            starter="base" if pair % 2 else "head",
            start_ns=int(chance.uniform(3.8, 4.4) * 1e9),
            conditions={
                "load_average": round(chance.uniform(0.4, 1.6), 2),
                "busy_share": 0.31,
                "steal_share": round(chance.uniform(0, 0.004), 4),
                "clock_mhz": round(chance.uniform(3180, 3210), 1),
                "throttled": 0,
                "gpu_clock_mhz": None,
            },
            base_launch=_launch(),
            head_launch=_launch(),
        )
        duels.add_pair(DUEL_ID, record, steps, ranges)


def _record(made: DuelSpec) -> DuelRecord:
    return DuelRecord(
        id=DUEL_ID,
        kind="compare",
        started_at="2026-09-01T12:00:00.000+00:00",
        scenario=made.scenario,
        scenario_hash="0123456789abcdef",
        scenario_document={"description": made.description, "compare": {"loss_tolerance": 0.0}},
        key="fedcba9876543210",
        base=dict(made.base),
        head=dict(made.head),
        environment_id=ENVIRONMENT.id,
        collector="recorder" if made.traced else "none",
        interleave="steps",
        ranks=made.ranks,
        warmup_steps=made.warmup,
        steps=made.steps,
        seed=made.seed,
        rule={
            "looks": [4, 6, 8, 10],
            "alpha": 0.01,
            "min_effect": 0.01,
            "min_abs_ns": 0.0,
            "margin": 0.02,
            "pass_level": 0.95,
            "power": 0.8,
        },
        prior=None,
        status="completed",
        reason=None,
        objection=None,
        detectable_effect=0.021,
        device="cpu",
        harness_version="0.1.0",
        logs=f"duels/{DUEL_ID}",
        explanation=None,
    )


def _launch() -> dict[str, Any]:
    engine = {"parameters": 7068, "modules": 15685, "device_memory": "emulated in RAM"}
    return {"pids": [1, 2], "device": "cpu", "engine": engine, "clean_exit": True}


def _own_times(made: DuelSpec, side: SideName) -> dict[str, float]:
    own = dict(LEAVES)
    if side == "head":
        changed = {**own, **made.changes}
        own = {path: ms for path, ms in changed.items() if ms is not None and path not in made.base_only}
    return {_path(made, path): ms for path, ms in own.items()}


def _path(made: DuelSpec, path: str) -> str:
    return "/".join(["step", *(made.renamed.get(name, name) for name in path.split("/"))])


def _launch_pair(chance: random.Random, made: DuelSpec, pair: int) -> Iterator[tuple[DuelStepRecord, dict[str, int]]]:
    """Steps of both sides in turn with the own times of their ranges in ns; both share the machine's slow noise."""
    luck = {side: 1 + chance.gauss(0, 0.004) for side in SIDES}
    own = {side: _own_times(made, side) for side in SIDES}
    clock_ns = 0
    for sequence in range(made.warmup + made.steps):
        weather = 1 + 0.01 * (pair % 3) + chance.gauss(0, 0.006) + (0.12 if chance.random() < 0.03 else 0)
        order = SIDES if chance.random() < 0.5 else SIDES[::-1]
        for slot, side in enumerate(order):
            slow_start = 2.2 if sequence == 0 else 1.0
            longest = 0
            for rank in range(made.ranks):
                scale = luck[side] * weather * slow_start * (1 + chance.gauss(0, 0.004) + 0.003 * rank)
                times = {"step": int(0.15 * MS)}
                times |= {path: int(ms * scale * (1 + chance.gauss(0, 0.01)) * MS) for path, ms in own[side].items()}
                longest = max(longest, sum(times.values()))
                yield _step(made, pair, side, sequence, rank, slot, clock_ns, sum(times.values())), times
            clock_ns += longest + 200_000


def _step(
    made: DuelSpec, pair: int, side: SideName, sequence: int, rank: int, slot: int, began_ns: int, duration_ns: int
) -> DuelStepRecord:
    parted = side == "head" and made.part_at is not None and sequence >= made.part_at
    return DuelStepRecord(
        pair=pair,
        side=side,
        sequence=sequence,
        rank=rank,
        slot=slot,
        measured=sequence >= made.warmup,
        began_ns=began_ns,
        duration_ns=duration_ns,
        loss=5.1 / (sequence + 1) + (0.25 if parted else 0.0) if rank == 0 else None,
        tokens=2048 if rank == 0 else None,
        figures={
            "peak_memory_bytes": 1_204_000_000 + (2_400_000 if side == "head" else 0),
            "rss_bytes": 1_180_000_000,
        }
        if rank == 0
        else {},
    )


def _ranges(step: DuelStepRecord, own: Mapping[str, int]) -> Iterator[DuelRangeRecord]:
    for path, self_ns in own.items():
        total_ns = self_ns + sum(ns for other, ns in own.items() if other.startswith(path + "/"))
        yield DuelRangeRecord(
            pair=step.pair,
            side=step.side,
            sequence=step.sequence,
            rank=step.rank,
            path=path,
            calls=1,
            total_ns=total_ns,
            self_ns=self_ns,
        )


SAME = replace(DuelSpec(), changes={}, base_only=())
