"""Whether both sides computed the same thing: their losses, step by step, warm-up included.

Both sides get the same seed and batches, so the losses of a step must agree; a side that is faster because it computes
something else is no faster side.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

from harness.store import DuelStepRecord

OTHER_CODE_PATH_TOLERANCE = 1e-5
"""Least relative tolerance where the sides run different versions of torch: kernels may add in another order."""


@dataclass(frozen=True, kw_only=True)
class FirstDifference:
    """The first step at which the losses differ by more than the tolerance. None is a step without a loss."""

    pair: int
    step: int
    """Counted from the first warm-up step, 0."""
    base_loss: float | None
    head_loss: float | None

    @property
    def detail(self) -> str:
        """One line for people."""
        return (
            f"losses part at step {self.step} of launch pair {self.pair}: "
            f"base {_shown(self.base_loss)}, head {_shown(self.head_loss)}"
        )


@dataclass(frozen=True, kw_only=True)
class SameWork:
    """How far the losses of both sides agree. `within_tolerance` holds for every step compared."""

    within_tolerance: bool
    steps_compared: int
    max_abs_diff: float | None
    """Largest |head - base| of two finite losses; None where no two were compared."""
    tolerance: float
    first_difference: FirstDifference | None


def tolerance(stated: float, base_versions: object, head_versions: object) -> float:
    """Return the relative tolerance: the scenario's, and at least 1e-5 where the sides run other versions."""
    return stated if base_versions == head_versions else max(stated, OTHER_CODE_PATH_TOLERANCE)


def same_work(steps: Iterable[DuelStepRecord], allowed: float) -> SameWork:
    """Compare rank 0's losses of both sides. `allowed` is relative to the larger loss; 0 asks for equal numbers.

    A step where neither side has a loss is not compared; the database keeps not-a-number as no loss.
    """
    losses: dict[tuple[int, int], dict[str, float | None]] = {}
    for step in steps:
        if step.rank == 0:
            losses.setdefault((step.pair, step.sequence), {})[step.side] = step.loss
    compared, largest, first = 0, None, None
    for (pair, sequence), sides in sorted(losses.items()):
        if len(sides) < 2 or sides["base"] is sides["head"] is None:
            continue
        compared += 1
        base, head = sides["base"], sides["head"]
        if base is not None and head is not None and math.isfinite(base) and math.isfinite(head):
            largest = max(largest or 0.0, abs(head - base))
        if first is None and not _agree(base, head, allowed):
            first = FirstDifference(pair=pair, step=sequence, base_loss=base, head_loss=head)
    return SameWork(
        within_tolerance=first is None,
        steps_compared=compared,
        max_abs_diff=largest,
        tolerance=allowed,
        first_difference=first,
    )


def _agree(base: float | None, head: float | None, allowed: float) -> bool:
    if base is None or head is None:
        return False
    if not (math.isfinite(base) and math.isfinite(head)):
        return base == head
    return abs(head - base) <= allowed * max(abs(base), abs(head))


def _shown(loss: float | None) -> str:
    return "none" if loss is None else repr(loss)
