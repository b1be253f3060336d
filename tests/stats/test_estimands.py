"""The three figures of a launch pair against plain Python, and what the cap keeps and cuts."""

from __future__ import annotations

import math
import statistics

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from harness.stats.estimands import cap_steps, pair_differences
from harness.stats.paired import FloatArray, Problem, StepPairs, UnusableError

durations = st.integers(1_000, 10**12)
tables = hnp.arrays(np.float64, st.tuples(st.integers(2, 7), st.integers(1, 12)), elements=st.floats(1.0, 1e9))


def pair(base: object, head: object) -> StepPairs:
    return StepPairs(base_ns=np.asarray(base), head_ns=np.asarray(head))


@given(st.lists(st.tuples(*[durations] * 4), min_size=1, max_size=40))
def test_one_launch_pair_is_taken_as_it_is(rows: list[tuple[int, int, int, int]]) -> None:
    base, head = [row[:2] for row in rows], [row[2:] for row in rows]
    (found,) = pair_differences([pair(base, head)])
    slowest = [(max(b), max(h)) for b, h in zip(base, head, strict=True)]
    ratios = [math.log(h / b) for b, h in slowest]
    assert found.typical == pytest.approx(statistics.median(ratios), abs=1e-12)
    assert found.total == pytest.approx(math.log(sum(h for _, h in slowest) / sum(b for b, _ in slowest)), abs=1e-9)
    assert found.uncapped == pytest.approx(found.total, abs=1e-9)
    assert found.base_typical_ns == statistics.median(b for b, _ in slowest)
    assert found.base_ns == pytest.approx(statistics.fmean(b for b, _ in slowest))
    assert found.steps == len(rows)


def plainly_capped(table: FloatArray) -> list[list[float]]:
    """The module's text, step by step in plain Python."""
    rows = [list(map(float, row)) for row in table]
    medians = [statistics.median(row) for row in rows]
    relative = [[value / median for value in row] for row, median in zip(rows, medians, strict=True)]
    scatter = 1.4826 * statistics.median(abs(value - 1) for row in relative for value in row)
    rank = max(2, math.ceil(len(rows) / 3))
    limits = [max(sorted(column, reverse=True)[rank - 1], 1 + 3 * scatter) for column in zip(*relative, strict=True)]
    return [
        [median * min(value, limit) for value, limit in zip(row, limits, strict=True)]
        for row, median in zip(relative, medians, strict=True)
    ]


@given(tables)
def test_the_cap_is_what_the_text_says(table: FloatArray) -> None:
    found = cap_steps(table)
    assert found.capped_ns == pytest.approx(np.array(plainly_capped(table)), rel=1e-9)
    assert (found.capped_ns <= table * (1 + 1e-12)).all()
    assert (found.capped_ns[~found.cut] == table[~found.cut]).all()


@given(tables, st.floats(0.01, 100))
def test_the_unit_of_time_changes_nothing(table: FloatArray, factor: float) -> None:
    assert cap_steps(table * factor).capped_ns == pytest.approx(cap_steps(table).capped_ns * factor, rel=1e-6)


@given(tables, st.integers(0, 99))
def test_exchanging_the_sides_changes_the_signs(table: FloatArray, seed: int) -> None:
    other = table * np.random.default_rng(seed).uniform(0.5, 2, table.shape)
    ahead = pair_differences([pair(b[:, None], h[:, None]) for b, h in zip(table, other, strict=True)])
    back = pair_differences([pair(h[:, None], b[:, None]) for b, h in zip(table, other, strict=True)])
    for one, two in zip(ahead, back, strict=True):
        assert (one.total, one.typical, one.uncapped) == pytest.approx((-two.total, -two.typical, -two.uncapped))
        assert (one.base_cut_steps, one.head_cut_steps) == (two.head_cut_steps, two.base_cut_steps)


def noisy(launches: int, steps: int, seed: int = 0) -> FloatArray:
    chance = np.random.default_rng(seed)
    table: FloatArray = 1e8 * np.exp(chance.normal(0, 0.01, (launches, 1)) + chance.normal(0, 0.02, (launches, steps)))
    return table


def totals(base: FloatArray, head: FloatArray) -> float:
    found = pair_differences([pair(b[:, None], h[:, None]) for b, h in zip(base, head, strict=True)])
    return statistics.fmean(one.total for one in found)


@settings(max_examples=50)
@given(launches=st.integers(3, 10), at=st.integers(0, 39), size=st.floats(0.5, 50), who=st.integers(0, 9))
def test_a_hiccup_of_one_launch_is_cut(launches: int, at: int, size: float, who: int) -> None:
    assume(who < launches)
    base, head = noisy(launches, 40, 1), noisy(launches, 40, 2)
    calm = totals(base, head)
    head[who, at] *= 1 + size
    assert totals(base, head) == pytest.approx(calm, abs=0.003)
    assert cap_steps(head).cut[who, at]


@settings(max_examples=50)
@given(launches=st.integers(3, 10), every=st.integers(2, 13), size=st.floats(0.5, 20))
def test_what_comes_back_in_every_launch_is_kept(launches: int, every: int, size: float) -> None:
    base, head = noisy(launches, 39, 3), noisy(launches, 39, 4)
    calm = totals(base, head)
    head[:, ::every] *= 1 + size
    share = len(range(0, 39, every)) / 39
    assert totals(base, head) - calm == pytest.approx(math.log1p(share * size), abs=0.02)


def test_the_luck_of_a_whole_launch_is_no_hiccup() -> None:
    """A launch that is slow in every step is evidence of scatter: cutting it would tie the launch pairs together."""
    head = noisy(3, 40)
    head[1] *= 1.2
    assert cap_steps(head).cut.mean() < 0.1
    assert totals(noisy(3, 40, 7), head) - totals(noisy(3, 40, 7), noisy(3, 40)) == pytest.approx(
        math.log(1.2) / 3, abs=0.002
    )


def test_launches_of_unequal_length_are_compared_where_both_were() -> None:
    long, short = noisy(1, 12, 5)[0], noisy(1, 8, 6)[0]
    found = pair_differences([pair(long[:, None], long[:, None]), pair(short[:, None], short[:, None])])
    assert [one.steps for one in found] == [12, 8]
    assert [one.total for one in found] == [0.0, 0.0]


@pytest.mark.parametrize(
    ("base", "head", "problem"),
    [
        (np.empty((0, 2)), np.ones((3, 2)), Problem.NO_STEPS),
        (np.ones((3, 2)), np.ones((3, 0)), Problem.NO_STEPS),
        (np.ones((3, 1)), np.ones((4, 1)), Problem.UNEQUAL_STEPS),
        (np.ones((3, 1)), np.ones((3, 2)), Problem.UNEQUAL_RANKS),
        ([[1.0, math.nan]], [[1.0, 1.0]], Problem.NOT_A_TIME),
        ([[1.0, 1.0]], [[math.inf, 1.0]], Problem.NOT_A_TIME),
        ([[5, 0]], [[5, 5]], Problem.NOT_A_TIME),
        ([[5, 5]], [[5, -1]], Problem.NOT_A_TIME),
    ],
)
def test_times_that_cannot_be_judged_say_why(base: object, head: object, problem: Problem) -> None:
    with pytest.raises(UnusableError, match="launch pair 2: ") as caught:
        pair_differences([pair([[1]], [[2]]), pair(base, head)])
    assert caught.value.problem is problem


def test_step_times_without_a_rank_axis_are_a_mistake_of_the_caller() -> None:
    with pytest.raises(ValueError, match=r"expected \(steps, ranks\)"):
        pair_differences([pair([1.0, 2.0], [1.0, 2.0])])


def test_no_launch_pair_says_nothing() -> None:
    assert pair_differences([]) == []
