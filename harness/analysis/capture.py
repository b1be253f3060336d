"""What the finding rules look at: a trace, its range tree, its steps, and which of them each event belongs to.

A *row* is one step of one rank. Where a capture has no steps, each rank has one row that is its whole capture, and
`has_steps` is false; rules that speak of steps then stay silent. An event belongs to the row of its own process in
which it starts; a GPU operation to the row in which it was launched.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Final

import numpy as np

from harness.analysis.intervals import Intervals, complement, subtraction, union
from harness.analysis.step_finder import TRUNCATED, Steps
from harness.trace import schema
from harness.trace.model import KERNEL, BoolArray, Int64Array, Trace
from harness.trace.nesting import ROOT, RangeTree, innermost

NONE: Final = ROOT


@dataclass(frozen=True, kw_only=True, eq=False)
class Capture:
    """A trace with everything that was found out about it. Indexes are into the trace's arrays; -1 means none."""

    trace: Trace
    tree: RangeTree
    steps: Steps
    """Its elements are the rows."""
    op_call: Int64Array
    """Per GPU operation: the API call that launched it."""

    @property
    def parent(self) -> Int64Array:
        """Per range: the tightest range around it on its thread."""
        return self.tree.nesting.parent

    @property
    def self_ns(self) -> Int64Array:
        """Per range: its time that no child covers."""
        return self.tree.nesting.self_ns

    @property
    def has_steps(self) -> bool:
        return self.steps.name is not None

    @property
    def unit(self) -> str:
        """What a mean over rows is called."""
        return "per step" if self.has_steps else "per rank"

    # ---- steps -----------------------------------------------------------------------------------------------------

    def row_of(self, times_ns: Int64Array, global_ids: Int64Array) -> Int64Array:
        """The row in which each time falls, by process; -1 where it falls in none."""
        found = np.full(len(times_ns), NONE, dtype=np.int64)
        pids = global_ids & schema.GLOBAL_PID_MASK
        row_pids = self.steps.global_tid & schema.GLOBAL_PID_MASK
        for pid in np.unique(row_pids).tolist():
            own = np.flatnonzero(row_pids == pid)
            own = own[np.argsort(self.steps.start_ns[own], kind="stable")]
            events = np.flatnonzero(pids == pid)
            at = np.searchsorted(self.steps.start_ns[own], times_ns[events], side="right") - 1
            row = own[np.maximum(at, 0)]
            inside = (at >= 0) & (times_ns[events] < self.steps.end_ns[row])
            found[events[inside]] = row[inside]
        return found

    def kept_row(self, rows: Int64Array) -> BoolArray:
        """True where a row is one that the figures are taken over."""
        if not len(self.steps):
            return np.zeros(len(rows), dtype=np.bool_)
        kept: BoolArray = (rows != NONE) & self.kept[rows]
        return kept

    @cached_property
    def kept(self) -> BoolArray:
        """Per row: whether the figures are taken over it; others are truncated, warm-up or outlying first steps."""
        return self.steps.kept

    @cached_property
    def complete(self) -> BoolArray:
        """Per row: whether the trace holds its end."""
        return np.array([reason != TRUNCATED for reason in self.steps.dropped], dtype=np.bool_)

    @cached_property
    def kept_count(self) -> int:
        return int(self.kept.sum())

    @cached_property
    def mean_step_ns(self) -> float:
        """Mean duration of the kept rows; 0 where there is none."""
        return float(self.steps.duration_ns[self.kept].mean()) if self.kept_count else 0.0

    def per_step(self, total_ns: float) -> float:
        """A total over the kept rows as ns per step and rank."""
        return total_ns / self.kept_count if self.kept_count else 0.0

    @cached_property
    def range_row(self) -> Int64Array:
        return self.row_of(self.trace.ranges.start_ns, self.trace.ranges.global_tid)

    @cached_property
    def api_row(self) -> Int64Array:
        return self.row_of(self.trace.api.start_ns, self.trace.api.global_tid)

    @cached_property
    def op_row(self) -> Int64Array:
        operations = self.trace.operations
        launched = self.op_call != NONE
        times = operations.start_ns.copy()
        times[launched] = self.trace.api.start_ns[self.op_call[launched]]
        return self.row_of(times, operations.global_pid)

    # ---- ranges ----------------------------------------------------------------------------------------------------

    def named(self, name: str) -> BoolArray:
        """Per range: whether it is called `name`."""
        wanted = np.array([index for index, text in enumerate(self.trace.strings) if text == name], dtype=np.int64)
        return np.isin(self.trace.ranges.name_id, wanted)

    @cached_property
    def api_range(self) -> Int64Array:
        """The tightest range around each API call: of its thread, or else of the thread that runs its step.

        Autograd launches the backward pass from a thread that has no ranges.
        """
        api, ranges, nesting = self.trace.api, self.trace.ranges, self.tree.nesting
        found = innermost(ranges, nesting, api.global_tid, api.start_ns)
        left = np.flatnonzero((found == NONE) & (self.api_row != NONE))
        step_thread = self.steps.global_tid[self.api_row[left]]
        found[left] = innermost(ranges, nesting, step_thread, api.start_ns[left])
        return found

    @cached_property
    def op_range(self) -> Int64Array:
        """The range in which each GPU operation was launched, by the launching thread."""
        found = np.full(len(self.trace.operations), NONE, dtype=np.int64)
        launched = self.op_call != NONE
        if launched.any():
            found[launched] = self.api_range[self.op_call[launched]]
        return found

    def mark_payloads(self, name: str) -> tuple[Int64Array, Int64Array]:
        """Per range: how many marks called `name` lie directly in it, and the sum of their payloads."""
        marks = self.trace.marks
        wanted = [index for index, text in enumerate(self.trace.strings) if text == name]
        chosen = np.isin(marks.name_id, np.array(wanted, dtype=np.int64)) & np.isfinite(marks.payload)
        holder = innermost(self.trace.ranges, self.tree.nesting, marks.global_tid[chosen], marks.time_ns[chosen])
        payload = marks.payload[chosen][holder != NONE]
        holder = holder[holder != NONE]
        count = len(self.trace.ranges)
        sums = np.bincount(holder, weights=payload, minlength=count)
        return np.bincount(holder, minlength=count), sums.astype(np.int64)

    # ---- GPU -------------------------------------------------------------------------------------------------------

    @cached_property
    def communication(self) -> BoolArray:
        """Per GPU operation: whether it is a collective's kernel (NCCL, and RCCL which keeps its names)."""
        ids = [index for index, text in enumerate(self.trace.strings) if "nccl" in text[:400].lower()]
        operations = self.trace.operations
        found: BoolArray = (operations.kind == KERNEL) & np.isin(operations.name_id, np.array(ids, dtype=np.int64))
        return found

    @cached_property
    def gpu_processes(self) -> list[int]:
        return [int(pid) for pid in np.unique(self.trace.operations.global_pid)]

    def gpu_busy(self, global_pid: int) -> Intervals:
        """When any operation of a process ran."""
        return self._gpu(global_pid, np.ones(len(self.trace.operations), dtype=np.bool_))

    def gpu_exposed_communication(self, global_pid: int) -> Intervals:
        """When a collective of a process ran and no other operation of it did."""
        together = self._gpu(global_pid, self.communication)
        return subtraction(together, self._gpu(global_pid, ~self.communication))

    def _gpu(self, global_pid: int, chosen: BoolArray) -> Intervals:
        operations = self.trace.operations
        own = chosen & (operations.global_pid == global_pid)
        return union(operations.start_ns[own], operations.end_ns[own])

    def gpu_idle_in_rows(self, global_pid: int) -> Intervals:
        """When nothing of a process ran inside its kept rows. Rows without any GPU work count as nothing."""
        rows = self.steps
        busy = self.gpu_busy(global_pid)
        own = self.kept & (rows.global_tid & schema.GLOBAL_PID_MASK == global_pid)
        own &= busy.covered_in(rows.start_ns, rows.end_ns) > 0
        if not own.any():
            return union(rows.start_ns[own], rows.end_ns[own])
        inside = union(rows.start_ns[own], rows.end_ns[own])
        idle = complement(busy, int(inside.start_ns[0]), int(inside.end_ns[-1]))
        return subtraction(idle, complement(inside, int(inside.start_ns[0]), int(inside.end_ns[-1])))
