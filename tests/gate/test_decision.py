"""What duels of known differences mean for a gate, alone and together."""

from __future__ import annotations

import itertools
import math
import re
from collections import Counter
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from judged import comparison, gate_job

from harness.errors import LaunchError, UsageError
from harness.gate import GateResult, JobOutcome, Limits, Policy, Result, judge
from harness.gate.limit import gate_rule
from harness.stats.multiple import holm
from harness.stats.operating_curve import operating_curve
from harness.verdict import Objection, Reason, State

POLICY = Policy(source="p", scenarios=("a",), limits={"a": Limits()})
SLOW = [0.20, 0.21, 0.19, 0.20]
CALM = [0.01, 0.011, 0.009, 0.01]
NOISY = [0.20, -0.15, 0.18, -0.1]


def gate(*outcomes: JobOutcome, policy: Policy = POLICY) -> GateResult:
    return judge(list(outcomes), policy)


def test_a_slowdown_beyond_the_limit_is_a_regression_and_names_what_grew() -> None:
    found = gate(JobOutcome(job=gate_job(), comparison=comparison(SLOW)))
    assert (found.result, found.exit_code) == (Result.REGRESSION, 1)
    assert found.judgements[0].detail == "+20.0 %, limit 5.0 %"
    assert [part.path for part in found.judgements[0].grown] == ["step/load"]
    assert found.line == "REGRESSION: 1 of 1 (a)"


def test_a_slowdown_within_the_limit_passes() -> None:
    found = gate(JobOutcome(job=gate_job(), comparison=comparison(CALM)))
    assert (found.result, found.exit_code) == (Result.PASS, 0)
    assert found.judgements[0].adjusted_p is not None
    assert found.judgements[0].adjusted_p > 0.5, "of a slowdown beyond 0.8 of the limit, not of any"


def test_a_head_that_is_faster_passes_even_where_the_rule_has_no_name_for_it() -> None:
    # The interval leaves the margin on the good side, and the estimate has not reached `faster` by the limit.
    between = comparison([-0.044, -0.056, -0.036, -0.042])
    assert between.verdict.state.value == "undecided"
    found = gate(JobOutcome(job=gate_job(), comparison=between))
    assert found.result is Result.PASS
    assert found.judgements[0].detail == "not slower, at most -3.1 %, limit 5.0 %"


@pytest.mark.parametrize(("means", "code", "counts"), [("fail", 3, True), ("pass", 0, False)])
def test_undecided_means_what_the_policy_says(means: str, code: int, counts: bool) -> None:
    policy = replace(POLICY, undecided="fail" if means == "fail" else "pass")
    found = gate(JobOutcome(job=gate_job(), comparison=comparison(NOISY)), policy=policy)
    assert found.exit_code == code
    assert found.judgements[0].result is Result.UNDECIDED
    assert found.judgements[0].counts is counts


def test_too_few_pairs_are_undecided_however_far_apart() -> None:
    found = gate(JobOutcome(job=gate_job(), comparison=comparison([0.5, 0.5001])))
    assert found.result is Result.UNDECIDED


def test_what_is_invalid_never_passes() -> None:
    objection = Objection(reason=Reason.DIFFERENT_WORK, detail="losses part")
    policy = replace(POLICY, undecided="pass")
    for broken in (comparison(CALM, objection=objection), comparison([]), comparison([0.0] * 4)):
        found = gate(JobOutcome(job=gate_job(), comparison=broken), policy=policy)
        assert (found.result, found.exit_code) == (Result.INVALID, 3)


@pytest.mark.parametrize(("head", "result"), [(105_000_000, Result.PASS), (105_000_001, Result.REGRESSION)])
def test_memory_has_a_plain_threshold(head: int, result: Result) -> None:
    found = gate(JobOutcome(job=gate_job(), comparison=comparison(CALM, memory=(100_000_000, head))))
    assert found.result is result


def test_memory_of_an_undecided_duel_still_counts() -> None:
    policy = replace(POLICY, undecided="pass")
    found = gate(JobOutcome(job=gate_job(), comparison=comparison(NOISY, memory=(10**8, 2 * 10**8))), policy=policy)
    assert found.exit_code == 1


def test_the_worst_result_is_the_answer_whatever_the_order() -> None:
    outcomes = {
        1: JobOutcome(job=gate_job("slow"), comparison=comparison(SLOW, alpha=0.01 / 5)),
        4: JobOutcome(job=gate_job("dead"), problem=LaunchError("rank 0 raised")),
        2: JobOutcome(job=gate_job("lost"), problem=UsageError("no such thing")),
        3: JobOutcome(job=gate_job("noisy"), comparison=comparison(NOISY)),
        0: JobOutcome(job=gate_job("calm"), comparison=comparison(CALM)),
    }
    order = (1, 4, 2, 3, 0)
    for count in range(1, 6):
        for some in itertools.combinations(order, count):
            for shuffled in (some, some[::-1]):
                assert gate(*(outcomes[code] for code in shuffled)).exit_code == some[0]


def test_an_interrupted_gate_ends_with_130() -> None:
    outcomes = [JobOutcome(job=gate_job(), problem=KeyboardInterrupt("interrupted"))]
    assert gate(*outcomes, JobOutcome(job=gate_job(), comparison=comparison(SLOW))).exit_code == 130


def test_what_was_interrupted_tells_its_result_so_far_and_is_no_evidence() -> None:
    slow = comparison(SLOW)
    other = JobOutcome(job=gate_job("other"), comparison=slow)
    stopped = JobOutcome(job=gate_job("stopped"), comparison=slow, problem=KeyboardInterrupt("interrupted"))
    found = gate(stopped, other).judgements
    assert found[0].result is Result.INTERRUPTED
    assert found[0].detail == f"interrupted, so far {slow.verdict.line}"
    # Of two tests, one without evidence: the same as beside a duel that never was.
    never = JobOutcome(job=gate_job("stopped"), problem=KeyboardInterrupt("interrupted"))
    assert found[1].adjusted_p == gate(never, other).judgements[1].adjusted_p
    assert found[0].adjusted_p is None


@given(st.lists(st.floats(min_value=1e-6, max_value=1), min_size=1, max_size=6), st.sampled_from([0.01, 0.05]))
def test_regressions_are_those_that_holm_rejects(p_values: list[float], alpha: float) -> None:
    slow = comparison(SLOW)
    outcomes = [
        JobOutcome(job=gate_job(f"s{index}"), comparison=replace(slow, verdict=replace(slow.verdict, p=p)))
        for index, p in enumerate(p_values)
    ]
    found = judge(outcomes, replace(POLICY, alpha=alpha))
    rejected = [bool(q <= alpha) for q in holm(p_values)]
    assert [judgement.result is Result.REGRESSION for judgement in found.judgements] == rejected
    assert [judgement.result for judgement in found.judgements if judgement.result is not Result.REGRESSION] == [
        Result.UNDECIDED
    ] * (len(p_values) - sum(rejected)), "slow but not significant is neither a pass nor a regression"


def test_a_duel_that_failed_is_a_test_without_evidence() -> None:
    slow = comparison(SLOW)
    p = 0.03
    outcome = JobOutcome(job=gate_job(), comparison=replace(slow, verdict=replace(slow.verdict, p=p)))
    assert gate(outcome).result is Result.REGRESSION
    both = gate(outcome, JobOutcome(job=gate_job("dead"), problem=LaunchError("x")))
    assert both.judgements[0].adjusted_p is not None
    assert math.isclose(both.judgements[0].adjusted_p, 2 * p)
    assert both.judgements[0].result is Result.UNDECIDED
    assert both.judgements[0].detail == "significant alone, but not among so many duels"


DUELS = 200
"""A share of 5 % is told to 1.5 % by so many, for each of four settings."""


@pytest.mark.slow
@pytest.mark.parametrize("spread", [0.008, 0.013])
@pytest.mark.parametrize("limit", [0.05, 0.10])
def test_the_promise_at_a_limit(limit: float, spread: float) -> None:
    """By simulation, with the gate's own decision over whole comparisons."""
    chance = np.random.default_rng(11)
    ends: dict[float, Counter[Result]] = {}
    for share in (0.5, 0.8, 1.0, 1.2):
        drawn = np.expm1(chance.normal(math.log1p(share * limit), spread, (DUELS, 10)))
        outcomes = [
            JobOutcome(job=gate_job(limit=limit), comparison=comparison(row, limit=limit, looks=(3, 5, 7, 10)))
            for row in drawn.tolist()
        ]
        ends[share] = Counter(gate(outcome).result for outcome in outcomes)
    assert ends[0.5][Result.PASS] == DUELS
    assert ends[0.8][Result.REGRESSION] <= 0.05 * DUELS
    assert ends[1.2][Result.REGRESSION] >= 0.9 * DUELS
    assert ends[1.2][Result.PASS] <= 0.06 * DUELS
    assert 0.2 * DUELS < ends[1.0][Result.REGRESSION] < 0.6 * DUELS, "at the limit itself nothing is promised"


def test_noise_that_cannot_hold_the_promise_is_said_with_the_pairs_that_would() -> None:
    loud = comparison([0.08, -0.02, 0.05, 0.0, 0.07, 0.01, 0.06, 0.02, 0.03, 0.09], looks=(3, 5, 7, 10))
    assert loud.verdict.state is State.UNDECIDED
    (judgement,) = gate(JobOutcome(job=gate_job(), comparison=loud)).judgements
    assert judgement.result is Result.UNDECIDED
    said = re.fullmatch(
        r"launch pairs scatter by 3\.5 %: 10 cannot hold a limit of 5\.0 %, (\d+) would \(--pairs \1\); "
        "stepduel gate --explain-limit tells more",
        judgement.detail,
    )
    assert said is not None, judgement.detail
    spread, enough = math.sqrt(loud.verdict.looks[-1].total.variance), int(said[1])
    rule = gate_rule(0.05, pairs=enough, alpha=0.05)
    (point,) = operating_curve(rule, spread, [0.06], np.random.default_rng(3), duels=1000)
    assert point.slower == pytest.approx(0.92, abs=0.03), "so many pairs do hold it, and hardly more than needed"


def test_min_abs_moves_the_limit_with_what_is_spared_and_caught() -> None:
    rule, plain = gate_rule(0.05, pairs=10, alpha=0.05, min_abs_ns=2e6), gate_rule(0.1, pairs=10, alpha=0.05)
    for name in ("null", "smallest_effect", "equivalence_margin"):
        assert getattr(rule, name)(20e6) == pytest.approx(getattr(plain, name)(20e6)), "2 ms are 10 % of 20 ms"
