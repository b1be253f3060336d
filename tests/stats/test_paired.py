"""d of a launch pair, and t intervals, against plain Python and scipy.stats."""

from __future__ import annotations

import math
import statistics

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from scipy import stats

from harness.stats.paired import (
    Problem,
    StepPairs,
    UnusableError,
    mean_interval,
    pair_difference,
    sample_variance,
    t_quantile,
    t_upper_tail,
)

durations = st.integers(1_000, 10**12)


def pair(base: object, head: object) -> StepPairs:
    return StepPairs(base_ns=np.asarray(base), head_ns=np.asarray(head))


@given(st.lists(st.tuples(*[durations] * 4), min_size=1, max_size=40))
def test_d_is_the_median_log_ratio_of_the_slowest_ranks(rows: list[tuple[int, int, int, int]]) -> None:
    base, head = [row[:2] for row in rows], [row[2:] for row in rows]
    difference = pair_difference(pair(base, head))
    expected = statistics.median(math.log(max(h) / max(b)) for b, h in zip(base, head, strict=True))
    assert difference.log_ratio == pytest.approx(expected, abs=1e-12)
    assert difference.base_ns == statistics.median(max(row) for row in base)
    assert difference.head_ns == statistics.median(max(row) for row in head)
    assert difference.steps == len(rows)
    swapped = pair_difference(pair(head, base))
    assert swapped.log_ratio == pytest.approx(-difference.log_ratio, abs=1e-12)


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
    with pytest.raises(UnusableError) as caught:
        pair_difference(pair(base, head))
    assert caught.value.problem is problem


def test_step_times_without_a_rank_axis_are_a_mistake_of_the_caller() -> None:
    with pytest.raises(ValueError, match=r"expected \(steps, ranks\)"):
        pair_difference(pair([1.0, 2.0], [1.0, 2.0]))


@given(st.floats(0.5, 300), st.floats(0.0001, 0.9999))
def test_t_agrees_with_scipy(dof: float, probability: float) -> None:
    quantile = t_quantile(probability, dof)
    assert quantile == pytest.approx(stats.t.ppf(probability, dof), rel=1e-6, abs=1e-9)
    assert t_upper_tail(quantile, dof) == pytest.approx(1 - probability, rel=1e-6)


def test_a_single_value_has_no_variance() -> None:
    assert math.isnan(sample_variance([3.0]))
    assert sample_variance([1.0, 2.0, 6.0]) == pytest.approx(statistics.variance([1, 2, 6]))


@given(
    hnp.arrays(np.float64, st.tuples(st.integers(3, 10), st.just(2)), elements=st.floats(-1e3, 1e3)),
    st.floats(0.5, 0.999),
)
def test_mean_interval_agrees_with_scipy(values: np.ndarray, confidence: float) -> None:
    low, high, p = mean_interval(values, confidence)
    for column in range(2):
        sample = values[:, column]
        if np.std(sample) < 1e-6:
            continue  # spread below rounding: the next test
        expected = stats.ttest_1samp(sample, 0.0)
        interval = expected.confidence_interval(confidence)
        assert low[column] == pytest.approx(interval.low, rel=1e-6, abs=1e-6)
        assert high[column] == pytest.approx(interval.high, rel=1e-6, abs=1e-6)
        assert p[column] == pytest.approx(expected.pvalue, rel=1e-6)


@pytest.mark.parametrize("values", [[[5.0]], [[0.1], [0.1], [0.1]], [[0.0], [0.0]], [[1e9 / 3]] * 7])
def test_no_spread_is_no_evidence(values: list[list[float]]) -> None:
    assert all(np.isnan(result).all() for result in mean_interval(np.array(values), 0.95))
