"""What steps alone say beside steps in turn, on step times whose truth is known."""

from __future__ import annotations

import math

import numpy as np
import pytest

from harness.comparison.alone import weigh_interleaving
from harness.stats.interleaving import AlonePair, Effect, Interleaving, interleaving, second_slot
from harness.stats.paired import StepPairs
from harness.stats.turns import TURNS, longer_turn, stretches_alone, turn_of
from harness.verdict import Reason, State, Verdict, decide

RNG = np.random.default_rng(5)


def steps(count: int, mean: float = 100.0, scatter: float = 0.01) -> np.ndarray:
    return mean * (1 + scatter * RNG.standard_normal(count))


def pair(alone_head: np.ndarray, head: float = 100.0, scatter: float = 0.01) -> AlonePair:
    in_turn = StepPairs(base_ns=steps(30, scatter=scatter)[:, None], head_ns=steps(30, head, scatter)[:, None])
    return AlonePair(in_turn=in_turn, base_ns=steps(len(alone_head), scatter=scatter), head_ns=alone_head)


def test_a_loader_that_only_steps_alone_wait_for_is_a_bias() -> None:
    waits = np.tile([620.0, 100.0, 100.0, 100.0], 9)  # four workers that take eight steps for an item
    found = interleaving([pair(waits) for _ in range(3)])
    assert found is not None
    assert found.beyond
    assert found.bias.ratio == pytest.approx(2.3, rel=0.02)
    assert found.base == pytest.approx(1.0, abs=0.02)
    assert found.head == pytest.approx(2.3, rel=0.02)
    assert interleaving([pair(waits)]).beyond, "so large a bias shows in one launch pair"  # type: ignore[union-attr]


def test_scatter_and_one_slow_step_more_or_less_are_no_bias() -> None:
    alarms = 0
    for _ in range(300):
        found = interleaving([pair(steps(30, scatter=0.05), scatter=0.05) for _ in range(4)])
        assert found is not None
        alarms += found.beyond
    assert alarms <= 3
    periodic = steps(30)
    periodic[10::10] *= 2  # in the 20 steps that count: at the 10th, none elsewhere, where in turn there are none
    one = np.concatenate([periodic[:20], steps(10)])
    assert not interleaving([pair(one) for _ in range(5)]).beyond  # type: ignore[union-attr]


def test_a_small_bias_is_found_with_pairs_and_the_limit_is_none() -> None:
    found = interleaving([pair(steps(60, 104.0, 0.002), scatter=0.002) for _ in range(3)])
    assert found is not None
    assert found.beyond
    assert found.bias.ci is not None
    assert found.bias.ci[0] < 1.04 < found.bias.ci[1]
    assert not interleaving([pair(steps(60, 100.5, 0.002), scatter=0.002) for _ in range(3)]).beyond  # type: ignore[union-attr]
    assert interleaving([]) is None


def test_a_machine_that_changes_its_pace_makes_no_turns_longer() -> None:
    """Biases of same code scattered by 0.13 where a machine went on and off by a fifth; a duel asks ten times."""
    longer = 0
    for _ in range(400):
        made = [pair(steps(40, 100 * math.exp(0.13 * RNG.standard_normal()), 0.05), scatter=0.05) for _ in range(10)]
        found = (interleaving(made[: count + 1]) for count in range(10))
        longer += any(one.beyond for one in found if one is not None)
    assert longer / 400 < 0.06


def test_the_second_slot_is_told_from_the_difference() -> None:
    first = np.array([True, False] * 20)
    base, head = np.where(first, 100.0, 103.0), np.where(first, 110.0 * 1.03, 110.0)
    times = StepPairs(base_ns=base[:, None], head_ns=head[:, None])
    found = second_slot([(times, first), (times, np.ones(40, dtype=np.bool_)), (times, first)])
    assert found is not None
    assert found.ratio == pytest.approx(1.03)
    assert second_slot([(times, np.ones(40, dtype=np.bool_))]) is None


def test_turns_grow_to_the_longest_and_measure_at_least_what_was_asked_for() -> None:
    assert [(turn.steps, turn.discarded) for turn in TURNS] == [(1, 0), (5, 1), (17, 4)]
    assert [longer_turn(turn.steps) for turn in TURNS] == [5, 17, None]
    assert turn_of(1).turns(30) == 30
    assert turn_of(5).turns(30) == 8
    assert turn_of(17).turns(30) == 3
    assert turn_of(17).turns(100) * turn_of(17).measured >= 100


def test_the_mean_step_of_each_turn_counts_and_the_total_stays() -> None:
    base, head = steps(39)[:, None], steps(39, 120.0)[:, None]
    folded = turn_of(17).means(StepPairs(base_ns=base, head_ns=head))
    assert folded.base_ns.shape == (3, 1)
    assert float(folded.head_ns.sum()) * 13 == pytest.approx(float(head.sum()))
    assert float(folded.base_ns[1, 0]) == pytest.approx(float(base[13:26].mean()))


def test_the_stretch_alone_takes_a_quarter_of_the_time_at_most() -> None:
    for start_s, in_turn_s, step_pair_s in ((6.0, 1.2, 0.04), (10.0, 60.0, 2.0), (1.0, 3.0, 0.1)):
        alone = sum(turn.steps for turn in stretches_alone(start_s, in_turn_s, step_pair_s)) * step_pair_s
        assert alone <= 0.25 * (start_s + in_turn_s + alone) + 1e-9
    made = [[(turn.steps, turn.discarded) for turn in stretches_alone(6.0, 1.2, pair_s)] for pair_s in (0.04, 0.08)]
    assert made == [[(15, 5)] * 4, [(15, 5)] * 2]
    assert [(turn.steps, turn.discarded) for turn in stretches_alone(6.0, 1.2, 0.2)] == [(11, 4)]
    assert stretches_alone(1.0, 10.0, 1.0) == (), "too few to tell anything"


def verdict(mean: float) -> Verdict:
    rng = np.random.default_rng(2)
    base = np.full((30, 1), 1e8)
    return decide(
        [StepPairs(base_ns=base, head_ns=base * (1 + mean + 0.001 * rng.standard_normal())) for _ in range(3)]
    )


def bias(ratio: float, *, beyond: bool = True) -> Interleaving:
    effect = Effect(ratio=ratio, ci=(ratio - 0.01, ratio + 0.01))
    return Interleaving(pairs=3, bias=effect, base=1.0, head=ratio, slack=0.0, beyond=beyond)


@pytest.mark.parametrize(
    ("mean", "ratio", "state", "reason"),
    [
        (0.0, 1.1, State.UNDECIDED, Reason.INTERLEAVING_BIAS),
        (-0.1, 1.2, State.UNDECIDED, Reason.INTERLEAVING_BIAS),
        (0.1, 0.8, State.UNDECIDED, Reason.INTERLEAVING_BIAS),
        (0.1, 1.1, State.SLOWER, Reason.BEYOND_MIN_EFFECT),
        (-0.5, 1.1, State.FASTER, Reason.BEYOND_MIN_EFFECT),
    ],
)
def test_a_verdict_that_steps_alone_contradict_does_not_stand(
    mean: float, ratio: float, state: State, reason: Reason
) -> None:
    before = verdict(mean)
    found = weigh_interleaving(before, bias(ratio), None)
    assert (found.state, found.reason) == (state, reason)
    assert found.alone_ratio is not None
    assert math.log(found.alone_ratio) == pytest.approx(before.looks[-1].uncapped.mean + math.log(ratio))
    assert "alone" in found.line
    assert "bias of interleaving" in (found.detail or "")
    # Where turns can be longer it is open, whatever it said.
    longer = weigh_interleaving(before, bias(ratio), 5)
    assert (longer.state, longer.reason) == (State.UNDECIDED, Reason.MORE_PAIRS)
    assert "turns of 5 steps" in (longer.next_step or "")
    assert weigh_interleaving(before, bias(ratio, beyond=False), None) == before
    assert weigh_interleaving(before, None, None) == before
