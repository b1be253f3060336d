"""Puts GPU work on the ranges that launched it.

A GPU operation (kernel, copy, memset, graph launch) is joined to the API call of its process with its correlation id;
correlation ids repeat between processes. Which ranges it belongs to is a matter of the rule:

- `thread`, NVIDIA's: every range on the thread of the call that contains the call (start ≤ start, end ≤ end);
- `process`: every range of the process, on any thread, that contains the call. Autograd launches the backward pass
  from a thread of its own, so only this rule finds its kernels below the range around `backward()`.

The first is that of `nvtx_gpu_proj_trace` and `nvtx_gpu_proj_sum` in `nsys stats`: projected start and end are the
first start and the last end of the operations. The second is ours, and so are graph launches as operations.

Figures of a range are inclusive unless they are called own: an operation is *owned* by one range, the tightest on the
thread of the call, or else (by the `process` rule) the tightest on another thread. GPU time is the length of a union
of intervals: operations overlap. An operation without an API call in the trace (launched before the capture began)
belongs to no range, and `coverage` says how much of the GPU time did find one.

How: only the tightest range around each call is looked up (`RangeFinder`), one *pair* of range and operation for each
thread of the process. Ranges nest, so all others around the call are that one's ancestors: figures that add up, and
least and largest times, are taken once per pair and then carried up the tree, level by level from the deepest.

    step ───────────────────────     2 + 3 = 5, in turn what was carried to `forward` and `backward`
      forward ────                   2 pairs
                   backward ────     1 pair of its own thread, 2 of autograd's (`process` alone)

In comments, `ranges`, `operations`, `calls` and `syncs` (synchronising calls) are the numbers of each; `events` are
operations with a launch and syncs together; `pairs` are (range, event).
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final, Literal

import numpy as np

from harness.trace import naming, schema
from harness.trace.groups import folded, summed
from harness.trace.model import MEMCPY, BoolArray, Int64Array, NvtxRanges, Trace
from harness.trace.nesting import ROOT, Nesting, RangeFinder, levels
from harness.trace.unions import overlapping, union_by_range

ProjectionRule = Literal["thread", "process"]
RULES: Final[tuple[ProjectionRule, ...]] = ("thread", "process")
NONE: Final = -1

COPY_CLASSES: Final = (
    "h2d pageable", "h2d pinned", "h2d other", "d2h pageable", "d2h pinned", "d2h other", "device", "other",
)  # fmt: skip
"""Direction, and what kind of host memory: the columns of `Projection.copy_bytes` and `copy_ns`."""
H2D: Final = (0, 1, 2)
D2H: Final = (3, 4, 5)
_DEVICE_KINDS: Final = (8, 10, 13)
_SYNCHRONIZES: Final = re.compile(r"^cu(?:da)?(?:Device|Stream|Event|Ctx|Context|Thread)Synchronize$")


@dataclass(frozen=True, kw_only=True, eq=False)
class Links:
    """Which ranges launched what, by both rules."""

    call: Int64Array
    """Per operation: row of the API call that launched it; NONE where the trace holds none."""
    sync_calls: Int64Array
    """Rows of the API calls that synchronise: their thread waits for the GPU."""
    range_row: Int64Array
    """Per pair: the tightest placed range on one thread around the call (its ancestors contain the call too), or a
    detached range around it."""
    event: Int64Array
    """Per pair: row of the operation; from `len(operations)` on, position in `sync_calls`."""
    same_thread: BoolArray
    """Per pair: whether it is the calling thread's range."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Projection:
    """GPU work of each range (one row a range, in the order of `NvtxRanges`) by one rule."""

    rule: ProjectionRule
    operations: Int64Array
    gpu_ns: Int64Array
    """Time in which at least one of its operations ran."""
    first_ns: Int64Array
    """Start of its first operation; 0 where it has none."""
    last_ns: Int64Array
    """End of its last operation; 0 where it has none."""
    launch_delay_ns: Int64Array
    """From the start of the call to the start of the operation, summed over its operations."""
    copy_bytes: Int64Array
    """Shape (ranges, len(COPY_CLASSES))."""
    copy_ns: Int64Array
    """Time of these copies, summed: bytes over it is the bandwidth."""
    sync_ns: Int64Array
    """Time that its threads spent in synchronising API calls."""
    owner: Int64Array
    """Per operation: the range that owns it; NONE for none."""

    @property
    def projected_ns(self) -> Int64Array:
        """First start to last end, as NVIDIA's projection reports a range's duration on the GPU."""
        return self.last_ns - self.first_ns

    @property
    def h2d_bytes(self) -> Int64Array:
        total: Int64Array = self.copy_bytes[:, H2D].sum(axis=1)
        return total

    @property
    def d2h_bytes(self) -> Int64Array:
        total: Int64Array = self.copy_bytes[:, D2H].sum(axis=1)
        return total


def link(trace: Trace, nesting: Nesting) -> Links:
    """Find the launching call of every operation and the ranges around every such call."""
    call = launching_calls(trace)
    sync_calls = _synchronizing_calls(trace)
    launched = np.flatnonzero(call != NONE)
    events = np.concatenate((launched, len(call) + np.arange(len(sync_calls))))  # (events,) as in `Links.event`
    event_call = np.concatenate((call[launched], sync_calls))  # (events,) row of the call
    tid, start, end = (column[event_call] for column in (trace.api.global_tid, trace.api.start_ns, trace.api.end_ns))
    finder = RangeFinder(trace.ranges, nesting)
    parts = [
        _Pairs.of(finder.around(tid, start, end), events, same_thread=True),
        _detached_pairs(trace.ranges, nesting, events, tid, start, end),
    ]
    # By the process rule: the same search on each other thread of the process that has ranges.
    threads = np.unique(trace.ranges.global_tid[~nesting.detached])
    pids = tid & schema.GLOBAL_PID_MASK
    for pid in np.unique(threads & schema.GLOBAL_PID_MASK).tolist():
        mine = np.flatnonzero(pids == pid)
        for other in threads[threads & schema.GLOBAL_PID_MASK == pid].tolist():
            asked = mine[tid[mine] != other]
            found = finder.around(other, start[asked], end[asked])
            parts.append(_Pairs.of(found, events[asked], same_thread=False))
    return Links(
        call=call,
        sync_calls=sync_calls,
        range_row=np.concatenate([part.range_row for part in parts]),
        event=np.concatenate([part.event for part in parts]),
        same_thread=np.concatenate([part.same_thread for part in parts]),
    )


def project(trace: Trace, nesting: Nesting, links: Links, rule: ProjectionRule) -> Projection:
    """The figures of every range by `rule`; see the module's head for what belongs to what."""
    operations, api, count = trace.operations, trace.api, len(trace.ranges)
    range_row, event = links.range_row, links.event
    if rule == "thread":
        range_row, event = range_row[links.same_thread], event[links.same_thread]
    is_sync = event >= len(operations)
    sync_row, sync = range_row[is_sync], event[is_sync] - len(operations)
    row, operation = range_row[~is_sync], event[~is_sync]  # (pairs,) both
    # A detached range stands alone: what is in it reaches its parent by the parent's own pairs.
    above = np.where(nesting.detached, ROOT, nesting.parent)
    tree = _Tree(above=above, levels=[rows[above[rows] != ROOT] for rows in levels(nesting.depth)])
    starts = operations.start_ns[operation]  # (pairs,) ns
    per_range = np.bincount(row, minlength=count)  # (ranges,), as what follows
    first = folded(np.minimum, row, starts, count, np.iinfo(np.int64).max)
    last = folded(np.maximum, row, operations.end_ns[operation], count, np.iinfo(np.int64).min)
    operations_of = tree.carried(np.add, per_range)
    busy = operations_of > 0
    copy_bytes, copy_ns = _copies(trace, tree, row, operation)
    delay = starts - api.start_ns[links.call[operation]]
    waits = links.sync_calls
    return Projection(
        rule=rule,
        operations=operations_of,
        gpu_ns=_inclusive_union(tree, row, operation, operations.start_ns, operations.end_ns, operations.global_pid),
        first_ns=np.where(busy, tree.carried(np.minimum, first), 0),
        last_ns=np.where(busy, tree.carried(np.maximum, last), 0),
        launch_delay_ns=tree.carried(np.add, summed(row, delay, count)),
        copy_bytes=copy_bytes,
        copy_ns=copy_ns,
        sync_ns=_inclusive_union(tree, sync_row, sync, api.start_ns[waits], api.end_ns[waits], api.global_tid[waits]),
        owner=_owners(trace.ranges, nesting, links, len(operations), rule),
    )


def own_gpu_ns(trace: Trace, projection: Projection) -> Int64Array:
    """Per range: time in which at least one of the operations that it owns ran."""
    operations = trace.operations
    owned = np.flatnonzero(projection.owner != NONE)
    return union_by_range(len(trace.ranges), projection.owner[owned], owned, operations.start_ns, operations.end_ns)


def coverage(trace: Trace, links: Links, rule: ProjectionRule) -> float:
    """Share of the GPU time, operation by operation, that belongs to some range by `rule`; 0 without GPU work."""
    operations = trace.operations
    duration_ns = operations.end_ns - operations.start_ns
    event = links.event[links.same_thread] if rule == "thread" else links.event
    found = np.zeros(len(operations) + len(links.sync_calls), dtype=np.bool_)
    found[event] = True
    total = int(duration_ns.sum())
    return int(duration_ns[found[: len(operations)]].sum()) / total if total else 0.0


def launching_calls(trace: Trace) -> Int64Array:
    """Per operation: row of the API call of its process with its correlation id; NONE for none."""
    operations, api = trace.operations, trace.api
    found = np.full(len(operations), NONE, dtype=np.int64)
    for pid, mine in operations.by_process.items():
        calls = api.by_process.get(pid, mine[:0])
        wanted, ids = operations.correlation_id[mine], api.correlation_id[calls]
        calls, ids = calls[ids >= 0], ids[ids >= 0]
        if len(calls):
            found[mine] = np.where(wanted >= 0, _matched(wanted, ids, calls), NONE)
    return found


def _matched(wanted: Int64Array, ids: Int64Array, rows: Int64Array) -> Int64Array:
    """The first of `rows` whose id is wanted; NONE for none. Ids count up in a process, so a table serves mostly."""
    low, high = int(ids.min()), int(ids.max())
    if high - low <= 8 * len(ids) + 1_000_000:
        table = np.full(high - low + 1, NONE, dtype=np.int64)  # (ids,): which call has the id `low + i`
        table[ids[::-1] - low] = rows[::-1]
        known = (wanted >= low) & (wanted <= high)
        return np.where(known, table[np.where(known, wanted - low, 0)], NONE)
    order = np.argsort(ids, kind="stable")
    position = np.minimum(np.searchsorted(ids[order], wanted), len(ids) - 1)
    return np.where(ids[order][position] == wanted, rows[order][position], NONE)


def _synchronizing_calls(trace: Trace) -> Int64Array:
    used = naming.used_names(trace.strings, trace.api.name_id)
    chosen = [name_id for name_id, name in used.items() if _SYNCHRONIZES.match(naming.api_name(name))]
    return np.flatnonzero(np.isin(trace.api.name_id, chosen))


@dataclass(frozen=True, kw_only=True, eq=False)
class _Pairs:
    range_row: Int64Array
    event: Int64Array
    same_thread: BoolArray

    @classmethod
    def of(cls, found: Int64Array, events: Int64Array, *, same_thread: bool) -> _Pairs:
        inside = found != ROOT
        rows = found[inside]
        return cls(range_row=rows, event=events[inside], same_thread=np.full(len(rows), same_thread))


def _detached_pairs(
    ranges: NvtxRanges, nesting: Nesting, events: Int64Array, tid: Int64Array, start: Int64Array, end: Int64Array
) -> _Pairs:
    """Every (detached range, event of its process inside it)."""
    parts = [_Pairs.of(np.empty(0, dtype=np.int64), np.empty(0, dtype=np.int64), same_thread=False)]
    detached = np.flatnonzero(nesting.detached)
    pids, event_pids = ranges.global_tid[detached] & schema.GLOBAL_PID_MASK, tid & schema.GLOBAL_PID_MASK
    for pid in np.unique(pids).tolist():
        rows = detached[pids == pid]
        mine = np.flatnonzero(event_pids == pid)
        mine = mine[np.argsort(start[mine], kind="stable")]
        # Of each range, the stretch of events that start in it; then all stretches one after the other.
        low = np.searchsorted(start[mine], ranges.start_ns[rows], side="left")
        high = np.searchsorted(start[mine], ranges.end_ns[rows], side="right")
        sizes = high - low  # (detached ranges of the process,)
        row = np.repeat(rows, sizes)  # (pairs,)
        event = mine[np.arange(int(sizes.sum())) - np.repeat(np.cumsum(sizes) - sizes - low, sizes)]
        inside = end[event] <= ranges.end_ns[row]
        row, event = row[inside], event[inside]
        parts.append(_Pairs(range_row=row, event=events[event], same_thread=tid[event] == ranges.global_tid[row]))
    return _Pairs(
        range_row=np.concatenate([part.range_row for part in parts]),
        event=np.concatenate([part.event for part in parts]),
        same_thread=np.concatenate([part.same_thread for part in parts]),
    )


def _owners(ranges: NvtxRanges, nesting: Nesting, links: Links, operations: int, rule: ProjectionRule) -> Int64Array:
    """The range that owns each operation. Of candidates: the calling thread's, then a placed one, then the tightest."""
    owner = np.full(operations, NONE, dtype=np.int64)
    candidates = links.event < operations
    placed = ~nesting.detached[links.range_row]
    plain = candidates & links.same_thread & placed
    owner[links.event[plain]] = links.range_row[plain]
    left = np.flatnonzero(candidates & ~plain & (links.same_thread | (rule == "process")))
    left = left[owner[links.event[left]] == NONE]
    rows = links.range_row[left]
    duration_ns = ranges.end_ns[rows] - ranges.start_ns[rows]
    # Of equals, the later row: it is the inner one. The best comes last and overwrites the others.
    order = np.lexsort((rows, -duration_ns, placed[left], links.same_thread[left]))
    owner[links.event[left[order]]] = rows[order]
    return owner


@dataclass(frozen=True, kw_only=True, eq=False)
class _Tree:
    above: Int64Array
    levels: list[Int64Array]
    """Rows with a parent, by depth."""

    def carried(self, ufunc: np.ufunc, values: Int64Array) -> Int64Array:
        """Each row's value combined with those of all rows below it."""
        values = values.copy()
        for rows in reversed(self.levels):
            ufunc.at(values, self.above[rows], values[rows])
        return values


def _copies(trace: Trace, tree: _Tree, row: Int64Array, operation: Int64Array) -> tuple[Int64Array, Int64Array]:
    operations, count = trace.operations, len(trace.ranges)
    # Column by column, so that one without copies takes no memory.
    size, time = (np.zeros((count, len(COPY_CLASSES)), dtype=np.int64, order="F") for _ in range(2))
    copies = (operations.kind == MEMCPY)[operation]
    row, operation = row[copies], operation[copies]
    classes = _copy_classes(trace, operation)
    for one in np.unique(classes).tolist():
        rows, of_class = row[classes == one], operation[classes == one]
        duration_ns = operations.end_ns[of_class] - operations.start_ns[of_class]
        size[:, one] = tree.carried(np.add, summed(rows, operations.bytes[of_class], count))
        time[:, one] = tree.carried(np.add, summed(rows, duration_ns, count))
    return size, time


def _copy_classes(trace: Trace, copies: Int64Array) -> Int64Array:
    """Index into COPY_CLASSES of some copies (rows of operations)."""
    operations = trace.operations
    kind = operations.copy_kind[copies]
    to_device = np.isin(kind, schema.H2D_KINDS)
    to_host = np.isin(kind, schema.D2H_KINDS)
    host = np.where(to_device, operations.src_kind[copies], operations.dst_kind[copies])
    memory = np.select([host == schema.PAGEABLE, host == schema.PINNED], [0, 1], 2)
    on_device = np.isin(kind, _DEVICE_KINDS)
    return np.select([to_device, to_host, on_device], [memory, 3 + memory, np.full_like(memory, 6)], 7)


def _inclusive_union(
    tree: _Tree, row: Int64Array, event: Int64Array, start: Int64Array, end: Int64Array, owner_id: Int64Array
) -> Int64Array:
    """Per range: length of the union of the events of its pairs and of all ranges below it, added up over owners.

    An event that overlaps no other one (`owner_id` says among which) adds its whole length wherever it counts, so a
    sum carried up the tree does for those; only the others are spread over all ranges around them.
    """
    count = len(tree.above)
    crowded = overlapping(start, end, owner_id)
    alone = np.where(crowded, 0, end - start)
    total = tree.carried(np.add, summed(row, alone[event], count))
    left = crowded[event]
    row, event = row[left], event[left]
    if not len(row):
        return total
    # (pairs at this level,) each time: the pairs of all ranges around, by going one up as often as the tree is deep.
    rows, events = [row], [event]
    for _ in tree.levels:  # no row lies deeper than that
        row = tree.above[row]
        row, event = row[row != ROOT], event[row != ROOT]
        rows.append(row)
        events.append(event)
    row, event = np.concatenate(rows), np.concatenate(events)
    # Owners run at the same time and each counts: the union is taken within one, and added up over them.
    owners, owner = np.unique(owner_id[event], return_inverse=True)
    keys, key = np.unique(row * len(owners) + owner, return_inverse=True)  # (distinct (range, owner)s,), (pairs,)
    unions = union_by_range(len(keys), key, event, start, end)
    return total + summed(keys // len(owners), unions, count)
