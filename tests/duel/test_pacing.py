"""How long a duel warms up and measures, what it says it will see, what memory lends; without any launch."""

from __future__ import annotations

import math
import sqlite3
import statistics
from pathlib import Path

import numpy as np
import pytest
from scipy import stats
from stored_duels import ENVIRONMENT, DuelSpec, comparison_of

import harness
from harness.duel.pacing import (
    FIRST_LOOK_S,
    MAX_STEPS,
    MIN_STEPS,
    TYPICAL_NOISE,
    PooledPrior,
    first_look_s,
    forecast,
    least_steps,
    measured_steps,
    steps_in_time,
    warmed_up,
    warmup_noise,
)
from harness.duel.pooled_prior import SameCodeDuel, pooled_prior, same_code_duels
from harness.stats.noise import Noise
from harness.stats.paired import StepPairs
from harness.stats.rule import Rule
from harness.stats.variance_prior import VariancePrior
from harness.store import Duels, Store


def test_warm_up_ends_by_steps_or_time_but_not_before_the_scenario_says() -> None:
    assert not warmed_up(0, 100.0, 0)
    assert not warmed_up(4, 0.1, 2)
    assert warmed_up(5, 0.1, 2)
    assert warmed_up(2, 4.0, 2)
    assert not warmed_up(2, 3.9, 2)
    assert warmed_up(1, 4.0, 0)
    assert warmed_up(8, 0.1, 8)
    assert not warmed_up(5, 100.0, 8)


def test_short_steps_get_the_best_number_and_long_ones_the_least() -> None:
    # n* = √(6 / 0.05 · 0.02² · 3) / 0.006
    assert measured_steps(6.0, 0.05, TYPICAL_NOISE, 3, 5) == round(math.sqrt(6 / 0.05 * 0.02**2 * 3) / 0.006)
    assert measured_steps(6.0, 0.001, TYPICAL_NOISE, 3, 5) == MAX_STEPS
    assert measured_steps(10.0, 20.0, TYPICAL_NOISE, 3, 2) == MIN_STEPS
    assert measured_steps(60.0, 7.0, TYPICAL_NOISE, 3, 2) == 60 // 7  # a slow start is worth as much measuring


def test_a_noisy_warm_up_asks_for_more_steps() -> None:
    noisy = warmup_noise([(100, 500), (100, 110), (100, 90), (100, 115), (100, 88)])
    assert noisy.within == pytest.approx(0.13, abs=0.02)
    assert measured_steps(6.0, 0.05, noisy, 3, 5) > 2 * measured_steps(6.0, 0.05, TYPICAL_NOISE, 3, 5)
    assert warmup_noise([(100, 500), (100, 110)]) == TYPICAL_NOISE  # too few to tell
    assert warmup_noise([(100, 500), (100, 110), (100, 90)]) == TYPICAL_NOISE
    # A machine that slows down for both sides alike scatters no more for it.
    slowing = [(100, 500), (100, 110), (200, 210), (400, 380), (900, 900)]
    scatter = [math.log(ratio) for ratio in (1.1, 1.05, 0.95, 1.0)]
    assert warmup_noise(slowing).within == pytest.approx(statistics.stdev(scatter))


@pytest.mark.parametrize("step_pair_s", [0.01, 0.1, 0.3, 1.0])
def test_the_first_look_comes_in_time(step_pair_s: float) -> None:
    steps = measured_steps(4.0, step_pair_s, Noise(within=0.5, between=0.0001, autocorrelation=0.9), 3, 5)
    assert steps == MAX_STEPS or FIRST_LOOK_S - 3 * step_pair_s <= 3 * (4.0 + (5 + steps) * step_pair_s) <= FIRST_LOOK_S


def test_sight_prefers_history_to_the_warm_up() -> None:
    noisy = [(100, 100), (100, 150), (100, 60), (100, 140)]
    known = PooledPrior(spread=0.002, duels=3)
    assert forecast(Rule(), 30, known, noisy).first_look < forecast(Rule(), 30, PooledPrior(), noisy).first_look / 10
    lent = PooledPrior(spread=0.002, duels=20, prior=VariancePrior(dof=6, variance=4e-6, duels=20))
    assert forecast(Rule(), 30, lent, noisy).first_look < forecast(Rule(), 30, known, noisy).first_look
    assert "20 same-code duels" in forecast(Rule(), 30, lent, noisy).source


def test_sight_without_history_takes_the_scatter_of_the_warm_up_without_its_first_step() -> None:
    quiet = [(100_000, 300_000), (100_000, 100_100), (100_000, 99_950), (100_000, 100_020)]
    typical = forecast(Rule(), 30, PooledPrior(), [])
    assert forecast(Rule(), 30, PooledPrior(), quiet).first_look < typical.first_look
    assert typical.last_look < typical.first_look
    # More steps average the scatter out, launch luck stays.
    many = forecast(Rule(), 3000, PooledPrior(), [])
    assert many.first_look < typical.first_look
    assert TYPICAL_NOISE.between < math.log1p(many.first_look)


def test_the_forecast_is_detected_four_times_in_five_with_the_variance_that_is_lent() -> None:
    rule, spread = Rule(), 0.02
    lent = PooledPrior(spread=spread, duels=20, prior=VariancePrior(dof=6, variance=spread**2, duels=20))
    seen = forecast(rule, 30, lent, [])
    for effect, pairs in ((seen.first_look, rule.looks[0]), (seen.last_look, rule.looks[-1])):
        dof = 6 + pairs - 1
        critical = stats.t.ppf(1 - rule.level(pairs), dof)
        assert stats.nct.sf(critical, dof, math.log1p(effect) / (spread / math.sqrt(pairs))) == pytest.approx(0.8)


def test_a_floor_in_milliseconds_is_forecast_for_the_typical_step_of_the_warm_up() -> None:
    warmup = [(900_000_000, 1), (100_000_000, 1), (100_000_000, 1)]
    seen = forecast(Rule(min_abs_ns=5e6), 30, PooledPrior(spread=1e-6), warmup)
    assert (seen.first_look, seen.last_look) == pytest.approx((0.05, 0.05), abs=1e-5)
    assert forecast(Rule(min_abs_ns=5e6), 30, PooledPrior(spread=1e-6), []).first_look == pytest.approx(0.01, abs=1e-5)


def test_launches_in_turn_are_said_to_see_less() -> None:
    seen = forecast(Rule(), 30, PooledPrior(), [], in_turn=False)
    assert seen.first_look > 2 * forecast(Rule(), 30, PooledPrior(), []).first_look
    assert "launches in turn scatter" in seen.source


def test_the_forecast_from_a_warm_up_is_what_duels_then_find() -> None:
    """Four step pairs tell a scatter roughly: what is forecast is found by three to all of four, in nine of ten."""
    rule, steps = Rule(), 150
    noise = Noise(within=0.08, between=0.006, autocorrelation=0.5)
    rng, found = np.random.default_rng(1), []
    error, dof = noise.spread(steps) / math.sqrt(rule.looks[-1]), rule.looks[-1] - 1
    critical = stats.t.ppf(1 - rule.level(rule.looks[-1]), dof)
    for _ in range(200):
        x = [float(rng.normal(0, noise.within))]
        for _ in range(4):
            x.append(0.5 * x[-1] + float(rng.normal(0, noise.within * math.sqrt(1 - 0.5**2))))
        seen = forecast(rule, steps, PooledPrior(), [(10**8, round(10**8 * math.exp(each))) for each in x])
        found.append(float(stats.nct.sf(critical, dof, math.log1p(seen.last_look) / error)))
    assert 0.5 < statistics.median(found) < 0.9
    assert statistics.quantiles(found, n=10)[0] > 0.1


def test_the_forecast_says_where_it_is_from() -> None:
    five = [(100, 100), (100, 101), (100, 99), (100, 100), (100, 102)]
    assert forecast(Rule(), 30, PooledPrior(), five).source.startswith("4 step pairs of the warm-up, so roughly; ")
    assert forecast(Rule(), 30, PooledPrior(), five[:3]).source.startswith("what small machines showed; ")


def test_pairs_needed_would_see_the_margin() -> None:
    from harness.stats.power import detectable_effect

    known = PooledPrior(spread=0.02, duels=3)
    needed = forecast(Rule(), 30, known, []).pairs_needed
    assert needed is not None
    assert detectable_effect(0.02, needed, Rule()) <= math.log1p(Rule().margin)
    assert detectable_effect(0.02, needed - 1, Rule()) > math.log1p(Rule().margin)


def same_code(steps: int, *log_ratios: float) -> SameCodeDuel:
    base = np.full((steps, 1), 1e8)
    return SameCodeDuel(
        steps=steps, pairs=tuple(StepPairs(base_ns=base, head_ns=base * math.exp(ratio)) for ratio in log_ratios)
    )


def test_duels_of_up_to_half_more_steps_lend_their_scatter() -> None:
    found = [same_code(10, -0.01, 0.01), same_code(15, -0.02, 0.0, 0.02), same_code(16, -0.5, 0.5)]
    lent = pooled_prior(found, steps=10)
    assert (lent.duels, lent.steps) == (2, 10)
    # Sums of squares 2e-4 and 8e-4, on 1 and 2 degrees of freedom.
    assert lent.spread == pytest.approx(math.sqrt(1e-3 / 3))
    assert pooled_prior(found).duels == 3
    assert pooled_prior(found[2:], steps=10) == PooledPrior()


def test_launch_pairs_that_cannot_be_judged_are_not_lent(tmp_path: Path) -> None:
    spec = DuelSpec(pairs=3, steps=4, ranks=1, changes={}, base_only=(), traced=False)
    comparison_of(tmp_path, spec)
    path = tmp_path / "results.db"

    def lent() -> list[int]:
        with Store(path) as store:
            duels = Duels(store)
            found = same_code_duels(duels, "0123456789abcdef", ENVIRONMENT.machine, "none", pinned=False)
            return [len(duel.pairs) for duel in found]

    def change(statement: str) -> None:
        with sqlite3.connect(path) as connection:
            assert connection.execute(statement).rowcount
        connection.close()

    change(f"update duels set kind = 'aa', pinned = 0, harness_version = '{harness.__version__}'")
    assert lent() == [3]
    change("update duel_steps set duration_ns = 0 where pair = 2 and sequence = 5 and side = 'head'")
    assert lent() == [2]
    change("update duel_steps set duration_ns = 0 where pair = 3 and sequence = 5 and side = 'base'")
    assert lent() == [], "one launch pair does not scatter"


def test_a_launch_has_at_least_three_periods() -> None:
    assert measured_steps(10.0, 20.0, TYPICAL_NOISE, 3, 2, period=50) == 150
    assert measured_steps(6.0, 0.001, TYPICAL_NOISE, 3, 5, period=50) == MAX_STEPS, "more is no fault"
    assert (least_steps(1), least_steps(2), least_steps(100)) == (MIN_STEPS, 6, 300)


@pytest.mark.parametrize("left_s", [12.0, 40.0, 201.0])
def test_the_steps_of_a_budget_fit_it_and_one_more_does_not(left_s: float) -> None:
    costs = (2.0, 0.1, 3, 5)
    steps = steps_in_time(left_s, *costs)
    assert steps > 0
    assert first_look_s(steps, *costs) <= left_s < first_look_s(steps + 1, *costs)


def test_a_budget_that_two_more_starts_spend_fits_no_step() -> None:
    assert steps_in_time(4.0, 2.0, 0.1, 3, 5) < 1
