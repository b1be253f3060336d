"""Noise components recovered from simulated launches, and n* checked as the minimum it claims to be."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import signal

from harness.stats.noise import Noise, estimate_noise
from harness.stats.paired import StepPairs


def launches(noise: Noise, pairs: int, steps: int, seed: int) -> list[StepPairs]:
    rng = np.random.default_rng(seed)
    rho = noise.autocorrelation
    shocks = rng.normal(0, noise.within * math.sqrt(1 - rho**2), (pairs, steps + 50))
    x = signal.lfilter([1.0], [1.0, -rho], shocks, axis=1)[:, 50:] + rng.normal(0, noise.between, (pairs, 1))
    base = 1e8 * np.exp(np.random.default_rng(seed + 1).normal(0, 0.1, (pairs, steps, 1)))  # what both sides share
    # Each side has a second rank, whose steps take some part of the first one's: the slower one counts.
    faster = np.random.default_rng(seed + 2).uniform(0.3, 0.9, (2, pairs, steps, 1))
    return [
        StepPairs(
            base_ns=np.hstack([base[at], base[at] * faster[0, at]]),
            head_ns=np.exp(x[at, :, None]) * np.hstack([base[at], base[at] * faster[1, at]]),
        )
        for at in range(pairs)
    ]


def test_the_components_are_recovered() -> None:
    noise = Noise(within=0.02, between=0.006, autocorrelation=0.5)
    found = estimate_noise(launches(noise, 400, 200, 1))
    assert found is not None
    assert found.within == pytest.approx(0.02, rel=0.05)
    assert found.between == pytest.approx(0.006, rel=0.1)
    assert found.autocorrelation == pytest.approx(0.5, abs=0.05)


def test_no_launch_luck_means_as_many_steps_as_allowed() -> None:
    steps = launches(Noise(within=0.02, between=0.0, autocorrelation=0.0), 2, 30, 3)
    alike = [steps[0], StepPairs(base_ns=steps[0].base_ns, head_ns=steps[0].head_ns[::-1])]
    found = estimate_noise(alike)
    assert found is not None
    assert found.between == 0
    assert found.best_steps(10.0, 0.2, at_most=150) == 150


def test_a_drift_through_the_launch_cannot_claim_endless_memory() -> None:
    ramp = 1e8 * np.exp(np.linspace(0, 1, 500))[:, None]
    found = estimate_noise([StepPairs(base_ns=np.full((500, 1), 1e8), head_ns=ramp)] * 2)
    assert found is not None
    assert found.autocorrelation == 0.95


def test_constant_steps_have_no_noise() -> None:
    flat = np.full((5, 1), 1e8)
    found = estimate_noise([StepPairs(base_ns=flat, head_ns=flat)] * 3)
    assert found == Noise(within=0.0, between=0.0, autocorrelation=0.0)


def test_too_little_says_nothing() -> None:
    flat = np.full((5, 1), 1e8)
    assert estimate_noise([StepPairs(base_ns=flat, head_ns=flat)]) is None
    assert estimate_noise([StepPairs(base_ns=flat[:2], head_ns=flat[:2])] * 3) is None


def test_best_steps_spend_a_budget_best() -> None:
    noise, start, step = Noise(within=0.02, between=0.006, autocorrelation=0.5), 8.0, 0.25
    best = noise.best_steps(start, step, at_least=1)

    def variance_for_budget(steps: int) -> float:
        """Variance of the mean over as many launch pairs as 1000 s pay for."""
        return noise.spread(steps) ** 2 / (1000.0 / (start + step * steps))

    assert best == min(range(1, 400), key=variance_for_budget)
    assert noise.best_steps(0.0, 0.25) == 5
    with pytest.raises(ValueError, match="costs"):
        noise.best_steps(1.0, 0.0)


def test_two_launch_pairs_of_three_steps_say_something() -> None:
    steps = launches(Noise(within=0.02, between=0.01, autocorrelation=0.0), 2, 3, 3)
    assert estimate_noise(steps) is not None
    assert estimate_noise([steps[0], StepPairs(base_ns=steps[1].base_ns[:2], head_ns=steps[1].head_ns[:2])]) is None
