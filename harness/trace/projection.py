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

In comments, `ranges` and `operations` are the numbers of each; `pairs` are those of `Links`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal

import numpy as np

from harness.trace import schema
from harness.trace.groups import folded, summed
from harness.trace.links import NONE, Links
from harness.trace.model import MEMCPY, Int64Array, NvtxRanges, Trace
from harness.trace.nesting import Nesting
from harness.trace.paths import ROOT, levels
from harness.trace.unions import overlapping, union_by_range

ProjectionRule = Literal["thread", "process"]
RULES: Final[tuple[ProjectionRule, ...]] = ("thread", "process")

COPY_CLASSES: Final = (
    "h2d pageable", "h2d pinned", "h2d other", "d2h pageable", "d2h pinned", "d2h other", "device", "other",
)  # fmt: skip
"""Direction, and what kind of host memory: the columns of `Projection.copy_bytes` and `copy_ns`."""
H2D: Final = (0, 1, 2)
D2H: Final = (3, 4, 5)
_DEVICE_KINDS: Final = (8, 10, 13)


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
