"""The decision rule, recomputed by hand with scipy.stats, and its power, measured by simulation."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from scipy import stats

from harness.errors import UsageError
from harness.stats.estimands import PairDifference
from harness.stats.paired import Problem, StepPairs, UnusableError
from harness.stats.power import detectable_effect, pairs_to_decide, pairs_to_detect
from harness.stats.rule import Endpoint, Rule, planned_looks
from harness.stats.sequential import Look, Outcome, look, replay
from harness.stats.variance_prior import VariancePrior

log_ratios = st.lists(st.floats(-0.08, 0.08), min_size=2, max_size=12)


def difference(
    total: float, typical: float, uncapped: float, base_ns: float = 100e6, cuts: tuple[int, int] = (0, 0)
) -> PairDifference:
    return PairDifference(
        total=total,
        typical=typical,
        uncapped=uncapped,
        base_ns=base_ns,
        head_ns=base_ns * math.exp(total),
        base_typical_ns=base_ns,
        head_typical_ns=base_ns * math.exp(typical),
        base_cut_steps=cuts[0],
        head_cut_steps=cuts[1],
        steps=30,
    )


def differences(d: list[float], base_ns: float = 100e6) -> list[PairDifference]:
    return [difference(x, x, x, base_ns) for x in d]


WEIGHTS = {1: (3,), 2: (2, 3), 3: (2, 2, 3), 4: (2, 1, 2, 3), 5: (2, 1, 1, 2, 3)}
SHARES = {"total": 0.8, "typical": 0.1, "uncapped": 0.1}


@pytest.mark.parametrize("looks", [(4,), (2, 4), (3, 5, 6), (3, 5, 7, 10), (2, 3, 4, 5, 6)])
@pytest.mark.parametrize("alpha", [0.01, 0.05])
def test_the_levels_of_all_looks_and_endpoints_are_alpha(looks: tuple[int, ...], alpha: float) -> None:
    rule = Rule(looks=looks, alpha=alpha)
    assert sum(rule.level(pairs, endpoint) for pairs in looks for endpoint in Endpoint) == pytest.approx(alpha)
    weights = WEIGHTS[len(looks)]
    for pairs, weight in zip(looks, weights, strict=True):
        for name, share in SHARES.items():
            assert rule.level(pairs, Endpoint(name)) == pytest.approx(alpha * share * weight / sum(weights))


def expected_interval(d: list[float], level: float) -> tuple[float, float]:
    half = float(stats.t.ppf(1 - level, len(d) - 1)) * float(stats.sem(d))
    return float(np.mean(d)) - half, float(np.mean(d)) + half


@given(
    st.lists(st.tuples(*[st.floats(-0.08, 0.08)] * 3), min_size=2, max_size=12),
    st.sampled_from([(4,), (2, 4, 6), (3, 5, 7, 10)]),
    st.sampled_from([0.01, 0.05]),
    st.sampled_from([0.0, 0.008]),
)
def test_a_look_follows_the_rule(
    d: list[tuple[float, float, float]], looks: tuple[int, ...], alpha: float, null_effect: float
) -> None:
    columns = dict(zip(Endpoint, map(list, zip(*d, strict=True)), strict=True))
    assume(all(np.std(column) > 1e-6 for column in columns.values()))
    rule = Rule(looks=looks, alpha=alpha, null_effect=null_effect)
    seen = look([difference(*row) for row in d], rule)
    null, smallest, margin = math.log1p(null_effect), math.log(1.01), math.log(1.02)
    interval, inner, mean = {}, {}, {}
    for endpoint, column in columns.items():
        interval[endpoint] = expected_interval(column, rule.level(len(d), endpoint))
        inner[endpoint] = expected_interval(column, 0.05)
        mean[endpoint] = float(np.mean(column))
        found = getattr(seen, endpoint.value)
        assert (found.low, found.high) == pytest.approx(interval[endpoint], rel=1e-6, abs=1e-9)
        assert (found.pass_low, found.pass_high) == pytest.approx(inner[endpoint], rel=1e-6, abs=1e-9)
        tail = float(stats.t.sf(max(abs(mean[endpoint]) - null, 0) / stats.sem(column), len(d) - 1))
        assert found.p == pytest.approx(min(1.0, tail * alpha / rule.level(len(d), endpoint)), rel=1e-6)
    edges = [*(abs(low) - null for low, _ in interval.values()), *(abs(high) - null for _, high in interval.values())]
    edges += [abs(m) - limit for m in mean.values() for limit in (smallest, margin)]
    edges += [abs(bound) - limit for pair in inner.values() for bound in pair for limit in (0, margin)]
    assume(min(map(abs, edges)) > 1e-9)
    total, typical, uncapped = Endpoint
    slower = [e for e in Endpoint if interval[e][0] > null and mean[e] >= smallest and not inner[total][1] < 0]
    contradicted = inner[typical][0] > 0 or inner[uncapped][0] > 0
    inside = all(-margin < inner[e][0] and inner[e][1] < margin for e in (total, typical))
    outside = (inner[uncapped][0] > 0 or inner[uncapped][1] < 0) and abs(mean[uncapped]) > margin
    if slower:
        assert (seen.outcome, seen.endpoint) == (Outcome.SLOWER, slower[0])
        assert seen.decisive.p < alpha
    elif interval[total][1] < -null and mean[total] <= -smallest and not contradicted:
        assert seen.outcome is Outcome.FASTER
        assert seen.decisive.p < alpha
    else:
        assert seen.outcome is (Outcome.SAME if inside and not outside else Outcome.OPEN)


@given(log_ratios)
def test_exchanging_the_sides_mirrors_the_look(d: list[float]) -> None:
    assume(np.std(d) > 1e-6)
    seen, mirrored = look(differences(d), Rule()), look(differences([-x for x in d]), Rule())
    mirror = {Outcome.SLOWER: Outcome.FASTER, Outcome.FASTER: Outcome.SLOWER}
    assert mirrored.outcome is mirror.get(seen.outcome, seen.outcome)
    assert (mirrored.total.low, mirrored.total.p) == pytest.approx((-seen.total.high, seen.total.p))


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


@pytest.mark.parametrize(
    ("total", "typical", "uncapped", "outcome", "endpoint"),
    [
        (0.05, 0.0, 0.05, Outcome.SLOWER, Endpoint.TOTAL),  # a checkpoint: the median does not see it
        (0.0, 0.05, 0.0, Outcome.SLOWER, Endpoint.TYPICAL),
        (0.0, 0.0, 0.05, Outcome.SLOWER, Endpoint.UNCAPPED),  # rare steps at no fixed index
        (-0.05, 0.05, -0.05, Outcome.OPEN, Endpoint.TOTAL),  # slower mostly, but users pay less
        (-0.05, 0.0, -0.05, Outcome.FASTER, Endpoint.TOTAL),
        (-0.05, -0.05, 0.05, Outcome.OPEN, Endpoint.TOTAL),
        (0.0, 0.009, 0.0, Outcome.SAME, Endpoint.TOTAL),
    ],
)
def test_endpoints_that_part(
    total: float, typical: float, uncapped: float, outcome: Outcome, endpoint: Endpoint
) -> None:
    found = look([difference(total + x, typical + x, uncapped + x) for x in NOISE], Rule())
    assert (found.outcome, found.endpoint) == (outcome, endpoint)


def test_rare_slow_steps_of_one_side_are_not_called_the_same() -> None:
    """The cap took them for hiccups, but hiccups meet both sides alike."""
    scatter = [0.00, 0.10, 0.02, 0.09]  # too few, and too unlike, to be significant themselves
    even = [difference(x, x, y, cuts=(3, 3)) for x, y in zip(NOISE, scatter, strict=True)]
    uneven = [difference(x, x, y, cuts=(0, 3)) for x, y in zip(NOISE, scatter, strict=True)]
    assert look(even, Rule()).outcome is Outcome.SAME
    assert look(uneven, Rule()).outcome is Outcome.OPEN
    assert look(uneven, Rule()).uneven_cuts
    small = [difference(x, x, x, cuts=(0, 3)) for x in NOISE]
    assert look(small, Rule()).outcome is Outcome.SAME, "what was cut is less than the margin"


@pytest.mark.parametrize("cuts", [(0, 0), (0, 5), (5, 0), (0, 6), (6, 0), (4, 12), (13, 4), (12, 16)])
def test_cuts_are_uneven_by_the_two_sided_sign_test(cuts: tuple[int, int]) -> None:
    """At the level of 5 %: 0 of 5 may be chance (6.3 %), 0 of 6 is not (3.1 %)."""
    pairs = [difference(x, x, 0.05 + x, cuts=cuts if not at else (0, 0)) for at, x in enumerate(NOISE)]
    chance = float(stats.binomtest(cuts[0], sum(cuts)).pvalue) if any(cuts) else 1.0
    assert look(pairs, Rule()).uneven_cuts == (chance < 0.05)


def steps_that_differ_by(d: list[float]) -> list[StepPairs]:
    base = 100e6 * (1 + 0.1 * np.arange(30).reshape(30, 1) / 30)
    return [StepPairs(base_ns=base, head_ns=base * math.exp(x)) for x in d]


@given(st.lists(st.floats(-0.05, 0.05), min_size=0, max_size=12, unique=True))
def test_replay_is_what_a_duel_under_way_did(d: list[float]) -> None:
    assume(all(np.std(d[:count]) > 1e-6 for count in Rule().looks if count <= len(d)))
    rule, pairs = Rule(), steps_that_differ_by(d)
    under_way: list[Look] = []
    for count in range(1, len(d) + 1):
        under_way = replay(pairs[:count], rule)
        if under_way and under_way[-1].outcome is not Outcome.OPEN:
            break
    replayed = replay(pairs, rule)
    assert replayed == under_way
    assert [seen.pairs for seen in replayed] == list(rule.looks[: len(replayed)])
    assert all(seen.outcome is Outcome.OPEN for seen in replayed[:-1])


def test_lent_variance_narrows_the_interval_but_not_the_noise() -> None:
    d = [0.02, 0.03, 0.025, 0.031]
    alone = look(differences(d), Rule())
    lent = look(differences(d), Rule(), VariancePrior(dof=6, variance=alone.total.variance / 4, duels=20))
    assert lent.total.variance == alone.total.variance
    assert lent.total.dof == 9
    assert alone.total.low < lent.total.low
    assert lent.typical == alone.typical, "it is known for its total alone"
    noisier = look(differences(d), Rule(), VariancePrior(dof=6, variance=alone.total.variance * 4, duels=20))
    assert noisier.total.variance == pytest.approx(3 * alone.total.variance)


@pytest.mark.parametrize("pairs", [3, 10])
@pytest.mark.parametrize("spread", [0.003, 0.012, 0.024])
def test_the_detectable_effect_is_detected_four_times_in_five(pairs: int, spread: float) -> None:
    rule = Rule()
    effect = detectable_effect(spread, pairs, rule)
    rng = np.random.default_rng([pairs, round(spread * 1e4)])
    d = rng.normal(effect, spread, (20_000, pairs))
    mean, error = d.mean(axis=1), d.std(axis=1, ddof=1) / math.sqrt(pairs)
    caught = (mean - stats.t.ppf(1 - rule.level(pairs), pairs - 1) * error > 0) & (mean >= math.log(1.01))
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
