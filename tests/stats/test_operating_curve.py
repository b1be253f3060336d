"""The curve against an independent simulation of the same rule, and the gate's promise."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import stats

from harness.stats.operating_curve import operating_curve
from harness.stats.rule import Rule


def test_one_look_has_the_power_of_a_t_test() -> None:
    """With one look, no smallest effect and no margin in reach, only significance of an endpoint is left."""
    rule = Rule(looks=(6,), min_effect=0.0, margin=1e-9, alpha=0.05)
    (point,) = operating_curve(rule, 0.01, [0.012], np.random.default_rng(0), duels=2000)
    # All three endpoints are the same number here: the total, tested at the largest level, decides.
    shift = math.log1p(0.012) * math.sqrt(6) / 0.01
    power = float(stats.nct.sf(stats.t.ppf(1 - rule.level(6), 5), 5, shift))
    assert point.slower == pytest.approx(power, abs=3 * math.sqrt(power * (1 - power) / 2000))
    assert point.slower + point.same + point.undecided + point.faster == pytest.approx(1)


def test_it_rises_with_the_effect_and_falls_with_the_scatter() -> None:
    rule = Rule()
    calm = operating_curve(rule, 0.005, [0.0, 0.01, 0.02, 0.05], np.random.default_rng(1), duels=300)
    loud = operating_curve(rule, 0.02, [0.0, 0.01, 0.02, 0.05], np.random.default_rng(1), duels=300)
    assert list(np.diff([point.slower for point in calm]) >= 0) == [True] * 3
    assert all(a.slower >= b.slower for a, b in zip(calm[2:], loud[2:], strict=True))
    assert all(a.mean_pairs <= b.mean_pairs for a, b in zip(calm, loud, strict=True))


def test_the_same_seed_gives_the_same_curve() -> None:
    curves = [operating_curve(Rule(), 0.01, [0.01], np.random.default_rng(2), duels=50) for _ in range(2)]
    assert curves[0] == curves[1]
