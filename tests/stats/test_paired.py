"""t intervals and tails against scipy.stats, variance against plain Python."""

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
    mean_interval,
    sample_variance,
    t_quantile,
    t_upper_tail,
)


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
