"""Variance borrowing checked on data with a known prior, and the warning for odd points."""

from __future__ import annotations

import math
import statistics

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import special, stats

from harness.stats.variance_prior import (
    MAX_LENT_DOF,
    Suspicion,
    VariancePrior,
    confirmed,
    estimate_prior,
    instrument_p,
    inverse_trigamma,
    suspicion,
)


@given(st.floats(1e-8, 1e9))
def test_inverse_trigamma_inverts(value: float) -> None:
    assert special.polygamma(1, inverse_trigamma(value)) == pytest.approx(value, rel=1e-5)


@pytest.mark.parametrize("value", [0.0, -1.0, math.nan])
def test_inverse_trigamma_has_no_answer_below_zero(value: float) -> None:
    with pytest.raises(ValueError, match="positive"):
        inverse_trigamma(value)


def known_variances(dof: float, variance: float, pairs: np.ndarray, seed: int) -> np.ndarray:
    """s² of duels on a machine whose true variances are scaled inverse chi-square around `variance`."""
    rng = np.random.default_rng(seed)
    true = dof * variance / rng.chisquare(dof, len(pairs))
    return np.asarray(true * rng.chisquare(pairs - 1) / (pairs - 1))


@pytest.mark.parametrize("pairs", [np.full(20_000, 4), np.tile([4, 6, 8, 10], 5_000)], ids=["equal", "mixed"])
def test_the_prior_is_recovered(pairs: np.ndarray) -> None:
    prior = estimate_prior(known_variances(4.0, 1e-4, pairs, 1).tolist(), pairs.tolist())
    assert prior is not None
    assert prior.dof == pytest.approx(4.0, rel=0.1)
    assert prior.variance == pytest.approx(1e-4, rel=0.05)
    assert prior.duels == 20_000


def test_the_prior_follows_the_formula() -> None:
    variances, pairs = known_variances(3.0, 2e-4, np.full(25, 6), 3), [6] * 25
    e = [math.log(s2) - special.digamma(2.5) + math.log(2.5) for s2 in variances]
    excess = statistics.variance(e) - special.polygamma(1, 2.5)
    prior = estimate_prior(variances.tolist(), pairs)
    assert prior is not None
    assert 0 < prior.dof < MAX_LENT_DOF
    assert special.polygamma(1, prior.dof / 2) == pytest.approx(excess)
    expected = statistics.fmean(e) + special.digamma(prior.dof / 2) - math.log(prior.dof / 2)
    assert math.log(prior.variance) == pytest.approx(expected)


def test_a_steady_machine_lends_no_more_than_the_cap() -> None:
    prior = estimate_prior([1e-4 * (1 + 0.001 * i) for i in range(20)], [4] * 20)
    assert prior is not None
    assert prior.dof == MAX_LENT_DOF


def test_too_few_usable_duels_lend_nothing() -> None:
    assert estimate_prior([1e-4] * 19, [4] * 19) is None
    assert estimate_prior([1e-4] * 19 + [0.0, math.nan, 1e-4], [4] * 21 + [1]) is None


@given(st.floats(1e-8, 1), st.floats(1e-8, 1), st.floats(0.5, 6), st.integers(2, 20))
def test_history_never_makes_the_observed_noise_smaller(observed: float, lent: float, dof: float, pairs: int) -> None:
    variance, pooled_dof = VariancePrior(dof=dof, variance=lent, duels=20).pooled(observed, pairs)
    assert variance >= observed
    assert pooled_dof == dof + pairs - 1


def test_suspicious_means_above_the_prediction_bound() -> None:
    earlier = [100.0, 102.0, 98.0, 101.0, 99.0, 100.5, 99.5, 101.5, 98.5, 100.0]
    spread = statistics.stdev(earlier)
    bound = statistics.fmean(earlier) + stats.t.ppf(0.99, 9) * spread * math.sqrt(1.1)
    assert suspicion(bound - 1e-6, earlier) is Suspicion.USUAL
    assert suspicion(bound + 1e-6, earlier) is Suspicion.SUSPICIOUS
    assert suspicion(50.0, earlier) is Suspicion.USUAL
    assert confirmed(bound + 1, bound + 1, earlier) is Suspicion.SUSPICIOUS
    assert confirmed(bound + 1, bound - 1, earlier) is Suspicion.USUAL


def test_one_new_point_in_a_hundred_is_called_suspicious_by_chance() -> None:
    rng = np.random.default_rng(5)
    points = rng.normal(100, 1, (4000, 13))
    alarms = sum(suspicion(row[-1], row[:-1].tolist()) is Suspicion.SUSPICIOUS for row in points)
    assert 0.005 < alarms / 4000 < 0.016


@pytest.mark.parametrize(
    ("value", "earlier"),
    [(1.0, [1.0] * 9), (2.0, [1.0] * 12), (math.nan, [1.0, 2.0] * 6), (1.0, [1.0, math.nan] * 6)],
)
def test_what_cannot_be_said_is_not_called_usual(value: float, earlier: list[float]) -> None:
    assert suspicion(value, earlier) is Suspicion.UNKNOWN
    assert confirmed(value, value, earlier) is Suspicion.UNKNOWN


@given(st.integers(0, 60), st.integers(0, 60), st.floats(0.001, 0.2))
def test_instrument_p_agrees_with_scipy(alarms: int, more: int, rate: float) -> None:
    duels = alarms + more
    expected = stats.binomtest(alarms, duels, rate, alternative="greater").pvalue if duels else 1.0
    assert instrument_p(alarms, duels, rate) == pytest.approx(expected, rel=1e-6, abs=1e-300)


def test_more_alarms_than_duels_is_a_mistake() -> None:
    with pytest.raises(ValueError, match="alarms"):
        instrument_p(3, 2, 0.02)
