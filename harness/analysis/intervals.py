"""Sets of time: disjoint, ordered intervals, and how much of a window they cover.

GPU work overlaps (streams, copies beside kernels), so its time is the length of a union and never a sum. All functions
take and give int64 nanoseconds and work on whole arrays.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from harness.trace.model import Int64Array


@dataclass(frozen=True, kw_only=True, eq=False)
class Intervals:
    """Half-open, disjoint, not touching, ascending: `start_ns[i] < end_ns[i] < start_ns[i + 1]`."""

    start_ns: Int64Array
    end_ns: Int64Array

    def __len__(self) -> int:
        return len(self.start_ns)

    @property
    def total_ns(self) -> int:
        return int((self.end_ns - self.start_ns).sum())

    def covered_before(self, times_ns: Int64Array) -> Int64Array:
        """How many ns of this set lie before each of `times_ns`."""
        if not len(self):
            return np.zeros(len(times_ns), dtype=np.int64)
        before = np.concatenate(([0], np.cumsum(self.end_ns - self.start_ns)))
        index = np.searchsorted(self.start_ns, times_ns, side="right")
        last = np.maximum(index - 1, 0)
        beyond = np.where(index > 0, np.maximum(self.end_ns[last] - times_ns, 0), 0)
        return (before[index] - beyond).astype(np.int64)

    def covered_in(self, start_ns: Int64Array, end_ns: Int64Array) -> Int64Array:
        """How many ns of each window `[start, end)` this set covers."""
        return self.covered_before(end_ns) - self.covered_before(start_ns)


def union(start_ns: Int64Array, end_ns: Int64Array) -> Intervals:
    """The union of any intervals, in any order; empty ones vanish."""
    real = end_ns > start_ns
    start_ns, end_ns = start_ns[real], end_ns[real]
    if not len(start_ns):
        return Intervals(start_ns=np.empty(0, dtype=np.int64), end_ns=np.empty(0, dtype=np.int64))
    order = np.argsort(start_ns, kind="stable")
    starts, ends = start_ns[order], np.maximum.accumulate(end_ns[order])
    opens = np.concatenate(([True], starts[1:] > ends[:-1]))
    closes = np.concatenate((opens[1:], [True]))
    return Intervals(start_ns=starts[opens], end_ns=ends[closes])


def complement(intervals: Intervals, start_ns: int, end_ns: int) -> Intervals:
    """The part of the window `[start, end)` that `intervals` leave free."""
    inside = (intervals.end_ns > start_ns) & (intervals.start_ns < end_ns)
    starts = np.concatenate(([start_ns], intervals.end_ns[inside]))
    ends = np.concatenate((intervals.start_ns[inside], [end_ns]))
    return union(np.maximum(starts, start_ns), np.minimum(ends, end_ns))


def intersection(one: Intervals, other: Intervals) -> Intervals:
    """What both sets cover."""
    return _swept(one, other, inside_both=True)


def subtraction(one: Intervals, other: Intervals) -> Intervals:
    """What `one` covers and `other` does not."""
    return _swept(one, other, inside_both=False)


def _swept(one: Intervals, other: Intervals, *, inside_both: bool) -> Intervals:
    """Cut both at every border: a piece between two borders is wholly inside or outside of each set."""
    borders = np.concatenate((one.start_ns, one.end_ns, other.start_ns, other.end_ns))
    ones, others = np.ones(len(one), dtype=np.int8), np.ones(len(other), dtype=np.int8)
    nothing_one, nothing_other = np.zeros(2 * len(one), dtype=np.int8), np.zeros(2 * len(other), dtype=np.int8)
    order = np.argsort(borders, kind="stable")  # four ascending runs: a merge
    in_one = np.cumsum(np.concatenate((ones, -ones, nothing_other))[order])
    in_other = np.cumsum(np.concatenate((nothing_one, others, -others))[order])
    kept = np.flatnonzero((in_one > 0) & ((in_other > 0) == inside_both))
    # The last border closes everything, so each kept piece has a next one.
    borders = borders[order]
    return union(borders[kept], borders[kept + 1])
