"""What the GPU did in each step: busy, idle, communicating, and how much of its work is accounted for.

Busy and communication times are what ran within the step's own time, whenever it was launched; coverage is about the
operations that the step launched. All are of the step's process.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from harness.analysis.capture import NONE, Capture
from harness.trace import schema
from harness.trace.groups import summed
from harness.trace.model import FloatArray, Int64Array


@dataclass(frozen=True, kw_only=True, eq=False)
class StepGpu:
    """One element a step, in the order of `Steps`. Steps that are left out have only `busy_ns` and communication."""

    busy_ns: Int64Array
    """Time in which any operation ran."""
    idle_ns: Int64Array
    """Time in which none ran; 0 where the step has no GPU work. Without steps: from the first operation to the last."""
    idle_in: tuple[str | None, ...]
    """Path, from the step on, of the range that the host was in for the largest part of the idle time; None where
    there was no idle time, or where most of it lay outside any range."""
    communication_exposed_ns: Int64Array
    """Time in which collectives ran and nothing else did."""
    communication_overlapped_ns: Int64Array
    """Time in which collectives ran beside other work."""
    coverage: FloatArray
    """Share of the GPU time, operation by operation, that belongs to some range; NaN where nothing was launched."""

    @property
    def has_communication(self) -> bool:
        return bool((self.communication_exposed_ns + self.communication_overlapped_ns).any())


def step_gpu(capture: Capture) -> StepGpu:
    """Measure every step of `capture`; coverage goes by the rule that `capture.op_range` was made by."""
    steps, count = capture.steps, len(capture.steps)
    busy, idle, communicating, exposed = (np.zeros(count, dtype=np.int64) for _ in range(4))  # (steps,) ns
    pids = steps.global_tid & schema.GLOBAL_PID_MASK
    for pid in capture.gpu_processes:
        own = pids == pid
        for figure, covered in (
            (busy, capture.gpu_busy[pid]),
            (idle, capture.gpu_idle[pid]),
            (communicating, capture.gpu_communication[pid]),
            (exposed, capture.gpu_exposed_communication[pid]),
        ):
            figure[own] = covered.covered_in(steps.start_ns[own], steps.end_ns[own])
    return StepGpu(
        busy_ns=busy,
        idle_ns=idle,
        idle_in=_idle_in(capture, idle),
        communication_exposed_ns=exposed,
        communication_overlapped_ns=communicating - exposed,
        coverage=_coverage(capture),
    )


def _idle_in(capture: Capture, idle_ns: Int64Array) -> tuple[str | None, ...]:
    """The path with the largest part of each step's idle time: a sum by (step, path), and of each step the largest."""
    found: list[str | None] = [None] * len(capture.steps)
    ranges = np.flatnonzero(capture.idle_by_range > 0)
    if not len(ranges):
        return tuple(found)
    path_of, paths = capture.step_paths
    cells, cell = np.unique(capture.range_row[ranges] * len(paths) + path_of[ranges], return_inverse=True)
    time = summed(cell, capture.idle_by_range[ranges], len(cells))  # (cells,) ns
    row, path = np.divmod(cells, len(paths))
    for one in np.unique(row).tolist():
        own = np.flatnonzero(row == one)
        largest = own[np.argmax(time[own])]
        if time[largest] >= idle_ns[one] - time[own].sum():
            found[one] = paths.text[path[largest]]
    return tuple(found)


def _coverage(capture: Capture) -> FloatArray:
    operations = capture.trace.operations
    duration = operations.end_ns - operations.start_ns
    whole, owned = (_per_row(capture, ns) for ns in (duration, np.where(capture.op_range != NONE, duration, 0)))
    coverage = np.full(len(whole), np.nan)
    np.divide(owned, whole, out=coverage, where=whole > 0)
    return coverage


def _per_row(capture: Capture, ns: Int64Array) -> Int64Array:
    """Sums over the operations of each row."""
    return summed(capture.op_row, ns, len(capture.steps) + 1)[:-1]  # the last one takes those of no row, which is -1
