"""Slopes against scipy's, and against what was put in."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from scipy import stats

from harness.stats.trend import slope


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
