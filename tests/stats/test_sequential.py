"""The decision rule, recomputed by hand with scipy.stats, and its power, measured by simulation."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from scipy import stats

from harness.errors import UsageError
from harness.stats.paired import PairDifference, Problem, UnusableError
from harness.stats.sequential import (
    Look,
    Outcome,
    Rule,
    detectable_effect,
    look,
    pairs_to_decide,
    pairs_to_detect,
    planned_looks,
    replay,
)
from harness.stats.variance_prior import VariancePrior

log_ratios = st.lists(st.floats(-0.08, 0.08), min_size=2, max_size=12)


def differences(d: list[float], base_ns: float = 100e6) -> list[PairDifference]:
    return [PairDifference(log_ratio=x, base_ns=base_ns, head_ns=base_ns * math.exp(x), steps=30) for x in d]


@given(log_ratios, st.sampled_from([(4,), (2, 4, 6), (4, 6, 8, 10)]), st.sampled_from([0.01, 0.05]))
def test_a_look_follows_the_rule(d: list[float], looks: tuple[int, ...], alpha: float) -> None:
    assume(np.std(d) > 1e-6)
    seen = look(differences(d), Rule(looks=looks, alpha=alpha))
    count, mean = len(d), float(np.mean(d))
    error = math.sqrt(float(np.var(d, ddof=1)) / count)
    half = float(stats.t.ppf(1 - alpha / len(looks), count - 1)) * error
    pass_half = float(stats.t.ppf(0.95, count - 1)) * error
    assert (seen.low, seen.high) == pytest.approx((mean - half, mean + half), rel=1e-6, abs=1e-9)
    assert (seen.pass_low, seen.pass_high) == pytest.approx((mean - pass_half, mean + pass_half), rel=1e-6, abs=1e-9)
    two_sided = float(stats.ttest_1samp(d, 0.0).pvalue)
    assert seen.p == pytest.approx(min(1.0, two_sided / 2 * len(looks)), rel=1e-6)
    limits = [mean - half, mean + half, abs(mean) - math.log(1.01), abs(mean) + pass_half - math.log(1.02)]
    assume(min(map(abs, limits)) > 1e-9)
    if mean - half > 0 and mean >= math.log(1.01):
        expected = Outcome.SLOWER
    elif mean + half < 0 and mean <= -math.log(1.01):
        expected = Outcome.FASTER
    elif abs(mean) + pass_half < math.log(1.02):
        expected = Outcome.SAME
    else:
        expected = Outcome.OPEN
    assert seen.outcome is expected
    if seen.outcome in (Outcome.SLOWER, Outcome.FASTER):
        assert seen.p < alpha


@given(log_ratios)
def test_exchanging_the_sides_mirrors_the_look(d: list[float]) -> None:
    assume(np.std(d) > 1e-6)
    seen, mirrored = look(differences(d), Rule()), look(differences([-x for x in d]), Rule())
    mirror = {Outcome.SLOWER: Outcome.FASTER, Outcome.FASTER: Outcome.SLOWER}
    assert mirrored.outcome is mirror.get(seen.outcome, seen.outcome)
    assert (mirrored.low, mirrored.p) == pytest.approx((-seen.high, seen.p))


NOISE = [-0.001, 0.001, -0.0005, 0.0005]


@pytest.mark.parametrize(
    ("effect", "rule", "outcome"),
    [
        (0.05, Rule(), Outcome.SLOWER),
        (-0.05, Rule(), Outcome.FASTER),
        (0.0, Rule(), Outcome.SAME),
        (0.009, Rule(), Outcome.SAME),  # significant, but below the smallest effect
        (0.015, Rule(), Outcome.SLOWER),  # both rules fit: a difference is not hidden behind the margin
        (0.05, Rule(min_effect=0.1), Outcome.OPEN),  # neither small nor large enough
        (0.05, Rule(min_abs_ns=6e6), Outcome.SAME),  # 5 ms of a 100 ms step, below the floor of 6 ms
        (0.05, Rule(min_abs_ns=4e6), Outcome.SLOWER),
        (-0.08, Rule(min_abs_ns=6e6), Outcome.FASTER),
    ],
)
def test_the_limits(effect: float, rule: Rule, outcome: Outcome) -> None:
    assert look(differences([effect + x for x in NOISE]), rule).outcome is outcome


@pytest.mark.parametrize("d", [[0.0] * 4, [0.05] * 4, [0.05, 0.05 + 1e-11]])
def test_pairs_without_any_scatter_are_not_judged(d: list[float]) -> None:
    with pytest.raises(UnusableError) as caught:
        look(differences(d), Rule())
    assert caught.value.problem is Problem.ZERO_VARIANCE


def test_one_pair_is_no_look() -> None:
    with pytest.raises(ValueError, match="at least 2"):
        look(differences([0.1]), Rule())


@given(st.lists(st.floats(-0.05, 0.05), min_size=0, max_size=12, unique=True))
def test_replay_is_what_a_duel_under_way_did(d: list[float]) -> None:
    assume(all(np.std(d[:count]) > 1e-6 for count in Rule().looks if count <= len(d)))
    rule = Rule()
    under_way: list[Look] = []
    for count in range(1, len(d) + 1):
        under_way = replay(differences(d[:count]), rule)
        if under_way and under_way[-1].outcome is not Outcome.OPEN:
            break
    replayed = replay(differences(d), rule)
    assert replayed == under_way
    assert [seen.pairs for seen in replayed] == list(rule.looks[: len(replayed)])
    assert all(seen.outcome is Outcome.OPEN for seen in replayed[:-1])


def test_lent_variance_narrows_the_interval_but_not_the_noise() -> None:
    d = [0.02, 0.03, 0.025, 0.031]
    alone = look(differences(d), Rule())
    lent = look(differences(d), Rule(), VariancePrior(dof=6, variance=alone.variance / 4, duels=20))
    assert lent.variance == alone.variance
    assert lent.dof == 9
    assert alone.low < lent.low
    noisier = look(differences(d), Rule(), VariancePrior(dof=6, variance=alone.variance * 4, duels=20))
    assert noisier.variance == pytest.approx(3 * alone.variance)


@pytest.mark.parametrize("pairs", [4, 10])
@pytest.mark.parametrize("spread", [0.003, 0.012, 0.024])
def test_the_detectable_effect_is_detected_four_times_in_five(pairs: int, spread: float) -> None:
    rule = Rule()
    effect = detectable_effect(spread, pairs, rule)
    rng = np.random.default_rng([pairs, round(spread * 1e4)])
    d = rng.normal(effect, spread, (20_000, pairs))
    mean, error = d.mean(axis=1), d.std(axis=1, ddof=1) / math.sqrt(pairs)
    caught = (mean - stats.t.ppf(1 - 0.01 / 4, pairs - 1) * error > 0) & (mean >= math.log(1.01))
    assert 0.78 < caught.mean() < 0.86


def test_the_detectable_effect_is_never_below_what_the_rule_lets_through() -> None:
    assert detectable_effect(1e-6, 10, Rule()) == pytest.approx(math.log(1.01), abs=1e-5)
    assert detectable_effect(1e-6, 10, Rule(min_abs_ns=5e6), base_ns=100e6) == pytest.approx(math.log(1.05), abs=1e-5)


@given(st.floats(0.001, 0.03), st.floats(0.015, 0.1))
def test_pairs_to_detect_is_the_fewest(spread: float, effect: float) -> None:
    rule = Rule()
    fewest = pairs_to_detect(spread, effect, rule)
    assert fewest is not None
    assert detectable_effect(spread, fewest, rule) <= effect
    assert fewest == 2 or detectable_effect(spread, fewest - 1, rule) > effect


def test_what_no_number_of_pairs_can_do() -> None:
    assert pairs_to_detect(0.01, 0.005, Rule()) is None  # below the smallest effect
    assert pairs_to_detect(1.0, 0.02, Rule()) is None
    between = look(differences([0.05 + x for x in NOISE]), Rule(min_effect=0.1))
    assert pairs_to_decide(between, Rule(min_effect=0.1)) is None


@given(st.lists(st.floats(-0.05, 0.05), min_size=4, max_size=4, unique=True))
def test_pairs_to_decide_would_have_decided(d: list[float]) -> None:
    assume(np.std(d) > 1e-3)
    seen = look(differences(d), Rule())
    enough = pairs_to_decide(seen, Rule())
    if seen.outcome is not Outcome.OPEN:
        assert enough is not None
        assert enough <= 4
    elif enough is not None:
        assert enough > 4


@pytest.mark.parametrize(
    ("most_pairs", "looks"),
    [
        (2, (2,)),
        (3, (3,)),
        (4, (3, 4)),
        (6, (3, 5, 6)),
        (10, (3, 5, 7, 10)),
        (12, (3, 6, 9, 12)),
        (26, (7, 13, 20, 26)),
    ],
)
def test_looks_follow_the_planned_pairs(most_pairs: int, looks: tuple[int, ...]) -> None:
    assert planned_looks(most_pairs) == looks
    Rule(looks=looks)


@pytest.mark.parametrize(
    "broken",
    [
        {"looks": ()},
        {"looks": (1, 4)},
        {"looks": (6, 4)},
        {"looks": (4, 4)},
        {"alpha": 0.0},
        {"alpha": math.nan},
        {"margin": 0.0},
        {"min_effect": -0.01},
        {"min_abs_ns": math.nan},
        {"power": 1.0},
    ],
)
def test_a_rule_that_cannot_be_meant_is_refused(broken: dict[str, object]) -> None:
    with pytest.raises(UsageError, match="expected"):
        Rule(**broken)  # type: ignore[arg-type] # wrong values are the point
    with pytest.raises(UsageError, match="at least 2"):
        planned_looks(1)


def test_limits_are_fractions_of_any_step_unless_a_time_is_given() -> None:
    rule = Rule(min_effect=0.01, margin=0.02)
    for base_ns in (1.0, 1e3, 1e9):
        assert rule.smallest_effect(base_ns) == pytest.approx(math.log1p(0.01))
        assert rule.equivalence_margin(base_ns) == pytest.approx(math.log1p(0.02))
    assert Rule(min_abs_ns=5e6).equivalence_margin(1e8) == pytest.approx(math.log1p(0.05))
