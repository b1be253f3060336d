"""Lengths of unions of time, for many groups at once and without a loop over the events.

The sweep of Klee's measure problem in one dimension: go through events by start, keep the furthest end reached, and let
each event add what it has beyond that. A running maximum makes it one pass of numpy:

    events     ────────                    adds 8
                  ───                      adds 0: all of it was reached
                      ──────               adds 4
                                 ───       adds 3; the union is 15
    reached    ───────────────── ───
"""

from __future__ import annotations

import numpy as np

from harness.trace.model import BoolArray, Int64Array, distinct_ids


def overlapping(start: Int64Array, end: Int64Array, owner_id: Int64Array) -> BoolArray:
    """Whether each event overlaps another of its owner; events are ordered by start."""
    crowded = np.zeros(len(start), dtype=np.bool_)  # (events,)
    for one in distinct_ids(owner_id):
        mine = np.flatnonzero(owner_id == one)
        begins, ends = start[mine], end[mine]
        begins_early = begins[1:] < np.maximum.accumulate(ends)[:-1]
        if bool(begins_early.any()):
            crowded[mine[1:]] |= begins_early
            crowded[mine[:-1]] |= begins[1:] < ends[:-1]
    return crowded


def union_by_range(count: int, row: Int64Array, event: Int64Array, start: Int64Array, end: Int64Array) -> Int64Array:
    """Per range: length of the union of the events paired with it. Events are ordered by start."""
    total = np.zeros(count, dtype=np.int64)  # (count,) ns
    if not len(row):
        return total
    order = np.lexsort((event, row))
    row, event = row[order], event[order]
    begins, ends = start[event], end[event]  # (pairs,) ns, by range, then by start
    # Each range gets a stretch of time of its own, so that one running maximum serves all.
    first = np.flatnonzero(np.concatenate(([True], row[1:] != row[:-1])))  # (ranges with pairs,) position of the first
    extent = np.maximum.reduceat(ends, first) - begins[first]  # (ranges with pairs,) ns
    shift = np.cumsum(extent) - extent - begins[first]
    shift = np.repeat(shift, np.diff(np.concatenate((first, [len(row)]))))  # (pairs,) ns
    begins, ends = begins + shift, ends + shift
    reached = np.concatenate(([np.iinfo(np.int64).min], np.maximum.accumulate(ends)[:-1]))
    np.add.at(total, row, np.maximum(ends - np.maximum(begins, reached), 0))
    return total
