"""Sets of time against sets of integers: every ns is counted by hand."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from harness.analysis.intervals import Intervals, complement, intersection, subtraction, union

PAIRS = st.lists(st.tuples(st.integers(-30, 30), st.integers(0, 12)), max_size=12)


def build(pairs: list[tuple[int, int]]) -> Intervals:
    starts = np.array([start for start, _ in pairs], dtype=np.int64)
    return union(starts, starts + np.array([length for _, length in pairs], dtype=np.int64))


def ticks(pairs: list[tuple[int, int]]) -> set[int]:
    return {tick for start, length in pairs for tick in range(start, start + length)}


def as_ticks(intervals: Intervals) -> set[int]:
    pairs = zip(intervals.start_ns.tolist(), intervals.end_ns.tolist(), strict=True)
    return {tick for start, end in pairs for tick in range(start, end)}


@given(PAIRS)
def test_union_is_disjoint_ordered_and_covers_the_same(pairs: list[tuple[int, int]]) -> None:
    found = build(pairs)
    assert as_ticks(found) == ticks(pairs)
    assert (found.start_ns < found.end_ns).all()
    assert (found.end_ns[:-1] < found.start_ns[1:]).all()
    assert found.total_ns == len(ticks(pairs))


@given(PAIRS, PAIRS)
def test_intersection_and_subtraction(one: list[tuple[int, int]], other: list[tuple[int, int]]) -> None:
    assert as_ticks(intersection(build(one), build(other))) == ticks(one) & ticks(other)
    assert as_ticks(subtraction(build(one), build(other))) == ticks(one) - ticks(other)


@given(PAIRS, st.integers(-40, 40), st.integers(0, 40))
def test_complement_and_cover_of_a_window(pairs: list[tuple[int, int]], start: int, length: int) -> None:
    window = set(range(start, start + length))
    assert as_ticks(complement(build(pairs), start, start + length)) == window - ticks(pairs)
    covered = build(pairs).covered_in(np.array([start]), np.array([start + length]))
    assert covered.tolist() == [len(window & ticks(pairs))]
