"""Slopes against scipy's, and against what was put in."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from scipy import stats

from harness.stats.trend import confidence_of, slope, slope_interval, slope_variance


@given(hnp.arrays(np.float64, st.integers(2, 40), elements=st.floats(-1e6, 1e6)))
def test_the_slope_is_that_of_theil_and_sen(values: np.ndarray) -> None:
    assert slope(values) == pytest.approx(stats.theilslopes(values).slope, rel=1e-9, abs=1e-9)


def test_steps_that_were_not_measured_are_counted() -> None:
    at = [step for step in range(40) if step % 5]
    assert slope(3.0 * np.array(at), at) == pytest.approx(3.0)
    assert slope(3.0 * np.array(at)) > 3.5


@given(st.floats(-5, 5), st.floats(0, 100))
def test_a_jump_is_no_trend(per_step: float, jump: float) -> None:
    values = per_step * np.arange(30.0)
    values[28:] += jump
    assert slope(values) == pytest.approx(per_step, abs=abs(jump) * 0.01 + 1e-9)


def test_a_leak_is_seen_in_the_noise_of_a_resident_set() -> None:
    chance = np.random.default_rng(0)
    clean = [slope(1e9 + chance.normal(0, 2e5, 30)) for _ in range(5)]
    leaking = [slope(1e9 + 0.3e6 * np.arange(30) + chance.normal(0, 2e5, 30)) for _ in range(5)]
    assert min(leaking) > 10 * max(map(abs, clean))
    assert np.mean(leaking) == pytest.approx(0.3e6, rel=0.05)


def test_one_step_says_nothing() -> None:
    assert math.isnan(slope(np.array([1.0])))


def test_a_slope_is_as_uncertain_as_the_scatter_around_it() -> None:
    chance, at = np.random.default_rng(1), range(30)
    launches = [0.5 * np.arange(30) + chance.normal(0, 3.0, 30) for _ in range(400)]
    slopes = [slope(values, at) for values in launches]
    expected = float(np.mean([slope_variance(values, at) for values in launches]))
    assert expected == pytest.approx(np.var(slopes), rel=0.5)
    assert math.isnan(slope_variance(np.arange(5.0), range(5)))


def test_lent_scatter_makes_few_launches_certain_and_none_less_noisy() -> None:
    slopes, within = np.array([1.0, 1.1, 0.9]), np.full(3, 0.01)
    alone, lent = slope_interval(slopes, 0.99), slope_interval(slopes, 0.99, within)
    assert alone[0] < lent[0] < 1 < lent[1] < alone[1]
    quiet = slope_interval(slopes, 0.99, np.full(3, 1e-6))
    assert quiet == pytest.approx(lent), "what was seen between launches stays"
    assert slope_interval(np.full(3, 2.0), 0.99) == (2.0, 2.0)


def test_trends_share_the_false_ones() -> None:
    assert confidence_of(1) == pytest.approx(0.99)
    assert confidence_of(5) == pytest.approx(1 - 0.01 / 5)
