"""What the finding rules look at: a trace, its range tree, its steps, and which of them each event belongs to.

A *row* is one step of one rank. Where a capture has no steps, each rank has one row that is its whole capture, and
`has_steps` is false; rules that speak of steps then stay silent. An event belongs to the row of its own process in
which it starts; a GPU operation to the row in which it was launched.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Final

import numpy as np

from harness.analysis.intervals import Intervals, complement, intersection, subtraction, union
from harness.analysis.step_finder import TRUNCATED, WARM_UP, Steps
from harness.trace import schema
from harness.trace.groups import summed
from harness.trace.model import KERNEL, BoolArray, Int32Array, Int64Array, Trace, rows_by_process
from harness.trace.naming import call_name, used_names
from harness.trace.nesting import RangeTree, innermost
from harness.trace.paths import ROOT, PathTable, path_table

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
    op_range: Int64Array
    """Per GPU operation: the range that owns it, by the rule that the analysis goes by."""

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

    def row_of(self, times_ns: Int64Array, by_process: Mapping[int, Int64Array]) -> Int64Array:
        """The row in which each time falls; `by_process` says which are whose. -1 where it falls in none."""
        found = np.full(len(times_ns), NONE, dtype=np.int64)
        for pid, own in rows_by_process(self.steps.global_tid).items():
            own = own[np.argsort(self.steps.start_ns[own], kind="stable")]  # (rows of the process,), by start
            events = by_process.get(pid, own[:0])
            # (events of the process,) the last of its rows to begin by then, which may have ended
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
    def judged(self) -> BoolArray:
        """Per row: whether its duration is known and matters: neither truncated nor declared to be warm-up."""
        return np.array([reason not in (TRUNCATED, WARM_UP) for reason in self.steps.dropped], dtype=np.bool_)

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
        return self.row_of(self.trace.ranges.start_ns, rows_by_process(self.trace.ranges.global_tid))

    @cached_property
    def api_row(self) -> Int64Array:
        return self.row_of(self.trace.api.start_ns, self.trace.api.by_process)

    @cached_property
    def op_row(self) -> Int64Array:
        launched = self.op_call != NONE
        if bool(launched.all()):
            return self.api_row[self.op_call]
        rows = self.row_of(self.trace.operations.start_ns, self.trace.operations.by_process)
        rows[launched] = self.api_row[self.op_call[launched]]
        return rows

    @cached_property
    def last_launch_ns(self) -> Int64Array:
        """Per row: when the last call that launched GPU work in it began; the least int64 where none did."""
        last = np.full(len(self.steps), np.iinfo(np.int64).min)
        calls = self.op_call[(self.op_call != NONE) & (self.op_row != NONE)]
        np.maximum.at(last, self.api_row[calls], self.trace.api.start_ns[calls])
        return last

    @cached_property
    def row_threads(self) -> Int64Array:
        """Per row: the thread that says what the host was doing: the step's, or the busiest one of a whole capture."""
        if self.has_steps:
            return self.steps.global_tid
        threads, thread = np.unique(self.trace.ranges.global_tid, return_inverse=True)
        time = summed(thread, self.self_ns, len(threads))
        chosen = self.steps.global_tid.copy()
        for row, pid in enumerate(chosen.tolist()):
            own = np.flatnonzero(threads & schema.GLOBAL_PID_MASK == pid)
            if len(own):
                chosen[row] = threads[own[np.argmax(time[own])]]
        return chosen

    # ---- paths -----------------------------------------------------------------------------------------------------

    @cached_property
    def step_paths(self) -> tuple[Int32Array, PathTable]:
        """Paths that begin at the step instead of at what is around it: (path of each range, the paths)."""
        tree = self.tree
        index: dict[str, int] = {}
        name_of_path = np.array([index.setdefault(name, len(index)) for name in tree.paths.name], dtype=np.int32)
        parent = tree.nesting.parent.copy()
        if self.has_steps:
            parent[self.steps.range_row] = ROOT
        return path_table(parent, name_of_path[tree.path_id], tuple(index))

    # ---- ranges ----------------------------------------------------------------------------------------------------

    def named(self, name: str) -> BoolArray:
        """Per range: whether it is called `name`."""
        wanted = np.array([index for index, text in enumerate(self.trace.strings) if text == name], dtype=np.int64)
        return np.isin(self.trace.ranges.name_id, wanted)

    def ranges_of_calls(self, calls: Int64Array) -> Int64Array:
        """The tightest range around each of some API calls: of its thread, or else of the thread that runs its step.

        Autograd launches the backward pass from a thread that has no ranges.
        """
        api, ranges, nesting = self.trace.api, self.trace.ranges, self.tree.nesting
        start, rows = api.start_ns[calls], self.api_row[calls]
        found = innermost(ranges, nesting, api.global_tid[calls], start)
        left = np.flatnonzero((found == NONE) & (rows != NONE))
        found[left] = innermost(ranges, nesting, self.steps.global_tid[rows[left]], start[left])
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
        operations = self.trace.operations
        kernels = used_names(self.trace.strings, operations.name_id)
        ids = [name_id for name_id, name in kernels.items() if "nccl" in name[:400].lower()]
        found: BoolArray = (operations.kind == KERNEL) & np.isin(operations.name_id, np.array(ids, dtype=np.int64))
        return found

    @cached_property
    def api_names(self) -> dict[int, str]:
        """Names of the API calls as they are documented, by name index."""
        used = used_names(self.trace.strings, self.trace.api.name_id)
        return {name_id: call_name(name) for name_id, name in used.items()}

    @property
    def gpu_processes(self) -> list[int]:
        return list(self.trace.operations.by_process)

    @cached_property
    def gpu_busy(self) -> dict[int, Intervals]:
        """By process: when any of its operations ran."""
        return {pid: self._gpu(pid, None) for pid in self.gpu_processes}

    @cached_property
    def gpu_communication(self) -> dict[int, Intervals]:
        """By process: when a collective of it ran."""
        return {pid: self._gpu(pid, self.communication) for pid in self.gpu_processes}

    @cached_property
    def gpu_exposed_communication(self) -> dict[int, Intervals]:
        """By process: when a collective of it ran and no other operation of it did."""
        return {
            pid: subtraction(running, self._gpu(pid, ~self.communication)) if len(running) else running
            for pid, running in self.gpu_communication.items()
        }

    @cached_property
    def gpu_idle(self) -> dict[int, Intervals]:
        """By process: when none of its operations ran, inside its kept rows. Rows without GPU work count as nothing.

        Without steps a row is cut to the time from the first to the last operation: what lies before is start-up.
        """
        return {pid: self._idle(pid) for pid in self.gpu_processes}

    @cached_property
    def idle_by_range(self) -> Int64Array:
        """Per range: `gpu_idle` ns while it was the tightest range of its row's thread; 0 on other threads."""
        ranges = self.trace.ranges
        idle = np.zeros(len(ranges), dtype=np.int64)
        own = self.kept_row(self.range_row)
        own[own] = ranges.global_tid[own] == self.row_threads[self.range_row[own]]
        pids = ranges.global_tid & schema.GLOBAL_PID_MASK
        for pid, gaps in self.gpu_idle.items():
            mine = np.flatnonzero(own & (pids == pid))
            idle[mine] = gaps.covered_in(ranges.start_ns[mine], ranges.end_ns[mine])
        # So far inclusive; what the children have is taken off, as with self times.
        children = np.flatnonzero(own & (self.parent != NONE))
        inclusive = idle[children]
        parents = self.parent[children]
        inside = own[parents]
        np.subtract.at(idle, parents[inside], inclusive[inside])
        return np.maximum(idle, 0)

    def _gpu(self, global_pid: int, chosen: BoolArray | None) -> Intervals:
        operations = self.trace.operations
        own = operations.by_process[global_pid]
        if chosen is not None:
            own = own[chosen[own]]
        return union(operations.start_ns[own], operations.end_ns[own])

    def _idle(self, global_pid: int) -> Intervals:
        steps, busy = self.steps, self.gpu_busy[global_pid]
        own = self.kept & (steps.global_tid & schema.GLOBAL_PID_MASK == global_pid)
        own &= busy.covered_in(steps.start_ns, steps.end_ns) > 0
        starts, ends = steps.start_ns[own], steps.end_ns[own]
        if not self.has_steps:
            starts, ends = np.maximum(starts, busy.start_ns[0]), np.minimum(ends, busy.end_ns[-1])
        rows = union(starts, ends)
        if not len(rows):
            return rows
        idle = complement(busy, int(rows.start_ns[0]), int(rows.end_ns[-1]))
        return intersection(idle, rows)


def step_names_folded(tree: RangeTree, steps: Steps) -> RangeTree:
    """`tree` with all steps of one name, so that `training_step_1` and `training_step_2` share their paths."""
    if steps.name is None or not len(steps):
        return tree
    index: dict[str, int] = {}
    name_of_path = np.array([index.setdefault(name, len(index)) for name in tree.paths.name], dtype=np.int32)
    name_rows = name_of_path[tree.path_id]
    name_rows[steps.range_row] = index.setdefault(steps.name, len(index))
    path_id, paths = path_table(tree.nesting.parent, name_rows, tuple(index))
    return replace(tree, path_id=path_id, paths=paths)
