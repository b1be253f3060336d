"""Nesting against a brute-force reading of its definition."""

from __future__ import annotations

from random import Random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from synthetic import Interval, any_intervals, make_ranges, push_pop_intervals

from harness.trace import nesting as nesting_module
from harness.trace.model import BoolArray, Int64Array, NvtxRanges
from harness.trace.nesting import Nesting, RangeFinder, _walk, inherited, innermost, nest
from harness.trace.paths import ROOT, path_table


def brute_force_parents(ranges: NvtxRanges) -> list[int]:
    """For each range, the innermost of all earlier rows of its thread that contain it, by comparing all pairs."""
    rows = list(zip(ranges.start_ns.tolist(), ranges.end_ns.tolist(), ranges.global_tid.tolist(), strict=True))
    begins = {(start, tid) for start, end, tid in rows if end > start}
    parents = []
    for i, (start, end, tid) in enumerate(rows):
        covering = [
            j
            for j, (other_start, other_end, other_tid) in enumerate(rows[:i])
            if other_tid == tid
            and other_start <= start
            and other_end >= end
            and not (other_start < other_end == start and (start, tid) in begins)
        ]
        parents.append(max(covering, default=ROOT))
    return parents


def tree_self_sums(ranges: NvtxRanges, nesting: Nesting) -> dict[int, int]:
    """Sum of self times of each root's whole tree."""
    sums: dict[int, int] = {}
    for row in range(len(ranges)):
        root = row
        while nesting.parent[root] != ROOT:
            root = int(nesting.parent[root])
        sums[root] = sums.get(root, 0) + int(nesting.self_ns[row])
    return sums


@given(push_pop_intervals(), push_pop_intervals(), st.randoms(use_true_random=False))
def test_push_pop_ranges_nest_as_defined(first: list[Interval], second: list[Interval], random: Random) -> None:
    rows = [(interval, 1) for interval in first] + [(interval, 2) for interval in second]
    random.shuffle(rows)
    ranges = make_ranges([interval for interval, _ in rows], threads=[tid for _, tid in rows])
    nesting = nest(ranges)
    assert nesting.parent.tolist() == brute_force_parents(ranges)
    assert not nesting.detached.any()
    durations = (ranges.end_ns - ranges.start_ns).tolist()
    assert tree_self_sums(ranges, nesting) == {
        row: durations[row] for row in range(len(ranges)) if nesting.parent[row] == ROOT
    }
    assert (nesting.self_ns >= 0).all()


@given(push_pop_intervals(), push_pop_intervals())
def test_threads_whose_ranges_nest_are_never_walked(first: list[Interval], second: list[Interval]) -> None:
    """The search serves millions of ranges; the walk, in Python, is for threads where ranges cross, and for no other.

    A third thread has ranges that do, and it alone is walked.
    """
    crossing = [(0, 10), (5, 15)]
    ranges = make_ranges([*first, *second, *crossing], threads=[1] * len(first) + [2] * len(second) + [3, 3])
    walked: list[int] = []

    def counted(start_ns: Int64Array, end_ns: Int64Array, push_pop: BoolArray) -> tuple[Int64Array, BoolArray]:
        walked.append(len(start_ns))
        return _walk(start_ns, end_ns, push_pop)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(nesting_module, "_walk", counted)
        nest(ranges)
    assert walked == [len(crossing)]


@given(push_pop_intervals())
def test_the_search_and_the_walk_agree(rows: list[Interval]) -> None:
    ranges = make_ranges(rows)
    parents, apart = _walk(ranges.start_ns, ranges.end_ns, ranges.push_pop)
    assert parents.tolist() == nest(ranges).parent.tolist()
    assert not apart.any()


@given(st.lists(any_intervals, max_size=3), st.data())
def test_crossing_ranges_are_detached_and_self_times_still_add_up(
    groups: list[list[Interval]], data: st.DataObject
) -> None:
    rows = [(interval, tid) for tid, intervals in enumerate(groups) for interval in intervals]
    count = len(rows)
    kinds = data.draw(st.lists(st.booleans(), min_size=count, max_size=count))
    elsewhere = data.draw(st.lists(st.sampled_from([False, False, False, True]), min_size=count, max_size=count))
    threads = [tid for _, tid in rows]
    ranges = make_ranges(
        [interval for interval, _ in rows],
        threads=threads,
        push_pop=kinds,
        end_threads=[tid + 100 if moved else tid for tid, moved in zip(threads, elsewhere, strict=True)],
    )
    nesting = nest(ranges)
    durations = ranges.end_ns - ranges.start_ns
    inner = nesting.parent != ROOT
    above = nesting.parent[inner]
    assert (ranges.start_ns[above] <= ranges.start_ns[inner]).all()
    assert (ranges.end_ns[above] >= ranges.end_ns[inner]).all()
    assert (ranges.global_tid[above] == ranges.global_tid[inner]).all()
    assert not nesting.detached[above].any()
    assert (nesting.self_ns >= 0).all()
    assert nesting.detached[ranges.end_global_tid != ranges.global_tid].all()
    for root, total in tree_self_sums(ranges, nesting).items():
        assert total == (0 if nesting.detached[root] else durations[root])
    # What stays is laminar, and no larger than need be: whatever was set apart crosses something or ends elsewhere.
    placed = np.flatnonzero(~nesting.detached)
    for i in placed:
        for j in placed:
            if ranges.global_tid[i] == ranges.global_tid[j]:
                assert not ranges.start_ns[i] < ranges.start_ns[j] < ranges.end_ns[i] < ranges.end_ns[j]
    for i in np.flatnonzero(nesting.detached & (ranges.end_global_tid == ranges.global_tid)):
        same = (ranges.global_tid == ranges.global_tid[i]) & (ranges.end_global_tid == ranges.global_tid)
        before = (ranges.start_ns < ranges.start_ns[i]) & (ranges.start_ns[i] < ranges.end_ns)
        after = (ranges.start_ns < ranges.end_ns[i]) & (ranges.end_ns[i] < ranges.end_ns)
        crossed = (before & (ranges.end_ns < ranges.end_ns[i])) | (after & (ranges.start_ns[i] < ranges.start_ns))
        assert (same & crossed).any()


def test_a_start_end_range_gives_way_to_push_pop() -> None:
    ranges = make_ranges([(0, 100), (10, 50), (20, 60), (30, 40)], push_pop=[True, False, True, True])
    nesting = nest(ranges)
    assert nesting.detached.tolist() == [False, True, False, False]
    assert nesting.parent.tolist() == [ROOT, 0, 0, 2]
    assert nesting.self_ns.tolist() == [60, 0, 30, 10]
    assert nesting.depth.tolist() == [0, 1, 1, 2]


def test_paths_join_names_from_the_outermost() -> None:
    ranges = make_ranges([(0, 10), (1, 5), (6, 9), (2, 3), (20, 30), (21, 22)], names=[0, 1, 1, 2, 0, 2])
    path_id, paths = path_table(nest(ranges).parent, ranges.name_id, ["step", "forward", "gemm"])
    assert [paths.text[i] for i in path_id] == [
        "step", "step/forward", "step/forward/gemm", "step/forward", "step", "step/gemm",
    ]  # fmt: skip
    assert len(paths) == 4


@given(push_pop_intervals(), st.data())
def test_a_value_is_inherited_from_the_nearest_range_around(rows: list[Interval], data: st.DataObject) -> None:
    nesting = nest(make_ranges(rows))
    own = data.draw(st.lists(st.integers(-1, 2), min_size=len(rows), max_size=len(rows)))
    expected = []
    for row in range(len(rows)):
        while row != ROOT and own[row] == ROOT:
            row = int(nesting.parent[row])
        expected.append(ROOT if row == ROOT else own[row])
    assert inherited(nesting, np.array(own, dtype=np.int64)).tolist() == expected


@given(push_pop_intervals(), st.data())
def test_paths_come_depth_first_and_siblings_by_their_key(rows: list[Interval], data: st.DataObject) -> None:
    ranges = make_ranges(rows)
    names = data.draw(st.lists(st.integers(0, 2), min_size=len(rows), max_size=len(rows)))
    _, paths = path_table(nest(ranges).parent, np.array(names, dtype=np.int32), ["a", "b", "c"])
    key = np.array(data.draw(st.permutations(range(len(paths)))), dtype=np.int64)

    def below(parent: int) -> list[int]:
        children = sorted((one for one in range(len(paths)) if paths.parent[one] == parent), key=lambda one: key[one])
        return [path for child in children for path in (child, *below(child))]

    assert paths.tree_order(key) == below(ROOT)
    assert paths.depth == [text.count("/") for text in paths.text]


def test_on_a_thread_without_ranges_nothing_is_around() -> None:
    ranges = make_ranges([(0, 10), (2, 4)], threads=[7, 7])
    finder = RangeFinder(ranges, nest(ranges))
    times = np.array([3, 5, 20])
    assert finder.around(7, times).tolist() == [1, 0, ROOT]
    assert finder.around(8, times).tolist() == [ROOT] * 3
    assert finder.around(np.array([8, 7, 8]), times).tolist() == [ROOT, 0, ROOT]


def test_no_ranges() -> None:
    nesting = nest(make_ranges([]))
    assert len(nesting.parent) == 0
    assert len(path_table(nesting.parent, np.empty(0, dtype=np.int32), [])[1]) == 0


@given(push_pop_intervals(), push_pop_intervals(), st.lists(st.tuples(st.integers(1, 3), st.integers(-12, 60))))
def test_innermost_is_the_last_to_begin_of_those_open(
    first: list[Interval], second: list[Interval], asked: list[tuple[int, int]]
) -> None:
    ranges = make_ranges([*first, *second], threads=[1] * len(first) + [2] * len(second))
    rows = list(zip(ranges.start_ns.tolist(), ranges.end_ns.tolist(), ranges.global_tid.tolist(), strict=True))
    expected = [
        max((row for row, (start, end, own) in enumerate(rows) if own == tid and start <= time <= end), default=ROOT)
        for tid, time in asked
    ]
    tids = np.array([tid for tid, _ in asked], dtype=np.int64)
    times = np.array([time for _, time in asked], dtype=np.int64)
    assert innermost(ranges, nest(ranges), tids, times).tolist() == expected
