"""The steps of a trace one by one, with what the GPU did in each."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from harness.analysis.step_finder import Steps
from harness.analysis.step_gpu import StepGpu


@dataclass(frozen=True, kw_only=True)
class StepRow:
    """One kept step of one rank. Where no GPU work ran in it, idle time and coverage mean nothing and are None."""

    rank: int
    index: int
    start_ns: int
    duration_ns: int
    gpu_busy_ns: int
    gpu_idle_ns: int | None
    idle_in: str | None
    """Path of the range that the host was in for the largest part of the idle time; None for outside any."""
    communication_exposed_ns: int
    communication_overlapped_ns: int
    coverage: float | None
    """Share of the GPU time it launched that belongs to some range."""


@dataclass(frozen=True, kw_only=True)
class DroppedStep:
    """A step that is in no figure, and why."""

    rank: int
    index: int
    reason: str


def kept_steps(steps: Steps, gpu: StepGpu) -> list[StepRow]:
    """Return the kept steps by rank, then by time."""
    return [
        StepRow(
            rank=int(steps.rank[row]),
            index=int(steps.index[row]),
            start_ns=int(steps.start_ns[row]),
            duration_ns=int(steps.duration_ns[row]),
            gpu_busy_ns=int(gpu.busy_ns[row]),
            gpu_idle_ns=int(gpu.idle_ns[row]) if gpu.busy_ns[row] else None,
            idle_in=gpu.idle_in[row],
            communication_exposed_ns=int(gpu.communication_exposed_ns[row]),
            communication_overlapped_ns=int(gpu.communication_overlapped_ns[row]),
            coverage=None if np.isnan(gpu.coverage[row]) else float(gpu.coverage[row]),
        )
        for row in np.flatnonzero(steps.kept).tolist()
    ]


def dropped_steps(steps: Steps) -> list[DroppedStep]:
    """Return the steps that are left out, by rank, then by time."""
    return [
        DroppedStep(rank=int(steps.rank[row]), index=int(steps.index[row]), reason=reason)
        for row, reason in enumerate(steps.dropped)
        if reason is not None
    ]
