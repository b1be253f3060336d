"""Where a series of step times changed its level: the best cut into levels, each change held to a t-test. Pure.

Of all cuts of the logarithms into levels, the one with the least squared error plus `PENALTY` · σ² · ln(n) a change is
found exactly by dynamic programming (Jackson et al. 2005, doi:10.1109/LSP.2001.838216); σ² is half the mean squared
difference of neighbours, which a change of level hardly enters (von Neumann 1941). Then changes beside a level of fewer
than `MIN_POINTS`, less significant than `MAX_P` or smaller than `MIN_MAGNITUDE` are dropped one by one, in this order
and the weakest first, each time with the two levels beside it made one. Odd points thus are cut out before they are
taken in, instead of taking good ones with them to be a level.

All changes are weighed together: a search that halves the series again and again misses a level that went up and came
back. `benchmarks/change_points.py` measures that, docs/decisions.md has the figures.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Final

import numpy as np
from numpy.typing import NDArray
from scipy import special

MIN_MAGNITUDE: Final = 0.02
"""Smallest relative change of level that is one."""
MIN_POINTS: Final = 3
"""Points that a level needs on either side of its change: one odd point is no new level."""
MAX_P: Final = 0.001
PENALTY: Final = 3.0

Float64Array = NDArray[np.float64]


@dataclass(frozen=True, kw_only=True)
class ChangePoint:
    """A new level from point `index` on. `ratio` is its mean over the mean of the level before."""

    index: int
    ratio: float
    p: float

    @property
    def magnitude(self) -> float:
        """The change as a share of the lower level."""
        return max(self.ratio, 1 / self.ratio) - 1


def change_points(values: Sequence[float]) -> list[ChangePoint]:
    """Return where the level of `values` (positive, in order) changed by at least `MIN_MAGNITUDE`.

    Raises ValueError for a value that is not a positive number.
    """
    if not all(math.isfinite(value) and value > 0 for value in values):
        raise ValueError("change points: expected positive numbers")
    if len(values) < 2 * MIN_POINTS:
        return []
    return significant(values, _best_edges(np.log(values)))


def significant(values: Sequence[float], edges: Sequence[int]) -> list[ChangePoint]:
    """Return the changes at the inner `edges` of levels that are left once the weakest are dropped, one by one."""
    edges = list(edges)
    while len(edges) > 2:
        found = [_change(values, *three) for three in zip(edges, edges[1:], edges[2:], strict=False)]
        points = np.diff(edges)
        cramped = [found[place] for place in np.flatnonzero(np.minimum(points[:-1], points[1:]) < MIN_POINTS)]
        weakest = max(cramped or found, key=lambda change: change.p)
        if not cramped and weakest.p < MAX_P:
            weakest = min(found, key=lambda change: change.magnitude)
            if weakest.magnitude >= MIN_MAGNITUDE:
                return found
        edges.remove(weakest.index)
    return []


def penalty(logs: Float64Array) -> float:
    """Return how much squared error a change has to save to be worth one."""
    return PENALTY * float(np.mean(np.diff(logs) ** 2)) / 2 * math.log(len(logs))


def _best_edges(logs: Float64Array) -> list[int]:
    """Return the edges of the best cut of `logs` (points,) into levels, 0 and the number of points among them."""
    centred = logs - logs.mean()
    count = len(centred)
    price = penalty(centred)
    sums = np.concatenate(([0.0], np.cumsum(centred)))  # (points + 1,)
    cost = np.full(count + 1, np.inf)  # of the best cut of all points before an edge
    cost[0] = -price
    before = np.zeros(count + 1, np.int64)  # the edge before the last of that cut
    for end in range(1, count + 1):
        starts = np.arange(end)
        # Squared error but for the points' own squares, which add up to the same in every cut.
        errors = -((sums[end] - sums[starts]) ** 2) / (end - starts)
        costs = cost[starts] + errors + price
        best = int(np.argmin(costs))
        cost[end], before[end] = costs[best], starts[best]
    edges = [count]
    while edges[-1]:
        edges.append(int(before[edges[-1]]))
    return edges[::-1]


def _change(values: Sequence[float], first: int, index: int, last: int) -> ChangePoint:
    """Return the change at `index` between the levels `[first, index)` and `[index, last)`, with Student's t-test."""
    left, right = np.log(values[first:index]), np.log(values[index:last])
    freedom = len(left) + len(right) - 2
    scatter = float(((left - left.mean()) ** 2).sum() + ((right - right.mean()) ** 2).sum()) / max(freedom, 1)
    error = math.sqrt(scatter * (1 / len(left) + 1 / len(right)))
    distance = abs(float(right.mean() - left.mean()))
    p = 2 * float(special.stdtr(freedom, -distance / error)) if error else float(distance == 0 or not freedom)
    return ChangePoint(index=index, ratio=fmean(values[index:last]) / fmean(values[first:index]), p=p)
