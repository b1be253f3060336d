"""Losses of both sides, step by step."""

from __future__ import annotations

import math
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.comparison import same_work
from harness.comparison.same_work import tolerance
from harness.store import DuelStepRecord, SideName


def step(side: SideName, sequence: int, loss: float | None, *, pair: int = 1, rank: int = 0) -> DuelStepRecord:
    return DuelStepRecord(
        pair=pair,
        side=side,
        sequence=sequence,
        rank=rank,
        slot=0,
        measured=sequence > 0,
        began_ns=0,
        duration_ns=1,
        loss=loss,
        tokens=None,
        figures={},
    )


def both(base: list[float | None], head: list[float | None]) -> list[DuelStepRecord]:
    rows = [step("base", index, loss) for index, loss in enumerate(base)]
    return [*rows, *(step("head", index, loss) for index, loss in enumerate(head))]


losses = st.lists(st.floats(-1e6, 1e6), min_size=1, max_size=8)


@given(losses, st.floats(0, 0.1), st.randoms(use_true_random=False))
def test_against_a_plain_loop(base: list[float], allowed: float, shuffled: random.Random) -> None:
    head = [value * (1 + shuffled.choice([0, 0, 0.01, 0.2])) for value in base]
    rows = both(list(base), list(head))
    shuffled.shuffle(rows)
    found = same_work(rows, allowed)
    parted = [i for i, (b, h) in enumerate(zip(base, head, strict=True)) if abs(h - b) > allowed * max(abs(b), abs(h))]
    assert found.steps_compared == len(base)
    assert found.max_abs_diff == max(abs(h - b) for b, h in zip(base, head, strict=True))
    assert found.within_tolerance == (not parted)
    assert (found.first_difference.step if found.first_difference else None) == (parted[0] if parted else None)


def test_the_first_parting_is_that_of_the_earliest_launch_pair() -> None:
    rows = [*both([1.0, 2.0], [1.0, 2.5]), step("base", 0, 1.0, pair=2), step("head", 0, 1.5, pair=2)]
    found = same_work(reversed(rows), 0.0)
    assert found.first_difference is not None
    assert (found.first_difference.pair, found.first_difference.step, found.first_difference.head) == (1, 1, 2.5)


@pytest.mark.parametrize(
    ("base", "head", "identical", "compared"),
    [
        (None, None, True, 0),
        (1.0, None, False, 1),
        (math.inf, math.inf, True, 1),
        (math.inf, 1.0, False, 1),
        (math.inf, -math.inf, False, 1),
    ],
)
def test_steps_without_a_plain_loss(base: float | None, head: float | None, identical: bool, compared: int) -> None:
    found = same_work(both([base], [head]), 0.5)
    assert (found.within_tolerance, found.steps_compared) == (identical, compared)


def test_a_step_that_only_one_side_made_is_not_compared() -> None:
    assert same_work(both([1.0, 2.0], [1.0]), 0.0).steps_compared == 1


def test_other_versions_loosen_the_tolerance_and_never_tighten_it() -> None:
    assert tolerance(0.0, {"torch": "2.6"}, {"torch": "2.6"}) == 0.0
    assert tolerance(0.0, {"torch": "2.6"}, {"torch": "2.13"}) == 1e-5
    assert tolerance(1e-3, {"torch": "2.6"}, {"torch": "2.13"}) == 1e-3
