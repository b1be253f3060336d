"""Verdicts: every state with its reason, the line, degenerate input, and that nothing that failed passes."""

from __future__ import annotations

import importlib.util
import itertools
import json
import math
import re
import statistics
import sys
from collections.abc import Callable
from dataclasses import FrozenInstanceError, asdict, replace
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from scipy import stats

from harness.stats.paired import Problem, StepPairs
from harness.stats.periods import Period
from harness.stats.rule import Rule
from harness.verdict import Objection, Reason, State, Verdict, decide

SIMULATION = Path(__file__).resolve().parents[1] / "benchmarks" / "verdict_simulation.py"


def simulation() -> ModuleType:
    spec = importlib.util.spec_from_file_location("verdict_simulation", SIMULATION)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # dataclasses look their module up by name
    spec.loader.exec_module(module)
    return module


def pairs_of(log_ratios: list[float], steps: int = 30, ranks: int = 2) -> list[StepPairs]:
    """Launch pairs with exactly these d: every step pair of a pair differs alike, the steps themselves do not."""
    base = 100e6 * (1 + 0.1 * np.arange(steps * ranks).reshape(steps, ranks) / (steps * ranks))
    return [StepPairs(base_ns=base, head_ns=base * math.exp(d)) for d in log_ratios]


QUIET = [-0.001, 0.001, -0.0005, 0.0005]
LOUD = [-0.06, 0.05, 0.04, -0.05, 0.06, -0.04, 0.03, -0.02, 0.05, -0.05]


@pytest.mark.parametrize(
    ("log_ratios", "rule", "state", "reason", "pairs"),
    [
        ([0.05 + x for x in QUIET], Rule(), State.SLOWER, Reason.BEYOND_MIN_EFFECT, 3),
        ([-0.05 + x for x in QUIET], Rule(), State.FASTER, Reason.BEYOND_MIN_EFFECT, 3),
        (QUIET, Rule(), State.SAME, Reason.WITHIN_MARGIN, 3),
        (QUIET + LOUD, Rule(), State.SAME, Reason.WITHIN_MARGIN, 3),  # what came after the decision is left alone
        (LOUD, Rule(), State.UNDECIDED, Reason.TOO_NOISY, 10),
        (LOUD[:9], Rule(), State.UNDECIDED, Reason.MORE_PAIRS, 7),
        (LOUD[:2], Rule(), State.UNDECIDED, Reason.MORE_PAIRS, 2),
        (LOUD[:1], Rule(), State.UNDECIDED, Reason.MORE_PAIRS, 1),
        ([0.05 + x for x in QUIET], Rule(looks=(4,), min_effect=0.1), State.UNDECIDED, Reason.BETWEEN_LIMITS, 4),
        ([0.02] * 4, Rule(), State.INVALID, Reason.ZERO_VARIANCE, 4),
        ([], Rule(), State.INVALID, Reason.NO_STEPS, 0),
    ],
)
def test_states_and_reasons(log_ratios: list[float], rule: Rule, state: State, reason: Reason, pairs: int) -> None:
    verdict = decide(pairs_of(log_ratios), rule)
    assert (verdict.state, verdict.reason, verdict.pairs) == (state, reason, pairs)
    assert (verdict.next_step is not None) == (state is State.UNDECIDED)


def test_the_reasons_of_the_statistics_are_reasons_of_verdicts() -> None:
    assert {problem.value for problem in Problem} <= {reason.value for reason in Reason}


def broken(pair: StepPairs, **change: object) -> StepPairs:
    sides = {"base_ns": pair.base_ns, "head_ns": pair.head_ns} | change
    return StepPairs(**sides)  # type: ignore[arg-type] # wrong values are the point


@pytest.mark.parametrize(
    ("breaking", "reason"),
    [
        (lambda pair: broken(pair, head_ns=np.full_like(pair.head_ns, np.nan)), Reason.NOT_A_TIME),
        (lambda pair: broken(pair, head_ns=np.zeros_like(pair.head_ns)), Reason.NOT_A_TIME),
        (lambda pair: broken(pair, head_ns=pair.head_ns[:-1]), Reason.UNEQUAL_STEPS),
        (lambda pair: broken(pair, base_ns=pair.base_ns[:, :1]), Reason.UNEQUAL_RANKS),
        (lambda pair: broken(pair, base_ns=pair.base_ns[:0]), Reason.NO_STEPS),
    ],
)
@pytest.mark.parametrize("where", [0, 3, 5])
def test_one_broken_pair_makes_the_verdict_invalid(
    breaking: Callable[[StepPairs], StepPairs], reason: Reason, where: int
) -> None:
    pairs = pairs_of([x + d for x in (0.0, 0.002) for d in QUIET])
    pairs[where] = breaking(pairs[where])
    verdict = decide(pairs)
    assert (verdict.state, verdict.reason, verdict.ratio) == (State.INVALID, reason, None)
    assert f"launch pair {where + 1}" in verdict.line


def test_an_objection_outweighs_the_fastest_head() -> None:
    objection = Objection(reason=Reason.DIFFERENT_WORK, detail="step 3: loss 2.5 against 2.75")
    verdict = decide(pairs_of([-0.5 + x for x in QUIET]), objection=objection)
    assert verdict.line == "INVALID different_work: step 3: loss 2.5 against 2.75"
    assert (verdict.ratio, verdict.ci, verdict.p, verdict.pairs) == (None, None, None, 4)


hostile_times = hnp.arrays(
    np.float64,
    st.tuples(st.integers(0, 4), st.integers(1, 2)),
    elements=st.one_of(st.sampled_from([0.0, -1.0, math.nan, math.inf]), st.floats(1e3, 1e12)),
)


@settings(max_examples=300)
@given(st.lists(st.tuples(hostile_times, hostile_times), max_size=6))
def test_no_input_ends_in_a_pass_without_numbers(times: list[tuple[np.ndarray, np.ndarray]]) -> None:
    verdict = decide([StepPairs(base_ns=b, head_ns=h) for b, h in times])
    numbers = [verdict.ratio, verdict.p, verdict.detectable_effect, *(verdict.ci or (None,))]
    if verdict.state in (State.SAME, State.FASTER, State.SLOWER):
        assert None not in numbers
        assert all(np.isfinite(side).all() and (side > 0).all() for pair in times for side in pair)
    assert all(number is None or math.isfinite(number) for number in numbers)
    json.dumps(asdict(verdict), allow_nan=False)
    assert "nan" not in verdict.line


def test_the_line_of_a_slower_head() -> None:
    verdict = Verdict(
        state=State.SLOWER,
        reason=Reason.BEYOND_MIN_EFFECT,
        ratio=1.031,
        typical_ratio=1.004,
        longest_period=10,
        ci=(1.014, 1.048),
        p=0.0006,
        pairs=6,
        steps_per_pair=30,
        detectable_effect=0.016,
    )
    assert verdict.line == (
        "SLOWER +3.1 % [+1.4, +4.8] in total, +0.4 % in the typical step  p = 0.0006  6 pairs x 30 steps  "
        "(detectable ≥ 1.6 %, periods up to 10 steps)"
    )


def test_the_line_names_what_one_side_pays_at_every_nth_step() -> None:
    verdict = decide(pairs_of([0.05 + x for x in QUIET]))
    paid = Period(every=8, first=3, extra_ns=40e6, path="step/forward_backward")
    named = replace(verdict, period=paid).line
    assert "in the typical step: 40.00 ms more at every 8th step, in step/forward_backward  p" in named
    saved = replace(verdict, period=replace(paid, extra_ns=-40e6, path=None)).line
    assert "in the typical step: 40.00 ms less at every 8th step  p" in saved
    assert "at every" not in verdict.line


@pytest.mark.parametrize("log_ratios", [[0.05 + x for x in QUIET], QUIET, LOUD, LOUD[:1]])
def test_a_verdict_says_what_it_could_have_seen(log_ratios: list[float]) -> None:
    """A period must be seen three times in 30 steps; a slowdown like the one named, four times in five at the end."""
    verdict = decide(pairs_of(log_ratios))
    assert verdict.longest_period == 10
    if not verdict.looks:
        assert verdict.detectable_effect is None
        return
    rule, last = Rule(), verdict.looks[-1]
    planned = rule.looks[-1]
    error = statistics.stdev(log_ratios[: verdict.pairs]) / math.sqrt(planned)
    critical = stats.t.ppf(1 - rule.level(planned), planned - 1)
    assert (verdict.detectable_pairs, verdict.detectable_effect is None) == (planned, False)
    effect = math.log1p(verdict.detectable_effect or 0.0)
    caught = float(stats.nct.sf(critical, planned - 1, effect / error))
    beyond = float(stats.t.cdf((effect - last.smallest_effect) / error, planned - 1))
    assert min(caught, beyond) == pytest.approx(0.8, abs=1e-6)


@given(st.floats(0.0005, 0.05), st.floats(-0.6, 0.6), st.integers(0, 1000))
def test_the_line_claims_no_more_to_be_detectable_than_its_interval_says(
    spread: float, effect: float, seed: int
) -> None:
    """`FASTER -44.5 % (detectable ≥ 99.5 %)` and `SAME [-1.3, +1.4] (detectable ≥ 8.9 %)` made no sense."""
    noise = np.random.default_rng(seed).normal(0, spread, 10)
    verdict = decide(pairs_of(list(effect + noise)))
    if verdict.state in (State.FASTER, State.SLOWER):
        assert verdict.ci is not None
        half = (math.log(verdict.ci[1]) - math.log(verdict.ci[0])) / 2
        claimed = math.log1p(verdict.detectable_effect or 0.0)
        assert claimed < max(1.5 * half, Rule().min_effect + half)
    if verdict.state is State.SAME:
        told = re.search(r"detectable ≥ ([\d.]+) %", verdict.line)
        assert told is None or float(told[1]) <= 100 * Rule().margin
        assert (told is None) == verdict.interval_says_more


def test_a_same_of_three_pairs_tells_what_ten_would_have_found() -> None:
    """Scatter of 0.7 %: the interval of three pairs is ±1.2 %, and their own look would have found 20 %."""
    verdict = decide(pairs_of([-0.007, 0.0, 0.007]))
    assert verdict.state is State.SAME
    assert verdict.looks[-1].detectable_effect > 0.08
    assert re.search(r"SAME .* 3 pairs x 30 steps  \(detectable ≥ 1\.\d % with 10 pairs, periods up to", verdict.line)


def test_a_same_that_scatters_like_the_margin_lets_the_interval_speak() -> None:
    verdict = decide(pairs_of([-0.02, 0.02, -0.019, 0.021, -0.02, 0.02, -0.021, 0.02, -0.02, 0.02]))
    assert verdict.state is State.SAME
    assert (verdict.detectable_effect or 0.0) > Rule().margin
    assert verdict.line.endswith("7 pairs x 30 steps  (periods up to 10 steps)")
    few = replace(verdict, steps_per_pair=4, longest_period=1)
    assert few.line.endswith("7 pairs x 4 steps  (too few steps for a period)")


def test_small_numbers_in_the_line() -> None:
    rule = Rule(looks=(4, 6, 8, 10))
    assert decide(pairs_of([-0.5 + x for x in QUIET]), rule).line.startswith(
        "FASTER -39.3 % [-39.6, -39.1] in total, -39.3 % in the typical step  p < 0.0001  4 pairs"
    )
    assert decide(pairs_of([x - 0.0001 for x in QUIET]), rule).line.startswith("SAME +0.0 % [-0.1, +0.1] in total")
    assert decide(pairs_of([0.01])).line == "UNDECIDED +1.0 % in total, +1.0 % in the typical step  1 pair x 30 steps"


@pytest.mark.parametrize("log_ratios", [[0.05 + x for x in QUIET], [-0.05 + x for x in QUIET], QUIET, LOUD])
def test_the_interval_shown_is_the_one_that_decided(log_ratios: list[float]) -> None:
    verdict = decide(pairs_of(log_ratios))
    assert verdict.ci is not None
    assert verdict.p is not None
    low, high = verdict.ci
    assert (low > 1 or high < 1) == (verdict.state in (State.SLOWER, State.FASTER))
    assert (verdict.p < 0.01) == (verdict.state in (State.SLOWER, State.FASTER))
    if verdict.state is State.SAME:
        assert 1 / 1.02 < low < high < 1.02


def test_an_undecided_duel_names_the_pairs_that_would_do() -> None:
    drifting = [0.018 + 5 * x for x in (*QUIET, *QUIET)]
    verdict = decide(pairs_of(drifting), Rule(looks=(4, 6, 8), min_effect=0.05))
    assert verdict.state is State.UNDECIDED
    assert verdict.next_step is not None
    named = re.search(r"--pairs (\d+)", verdict.next_step)
    assert named is not None
    assert int(named[1]) > 8


def test_the_advice_is_a_quieter_machine_where_the_interval_is_wider_than_what_it_must_tell() -> None:
    rule = Rule(looks=(4,), min_effect=0.01, margin=0.02)
    told = set()
    for scatter, shift in itertools.product(np.linspace(0.2, 6, 30), (0.0, 0.009, 0.015, 0.025)):
        verdict = decide(pairs_of([shift + scatter * 4 * x for x in QUIET]), rule)
        if verdict.state is not State.UNDECIDED:
            continue
        assert verdict.ci is not None
        assert verdict.next_step is not None
        half_width = (math.log(verdict.ci[1]) - math.log(verdict.ci[0])) / 2
        noisy = half_width > math.log1p(0.02)
        assert verdict.reason is (Reason.TOO_NOISY if noisy else Reason.BETWEEN_LIMITS)
        assert ("quieter machine" in verdict.next_step) == noisy
        told.add((noisy, half_width > math.log1p(0.01)))
    assert told == {(True, True), (False, True)}


def test_where_no_number_of_pairs_would_do_none_is_named() -> None:
    """Above the margin, so never the same, and below the smallest effect, so never slower."""
    verdict = decide(pairs_of([0.035 + 4 * x for x in QUIET]), Rule(looks=(4,), margin=0.02, min_effect=0.05))
    assert verdict.state is State.UNDECIDED
    assert verdict.next_step is not None
    assert "choose another margin or smallest effect" in verdict.next_step
    assert "--pairs" not in verdict.next_step


@pytest.mark.parametrize("pairs", [2, 4])
def test_the_steps_told_are_those_of_the_shortest_launch_pair(pairs: int) -> None:
    made = [pairs_of([x], steps)[0] for x, steps in zip(LOUD, (30, 20, 40, 30), strict=False)]
    assert decide(made[:pairs], Rule(looks=(4,))).steps_per_pair == 20


def test_a_verdict_is_frozen() -> None:
    with pytest.raises(FrozenInstanceError):
        decide([]).state = State.SAME  # type: ignore[misc] # the assignment is the point


@pytest.mark.slow
@pytest.mark.parametrize("history", [0, 40])
def test_false_alarms_and_power_on_a_machine_with_drift_and_slow_launches(history: int) -> None:
    """The rule allows 1 % each way; 800 duels would nearly always show 2.5 %."""
    module = simulation()
    same = module.simulate(0.0, 800, machine=module.Machine(), history=history)
    assert same.share(State.SLOWER) <= 0.017
    assert same.share(State.FASTER) <= 0.017
    assert same.share(State.SAME) >= 0.85
    slower = module.simulate(0.05, 150, machine=module.Machine(), history=history)
    assert slower.share(State.SLOWER) >= 0.95
    assert slower.share(State.SAME) == 0
    assert slower.mean_pairs < 6
