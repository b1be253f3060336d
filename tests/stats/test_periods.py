"""Periods against data that has them, and data that has none."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.stats import norm

from harness.stats.paired import FloatArray
from harness.stats.periods import _profile, find_period, longest_period

STEP_NS = 100e6


def launches(chance: np.random.Generator, count: int, steps: int, *, hiccups: float = 0.02) -> list[FloatArray]:
    """Steps that scatter by 2 %, launches by 1 %, and rare hiccups of up to several steps."""
    times = STEP_NS * np.exp(chance.normal(0, 0.01, (count, 1)) + chance.normal(0, 0.02, (count, steps)))
    times += (chance.random((count, steps)) < hiccups) * chance.exponential(3 * STEP_NS, (count, steps))
    return list(times)


@pytest.mark.parametrize("extra", [0.3, 1.0, 5.0])
@pytest.mark.parametrize("every", [2, 3, 5, 8, 13, 20])
def test_what_head_pays_every_nth_step_is_found(every: int, extra: float) -> None:
    """In 98 of 100 draws at least: hiccups of three launches of five at one step hide what it pays, rarely."""
    named = 0
    for seed in range(100):
        chance, steps, phase = np.random.default_rng(seed), 3 * every + 8, seed % every
        base, head = launches(chance, 5, steps), launches(chance, 5, steps)
        for one in head:
            one[phase::every] += extra * STEP_NS
        found = find_period(base, head)
        if found is not None and (found.every, found.first) == (every, phase):
            named += 1
            assert found.extra_ns == pytest.approx(extra * STEP_NS, rel=0.25)
    assert named >= 98


@pytest.mark.parametrize("count", [3, 10])
@pytest.mark.parametrize("steps", [6, 20, 60])
def test_the_machine_s_hiccups_are_no_period(steps: int, count: int) -> None:
    chance = np.random.default_rng(steps * count)
    found = [find_period(launches(chance, count, steps), launches(chance, count, steps)) for _ in range(300)]
    assert sum(one is not None for one in found) <= 1


def test_what_both_sides_pay_is_no_difference() -> None:
    chance = np.random.default_rng(1)
    base, head = launches(chance, 5, 40), launches(chance, 5, 40)
    for one in (*base, *head):
        one[3::8] += 2 * STEP_NS
    assert find_period(base, head) is None


def test_slow_steps_at_no_fixed_distance_are_no_period() -> None:
    chance = np.random.default_rng(2)
    base, head = launches(chance, 5, 40), launches(chance, 5, 40)
    for one in head:
        one[[2, 5, 17, 30, 31]] += 2 * STEP_NS
    assert find_period(base, head) is None


@pytest.mark.parametrize(("spreads", "found"), [(4.8, False), (5.6, True)])
def test_a_step_stands_out_by_how_steps_of_its_side_differ_anyway(spreads: float, found: bool) -> None:
    """Every launch of head shows the same 60 steps, at quantiles of a normal distribution, and 20 dearer ones between.

    The quarter of all steps below which ordinary ones are read is a third of the 60: 0.43 standard deviations below
    their mean. The twentieth is 1.50 below, so they are taken to scatter by 1.07 / 0.97, and five of that is 5.5: a
    step stands out from 5.1 on.
    """
    ordinary = norm.ppf((np.random.default_rng(3).permutation(60) + 0.5) / 60)
    profile = np.full(80, spreads)
    profile[np.arange(80) % 4 != 1] = ordinary
    period = find_period([np.full(80, STEP_NS)] * 3, [STEP_NS * (1 + 0.05 * profile)] * 3)
    assert (period is not None) == found
    if period is not None:
        assert (period.every, period.first) == (4, 1)


def test_the_scatter_of_a_profile_is_what_its_steps_scatter_by() -> None:
    chance = np.random.default_rng(4)
    profile, scatter = _profile(launches(chance, 49, 400, hiccups=0), 400)
    assert scatter == pytest.approx(float(np.std(profile)), rel=0.1)
    assert scatter == pytest.approx(0.02 * np.sqrt(np.pi / 2 / 49), rel=0.1)


@pytest.mark.parametrize(("steps", "longest"), [(4, 1), (30, 10), (31, 10), (150, 50)])
def test_a_period_is_seen_three_times_at_least(steps: int, longest: int) -> None:
    assert longest_period(steps) == longest
