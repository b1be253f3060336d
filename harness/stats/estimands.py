"""What a duel estimates: head's total time over base's, the same steps; beside it the typical step.

Users pay the total. But the plain total of a launch follows the machine's hiccups, which are tens of per cent of a
short launch. A hiccup meets one launch; a cost of the code comes back at its step index in every launch of its side,
since all have the same seed and batches. So a step that stands out of its launch is *capped*:

    r[k, i]  = step i of launch k over the median step of that launch
    limit[i] = the larger of  the ⌈K/3⌉-th largest r[·, i] of the side's K launches (the second largest at least)
                         and  1 + 3 robust standard deviations of all r of the side
    capped   = median of the launch × min(r[k, i], limit[i])

Dividing by the launch's median keeps the luck of whole launches out of the comparison between launches. Capping at the
plain second largest of each index, without it, ties launch pairs together: at a nominal 0.5 % a side it alarmed in
2.0 % of duels of three pairs, this in 0.5 % (benchmarks/estimands.py has the table of what was tried).

A launch pair k then gives three differences of logarithms:

    total     ln(Σ capped head / Σ capped base): what is judged first
    typical   the median over its step pairs of ln(head / base)
    uncapped  ln(Σ head / Σ base): what a cost at no fixed step index, which the cap mistakes for hiccups, shows in

A step's time is the maximum over ranks, since every rank waits for the slowest.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from harness.stats.paired import FloatArray, StepPairs, UnusableError, step_times

ORDINARY_SCATTER: Final = 3.0
"""A step within so many robust standard deviations of its launch's median is never cut."""
COMES_BACK_IN: Final = 3
"""A cost at an index counts as the code's when one launch in three shows it, two at least."""
_MAD_TO_SD: Final = 1.4826
"""Median absolute deviation to standard deviation of a normal distribution."""


@dataclass(frozen=True, kw_only=True)
class PairDifference:
    """What one launch pair says. Differences are ln(head/base); times are of one step, ns, slowest rank."""

    total: float
    typical: float
    uncapped: float
    base_ns: float
    """Mean of the capped steps."""
    head_ns: float
    base_typical_ns: float
    """Median of the steps."""
    head_typical_ns: float
    base_cut_steps: int
    """Steps that the cap took for hiccups of the machine."""
    head_cut_steps: int
    steps: int


@dataclass(frozen=True, kw_only=True, eq=False)
class CappedSteps:
    """Steps of one side, (launches, steps) ns. A launch with fewer steps than the longest ends in NaN."""

    capped_ns: FloatArray
    cut: NDArray[np.bool_]


def cap_steps(times_ns: FloatArray) -> CappedSteps:
    """Cap the (launches, steps) times of one side, see the module's text. One launch has nothing to be held against."""
    if len(times_ns) < 2:
        return CappedSteps(capped_ns=times_ns.copy(), cut=np.zeros(times_ns.shape, dtype=np.bool_))
    typical_ns = np.nanmedian(times_ns, axis=1, keepdims=True)  # (launches, 1) ns
    relative = times_ns / typical_ns  # (launches, steps)
    rank = max(2, math.ceil(len(times_ns) / COMES_BACK_IN))
    # (steps,): an index that fewer launches reached counts as shown by none of the others.
    shown_again = np.sort(np.where(np.isnan(relative), -np.inf, relative), axis=0)[-rank]
    scatter = _MAD_TO_SD * float(np.nanmedian(np.abs(relative - 1)))
    limit = np.maximum(shown_again, 1 + ORDINARY_SCATTER * scatter)  # (steps,)
    cut = relative > limit
    return CappedSteps(capped_ns=np.where(cut, typical_ns * limit, times_ns), cut=cut)


@dataclass(frozen=True, kw_only=True, eq=False)
class CappedPairs:
    """Launch pairs with the hiccups of both sides capped. `times_ns` has the plain steps of base and head, (steps,)."""

    times_ns: list[tuple[FloatArray, FloatArray]]
    base: CappedSteps
    head: CappedSteps

    def counted_shares(self, pair: int) -> tuple[FloatArray, FloatArray]:
        """Return the share of each step that counts, 1 unless it was cut, of base and head: (steps,) each."""
        base_ns, head_ns = self.times_ns[pair]
        count = len(base_ns)
        return self.base.capped_ns[pair, :count] / base_ns, self.head.capped_ns[pair, :count] / head_ns


def cap_pairs(pairs: Sequence[StepPairs]) -> CappedPairs:
    """Cap the steps of these launch pairs, all of them taken together. At least one.

    Raises `UnusableError` naming the launch pair (from 1) if a side has no steps, the sides differ in steps or ranks,
    or a time is not positive.
    """
    times = []
    for number, pair in enumerate(pairs, start=1):
        try:
            times.append(step_times(pair))
        except UnusableError as error:
            raise UnusableError(error.problem, f"launch pair {number}: {error}") from error
    return CappedPairs(
        times_ns=times,
        base=cap_steps(_matrix([base_ns for base_ns, _ in times])),
        head=cap_steps(_matrix([head_ns for _, head_ns in times])),
    )


def pair_differences(pairs: Sequence[StepPairs]) -> list[PairDifference]:
    """Return what each of these launch pairs says, all of them taken together for the cap. Errors: see `cap_pairs`."""
    if not pairs:
        return []
    capped = cap_pairs(pairs)
    base, head = capped.base, capped.head
    return [
        PairDifference(
            total=math.log(np.nansum(head.capped_ns[k]) / np.nansum(base.capped_ns[k])),
            typical=float(np.median(np.log(head_ns / base_ns))),
            uncapped=math.log(head_ns.sum() / base_ns.sum()),
            base_ns=float(np.nanmean(base.capped_ns[k])),
            head_ns=float(np.nanmean(head.capped_ns[k])),
            base_typical_ns=float(np.median(base_ns)),
            head_typical_ns=float(np.median(head_ns)),
            base_cut_steps=int(base.cut[k].sum()),
            head_cut_steps=int(head.cut[k].sum()),
            steps=len(base_ns),
        )
        for k, (base_ns, head_ns) in enumerate(capped.times_ns)
    ]


def _matrix(rows: Sequence[FloatArray]) -> FloatArray:
    """Put launches of perhaps unequal length into one (launches, steps) array, NaN behind the end of the shorter."""
    table = np.full((len(rows), max(map(len, rows))), np.nan)
    for k, row in enumerate(rows):
        table[k, : len(row)] = row
    return table
