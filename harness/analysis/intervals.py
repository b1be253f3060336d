"""Sets of time: disjoint, ordered intervals, and how much of a window they cover.

GPU work overlaps (streams, copies beside kernels), so its time is the length of a union and never a sum. All functions
take and give int64 nanoseconds and work on whole arrays: (n,) for a set of n intervals.

The union is the textbook sweep: by start, an interval opens a new piece where it begins beyond the furthest end reached
so far, and a piece ends where the next one opens. Whatever is asked of a window is then a difference of two prefix
sums, found by binary search.

    given    ──────      ────
                ─────                ──
    union    ────────    ────        ──
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

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
        before = np.concatenate(([0], np.cumsum(self.end_ns - self.start_ns)))  # (n + 1,) ns before each interval
        index = np.searchsorted(self.start_ns, times_ns, side="right")  # (times,) intervals that began by then
        last = np.maximum(index - 1, 0)
        beyond = np.where(index > 0, np.maximum(self.end_ns[last] - times_ns, 0), 0)
        return (before[index] - beyond).astype(np.int64)

    def covered_in(self, start_ns: Int64Array, end_ns: Int64Array) -> Int64Array:
        """How many ns of each window `[start, end)` this set covers."""
        return self.covered_before(end_ns) - self.covered_before(start_ns)


_NOTHING: Final = Intervals(start_ns=np.empty(0, dtype=np.int64), end_ns=np.empty(0, dtype=np.int64))


def union(start_ns: Int64Array, end_ns: Int64Array) -> Intervals:
    """The union of any intervals, in any order; empty ones vanish."""
    real = end_ns > start_ns
    if not bool(real.all()):
        start_ns, end_ns = start_ns[real], end_ns[real]
    if not len(start_ns):
        return _NOTHING
    if not bool((start_ns[1:] >= start_ns[:-1]).all()):
        order = np.argsort(start_ns, kind="stable")
        start_ns, end_ns = start_ns[order], end_ns[order]
    reached = np.maximum.accumulate(end_ns)  # (given,) ns
    opens = np.flatnonzero(start_ns[1:] > reached[:-1]) + 1  # (pieces - 1,) position of the first of each but the first
    return Intervals(start_ns=start_ns[np.concatenate(([0], opens))], end_ns=reached[np.concatenate((opens - 1, [-1]))])


def complement(intervals: Intervals, start_ns: int, end_ns: int) -> Intervals:
    """The part of the window `[start, end)` that `intervals` leave free."""
    inside = slice(
        np.searchsorted(intervals.end_ns, start_ns, side="right"), np.searchsorted(intervals.start_ns, end_ns)
    )
    starts = np.concatenate(([start_ns], intervals.end_ns[inside]))
    ends = np.concatenate((intervals.start_ns[inside], [end_ns]))
    return union(starts, ends)


def intersection(one: Intervals, other: Intervals) -> Intervals:
    """What both sets cover."""
    # For each interval of `other`, those of `one` that overlap it follow each other.
    first = np.searchsorted(one.end_ns, other.start_ns, side="right")  # (len(other),)
    sizes = np.searchsorted(one.start_ns, other.end_ns, side="left") - first  # (len(other),)
    # (pieces,) from here on: each pair that overlaps.
    of_other = np.repeat(np.arange(len(other)), sizes)
    of_one = np.arange(len(of_other)) + np.repeat(first - (np.cumsum(sizes) - sizes), sizes)
    # Pieces of disjoint intervals are disjoint, and ascend because both sets do.
    return Intervals(
        start_ns=np.maximum(one.start_ns[of_one], other.start_ns[of_other]),
        end_ns=np.minimum(one.end_ns[of_one], other.end_ns[of_other]),
    )


def subtraction(one: Intervals, other: Intervals) -> Intervals:
    """What `one` covers and `other` does not."""
    if not len(one):
        return one
    return intersection(one, complement(other, int(one.start_ns[0]), int(one.end_ns[-1])))
