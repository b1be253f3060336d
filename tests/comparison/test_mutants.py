"""Engines that do other work than the base: every one has to be found, whether by a rank's loss or by the end state."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import pytest
import torch
from toy_training import LAST, RANKS, Toy, pair, records

from harness.comparison import SameWork, same_work

Change = Callable[..., Any]


def compared(head: Toy, allowed: float = 0.0) -> SameWork:
    base = Toy()
    steps = [*records(base, "base"), *records(head, "head")]
    return same_work(steps, allowed, [pair(base, head)])


def made(**changes: Any) -> Toy:
    """Return a toy whose class has these attributes: values, or functions that get the original as `usual`."""
    wrapped = {name: _around(name, change) if callable(change) else change for name, change in changes.items()}
    kind: type[Toy] = type("Mutant", (Toy,), wrapped)
    return kind()


def _around(name: str, change: Change) -> Change:
    usual = getattr(Toy, name)
    return lambda self, *given: change(self, lambda *other: usual(self, *other), *given)


def _skipped(ranks: Iterable[int], steps: Iterable[int]) -> Change:
    return lambda _, usual, rank, step: None if rank in ranks and step in steps else usual(rank, step)


def _lost(layer: int, ranks: Iterable[int] = (0, 1), steps: Iterable[int] = range(99)) -> Change:
    def backward(self: Toy, usual: Change, rank: int, step: int, loss: torch.Tensor) -> None:
        usual(rank, step, loss)
        if rank in ranks and step in steps:
            self.gradients(rank)[layer].zero_()

    return backward


def _scaled(share: float, ranks: Iterable[int] = (0, 1), steps: Iterable[int] = range(99)) -> Change:
    return lambda _, usual, rank, step, loss: usual(
        rank, step, loss * share if rank in ranks and step in steps else loss
    )


def _in_place(steps: Iterable[int], change: Callable[[Toy], object]) -> Change:
    def after(self: Toy, _: Change, step: int) -> None:
        if step in steps:
            with torch.no_grad():
                change(self)

    return after


def _weights(toy: Toy, rank: int, at: int) -> torch.Tensor:
    return list(toy.models[rank].parameters())[at]


def _summed(self: Toy, usual: Change, step: int) -> None:
    usual(step)
    for rank in range(RANKS):
        for grad in self.gradients(rank):
            grad.mul_(RANKS)


def _stale(self: Toy, usual: Change, rank: int, step: int) -> None:
    """One weight keeps the value it had before the update."""
    before = _weights(self, rank, 0).clone()
    usual(rank, step)
    if rank == 1:
        with torch.no_grad():
            _weights(self, rank, 0).copy_(before)


def _twice(self: Toy, usual: Change, rank: int, step: int) -> None:
    usual(rank, step)
    if step == LAST:
        usual(rank, step)


def _forgets_momentum(self: Toy, usual: Change, rank: int, step: int) -> None:
    if step == 3:
        for speed in self.velocity[rank]:
            speed.zero_()
    usual(rank, step)


def _half(self: Toy, usual: Change, rank: int, batch: torch.Tensor, step: int) -> torch.Tensor:
    del usual, step
    with torch.autocast("cpu", torch.bfloat16):
        output: torch.Tensor = self.models[rank](batch)
    return output.float()


MUTANTS: dict[str, Callable[[], Toy]] = {
    "optimizer skipped on rank 0, once": lambda: made(update=_skipped([0], [2])),
    "optimizer skipped on rank 1, once": lambda: made(update=_skipped([1], [2])),
    "optimizer skipped on rank 0, last step": lambda: made(update=_skipped([0], [LAST])),
    "optimizer skipped on rank 1, last step": lambda: made(update=_skipped([1], [LAST])),
    "optimizer skipped everywhere, last step": lambda: made(update=_skipped([0, 1], [LAST])),
    "optimizer never called": lambda: made(update=lambda *_: None),
    "optimizer called twice in the last step": lambda: made(update=_twice),
    "learning rate one percent higher": lambda: made(lr=Toy.lr * 1.01),
    "schedule off by one": lambda: made(rate=lambda _, usual, step: usual(step + 1)),
    "schedule lost": lambda: made(rate=lambda self, *_: self.lr),
    "momentum dropped": lambda: made(momentum=0.0),
    "momentum rounded": lambda: made(momentum=0.89),
    "momentum forgotten once": lambda: made(update=_forgets_momentum),
    "weight decay dropped": lambda: made(decay=0.0),
    "weight decay doubled": lambda: made(decay=0.02),
    "gradients not clipped": lambda: made(clip_norm=lambda *_: 1e9),
    "gradients clipped at another norm": lambda: made(clip=0.11),
    "gradients clipped to nothing in the last step": lambda: made(
        clip_norm=lambda _, usual, step: 0.0 if step == LAST else usual(step)
    ),
    "gradient of the first weight lost": lambda: made(backward=_lost(0)),
    "gradient of the last bias lost": lambda: made(backward=_lost(3)),
    "gradient lost on one rank": lambda: made(backward=_lost(0, ranks=[1])),
    "gradient lost in the last step": lambda: made(backward=_lost(0, steps=[LAST])),
    "gradients halved": lambda: made(backward=_scaled(0.5), clip=0.05),
    "gradients of one rank doubled": lambda: made(backward=_scaled(2, ranks=[1])),
    "gradients kept for the next step": lambda: made(clear=lambda *_: None),
    "gradients kept on one rank": lambda: made(clear=_skipped([1], range(99))),
    "no all-reduce": lambda: made(reduce=lambda *_: None),
    "all-reduce left out once": lambda: made(reduce=lambda _, usual, step: None if step == 2 else usual(step)),
    "all-reduce left out in the last step": lambda: made(
        reduce=lambda _, usual, step: None if step == LAST else usual(step)
    ),
    "sum for mean": lambda: made(reduce=_summed, clip=Toy.clip * 2),
    "batches of the ranks swapped": lambda: made(batch=lambda _, usual, step, rank: usual(step, 1 - rank)),
    "both ranks read one batch": lambda: made(batch=lambda _, usual, step, _rank: usual(step, 0)),
    "batch of the next step": lambda: made(batch=lambda _, usual, step, rank: usual(step + 1, rank)),
    "the first batch again and again": lambda: made(batch=lambda _, usual, _step, rank: usual(0, rank)),
    "two batches swapped": lambda: made(batch=lambda _, usual, step, rank: usual({1: 2, 2: 1}.get(step, step), rank)),
    "one sample dropped": lambda: made(batch=lambda _, usual, step, rank: usual(step, rank)[:-1]),
    "batch scaled a little": lambda: made(batch=lambda _, usual, step, rank: usual(step, rank) * (1 + 1e-6)),
    "targets shifted": lambda: made(target=lambda _, usual, batch: usual(batch).roll(1, 0)),
    "seed of the parameters off": lambda: made(seed=2),
    "seed of dropout off": lambda: made(forward=lambda _, usual, rank, batch, step: usual(rank, batch, step + 1)),
    "no dropout": lambda: made(dropout=0.0),
    "dropout off on one rank": lambda: made(
        forward=lambda self, usual, rank, batch, step: self.models[rank](batch) if rank else usual(rank, batch, step)
    ),
    "bfloat16 in forward": lambda: made(forward=_half),
    "stale weight on one rank": lambda: made(update=_stale),
    "a weight rounded at the end": lambda: made(
        after=_in_place([LAST], lambda toy: _weights(toy, 1, 0).copy_(_weights(toy, 1, 0).bfloat16()))
    ),
    "a weight doubled at the end": lambda: made(after=_in_place([LAST], lambda toy: _weights(toy, 0, 3).mul_(2))),
    "layers swapped at the end": lambda: made(
        after=_in_place([LAST], lambda toy: _weights(toy, 0, 1).copy_(_weights(toy, 0, 2)[0]))
    ),
    "loss not a number on one rank, once": lambda: made(
        reported=lambda _, _usual, rank, step, loss: loss * float("nan") if (rank, step) == (1, 3) else loss
    ),
    "a constant for a loss": lambda: made(reported=lambda *_: 1.0),
    "loss shared out otherwise, the same in the mean": lambda: made(
        reported=lambda _, _usual, rank, _step, loss: loss + (0.25 if rank else -0.25)
    ),
    "no loss on one rank": lambda: made(reported=lambda _, _usual, rank, _step, loss: None if rank else loss),
    "a parameter moved to where it is not shown": lambda: made(
        after=_in_place([LAST], lambda toy: setattr(toy.models[1], "parameters", lambda: iter(())))
    ),
}


def test_the_same_engine_does_the_same_work() -> None:
    found = compared(Toy())
    assert found.within_tolerance
    assert (found.steps_compared, found.ends_compared, found.not_a_number) == (6, 1, 0)


@pytest.mark.parametrize("name", MUTANTS)
def test_other_work_is_found(name: str) -> None:
    found = compared(MUTANTS[name]())
    assert not found.within_tolerance
    assert found.first_difference is not None


@pytest.mark.parametrize("name", ["batch scaled a little", "optimizer skipped on rank 1, last step"])
def test_the_tolerance_that_is_named_accepts_it(name: str) -> None:
    difference = compared(MUTANTS[name]()).first_difference
    assert difference is not None
    named = float(difference.detail.partition("compare.loss_tolerance=")[2].partition(" ")[0])
    again = compared(MUTANTS[name](), named).first_difference
    assert again is None or (again.relative is not None and again.relative > named)
    assert again is None or (again.step, again.what) != (difference.step, difference.what)


@pytest.mark.parametrize(
    ("name", "where"),
    [
        ("batch scaled a little", "loss differs at step 0 of launch pair 1, rank 0: "),
        ("a weight doubled at the end", "differs after step 5 of launch pair 1, rank 0, though the losses agree: "),
    ],
)
def test_the_line_says_when_the_sides_part(name: str, where: str) -> None:
    difference = compared(MUTANTS[name]()).first_difference
    assert difference is not None
    assert where in difference.detail


def test_what_has_diverged_on_both_sides_is_the_same_and_said() -> None:
    base, head = (made(reported=lambda *_: float("nan")) for _ in range(2))
    found = same_work([*records(base, "base"), *records(head, "head")], 0.0)
    assert (found.within_tolerance, found.steps_compared, found.not_a_number) == (True, 6, 6)
