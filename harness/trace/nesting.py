"""The tree of ranges of each thread: parent, depth, self time and path.

A range's parent is the tightest range on the same thread that contains it; domains do not matter, so that a library's
ranges hang below the caller's. Self time is what no child covers. On each thread the tree is laminar (two ranges nest
or are apart), so the self times below any range add up to its duration, exactly.

Push/pop ranges are like that by construction. Start/end ranges need not be: one that partly overlaps another, or ends
on another thread, is *detached*. It has a parent (the tightest range that contains it), but no children, no self time,
and takes none from its parent.

Where times tie, the earlier row is the outer one, and an empty range at the instant where one ends and another begins
belongs to the one that begins.

The parent is the one of NVIDIA's projection (`nvtx_gpu_proj_trace` of `nsys stats`): the tightest range on the same
thread that contains it. How it is found is ours. With a thread's ranges ordered by (start, longest first), the depth of
the i-th is i minus the number that had ended by its start, and its parent is the last range before it that is one less
deep: two binary searches a range, no loop.

    a ──────────────────        row   ended by its start   depth = row - ended   last before it, one less deep
      b ──────                   a 0          0                    0                   -
        c ──                     b 1          0                    1                   a
                d ──             c 2          0                    2                   b
                                 d 3          2 (b and c)          1                   a

On a laminar thread each parent found contains its child; where one does not, that thread alone is walked with a stack.

In comments, `ranges` is the number of all ranges and `rows` that of those at hand.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from harness.errors import TraceError
from harness.trace import naming
from harness.trace.model import BoolArray, Int32Array, Int64Array, NvtxRanges, Trace, distinct_ids
from harness.trace.paths import ROOT, PathTable, depths, levels, path_table


@dataclass(frozen=True, kw_only=True, eq=False)
class Nesting:
    """One row a range, in the order of `NvtxRanges`."""

    parent: Int64Array
    """Row of the parent; ROOT for an outermost range."""
    depth: Int32Array
    self_ns: Int64Array
    detached: BoolArray


@dataclass(frozen=True, kw_only=True, eq=False)
class RangeTree:
    """Nesting and paths of a trace's ranges; every array has one row a range."""

    nesting: Nesting
    path_id: Int32Array
    paths: PathTable


def range_tree(trace: Trace) -> RangeTree:
    """Nest the ranges of `trace` and give each its path, made of comparable names (`harness.trace.naming`)."""
    nesting = nest(trace.ranges)
    name_rows, names = naming.range_names(trace.strings, trace.ranges.name_id)
    path_id, paths = path_table(nesting.parent, name_rows, names)
    return RangeTree(nesting=nesting, path_id=path_id, paths=paths)


def nest(ranges: NvtxRanges) -> Nesting:
    """Parent, depth and self time of every range."""
    count = len(ranges)
    parent = np.full(count, ROOT, dtype=np.int64)
    detached = ranges.end_global_tid != ranges.global_tid
    threads, thread = np.unique(ranges.global_tid, return_inverse=True)  # (threads,) ids, (ranges,) index into them
    # Rows of one thread side by side; within it they keep (start, longest first).
    order = np.argsort(thread, kind="stable")
    order = order[~detached[order]]  # (placed ranges,) row
    start, end = thread_times(thread[order], len(threads), ranges.start_ns[order], ranges.end_ns[order])
    found, fits = _laminar_parents(start, end)  # (placed ranges,) position in `order`
    parent[order] = np.where(found == ROOT, ROOT, order[found])
    for broken in np.unique(thread[order][~fits]).tolist():
        rows = order[thread[order] == broken]
        walked, apart = _walk(ranges.start_ns[rows], ranges.end_ns[rows], ranges.push_pop[rows])
        parent[rows] = np.where(walked == ROOT, ROOT, rows[walked])
        detached[rows] = apart
    _hang_detached(ranges, thread, parent, detached)
    duration = ranges.end_ns - ranges.start_ns
    self_ns = np.where(detached, 0, duration)  # (ranges,) ns
    charged = np.flatnonzero((parent != ROOT) & ~detached)
    np.subtract.at(self_ns, parent[charged], duration[charged])
    return Nesting(parent=parent, depth=depths(parent), self_ns=self_ns, detached=detached)


def thread_times(
    thread: Int64Array, threads: int, start_ns: Int64Array, end_ns: Int64Array
) -> tuple[Int64Array, Int64Array]:
    """Starts and ends on one axis where each thread has a stretch of its own, so that one search serves all threads."""
    if not len(start_ns):
        return start_ns, end_ns
    first = int(start_ns.min())
    span = int(end_ns.max()) - first + 1
    if span * threads >= 2**63:
        raise TraceError(f"the trace spans {span:,} ns on {threads} threads: its times cannot be right")
    offset = thread * span - first
    return start_ns + offset, end_ns + offset


def _laminar_parents(start: Int64Array, end: Int64Array) -> tuple[Int64Array, BoolArray]:
    """Parent of each range, and whether it really contains it, for ranges grouped by thread and ordered within."""
    count = len(start)
    index = np.arange(count)  # (rows,), as all arrays here are but `begins`
    empty = start == end
    ended = np.searchsorted(np.sort(end[~empty]), start, side="right")
    if bool(empty.any()):
        ended = ended + np.searchsorted(np.sort(end[empty]), start, side="left")
        # An empty range where another ends is still inside it, unless a longer one begins at that instant.
        begins = start[~empty]
        inside = empty & (np.searchsorted(begins, start, side="left") == np.searchsorted(begins, start, side="right"))
        ended[inside] = np.searchsorted(np.sort(end), start[inside], side="left")
    depth = index - ended
    # (depth, index) as one ascending number: just before where a row stands one level up is its parent.
    by_depth = np.argsort(depth, kind="stable")
    key = depth[by_depth] * count + by_depth
    position = np.searchsorted(key, (depth - 1) * count + index) - 1
    inner = depth > 0
    found = by_depth[np.maximum(position, 0)]
    fits = ~inner | ((depth[found] == depth - 1) & (start[found] <= start) & (end[found] >= end))
    return np.where(inner, found, ROOT), fits


def _walk(start_ns: Int64Array, end_ns: Int64Array, push_pop: BoolArray) -> tuple[Int64Array, BoolArray]:
    """Parents on one thread where ranges cross: those that cross are set apart, start/end ranges before push/pop."""
    starts, ends, pushed = start_ns.tolist(), end_ns.tolist(), push_pop.tolist()
    parent = [ROOT] * len(starts)
    apart = [False] * len(starts)
    stack: list[int] = []
    for row, (start, end) in enumerate(zip(starts, ends, strict=True)):
        while stack and (ends[stack[-1]] < start or (ends[stack[-1]] == start and end > start)):
            stack.pop()
        while stack and ends[stack[-1]] < end and pushed[row] and not pushed[stack[-1]]:
            apart[stack.pop()] = True
        if stack and ends[stack[-1]] < end:
            apart[row] = True
        else:
            parent[row] = stack[-1] if stack else ROOT
            stack.append(row)
    for row, above in enumerate(parent):
        while above != ROOT and apart[above]:
            above = parent[above]
        parent[row] = above
    return np.array(parent, dtype=np.int64), np.array(apart, dtype=np.bool_)


def _hang_detached(ranges: NvtxRanges, thread: Int64Array, parent: Int64Array, detached: BoolArray) -> None:
    """Give each detached range the tightest range on its thread that contains it, in place."""
    rows = np.flatnonzero(detached)
    if not len(rows):
        return
    placed = np.flatnonzero(~detached)
    placed = placed[np.argsort(thread[placed], kind="stable")]
    # The last range that began by then; whatever contains the detached one is among its ancestors or is it.
    last = np.empty(len(rows), dtype=np.int64)  # (detached ranges,) row
    for one in np.unique(thread[rows]).tolist():
        mine = placed[thread[placed] == one]
        here = thread[rows] == one
        position = np.searchsorted(ranges.start_ns[mine], ranges.start_ns[rows[here]], side="right") - 1
        last[here] = np.where(position >= 0, mine[position] if len(mine) else ROOT, ROOT)
    while True:
        outside = (last != ROOT) & (ranges.end_ns[last] < ranges.end_ns[rows])
        if not bool(outside.any()):
            break
        last[outside] = parent[last[outside]]
    parent[rows] = last


def inherited(nesting: Nesting, own: Int64Array) -> Int64Array:
    """Per range: its own value, or else that of the tightest range around it which has one; ROOT is no value."""
    found = own.copy()
    for rows in levels(nesting.depth):
        without = rows[(found[rows] == ROOT) & (nesting.parent[rows] != ROOT)]
        found[without] = found[nesting.parent[without]]
    return found


class RangeFinder:
    """Finds the tightest range around moments on threads; made once for many questions. Detached ranges are left out.

    At the instant where one range ends and the next begins, the next is meant.
    """

    def __init__(self, ranges: NvtxRanges, nesting: Nesting) -> None:
        placed = np.flatnonzero(~nesting.detached)
        tids = ranges.global_tid[placed]
        self._rows = {tid: placed[tids == tid] for tid in distinct_ids(tids)}
        self._start_ns = ranges.start_ns
        self._end_ns = ranges.end_ns
        self._parent = nesting.parent

    def around(
        self, global_tid: Int64Array | int, time_ns: Int64Array, until_ns: Int64Array | None = None
    ) -> Int64Array:
        """The tightest range around each moment, or around each stretch from `time_ns` to `until_ns`; ROOT for none."""
        until_ns = time_ns if until_ns is None else until_ns
        if isinstance(global_tid, int):
            return self._around_on(global_tid, time_ns, until_ns)
        found = np.full(len(time_ns), ROOT, dtype=np.int64)
        for tid in self._rows:
            asked = np.flatnonzero(global_tid == tid)
            found[asked] = self._around_on(tid, time_ns[asked], until_ns[asked])
        return found

    def _around_on(self, tid: int, time_ns: Int64Array, until_ns: Int64Array) -> Int64Array:
        rows = self._rows.get(tid, np.empty(0, dtype=np.int64))
        # The last range to begin may end too soon; then the one looked for is among its ancestors.
        position = np.searchsorted(self._start_ns[rows], time_ns, side="right")
        found = np.concatenate(([ROOT], rows))[position]
        asked = np.flatnonzero(position)
        while len(asked):
            asked = asked[self._end_ns[found[asked]] < until_ns[asked]]
            found[asked] = self._parent[found[asked]]
            asked = asked[found[asked] != ROOT]
        return found


def innermost(ranges: NvtxRanges, nesting: Nesting, global_tid: Int64Array, time_ns: Int64Array) -> Int64Array:
    """The tightest range around each (thread, time); ROOT for none. For one question; see `RangeFinder` for many."""
    return RangeFinder(ranges, nesting).around(global_tid, time_ns)
