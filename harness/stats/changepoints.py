"""Where a series of step times changed its level: E-divisive with a t-test, as Apache Otava does it.

Otava splits the series recursively where the energy distance of both parts is largest, then drops splits that a t-test
or the smallest magnitude does not support (Fleming et al. 2023, doi:10.1145/3578244.3583719). Splits that leave fewer
than `MIN_POINTS` points on a side are dropped here: one odd point is no new level.

Otava is optional. Only its module `otava.analysis` is used, which needs numpy and scipy alone; but its distribution
requires database, cloud and chat clients and an older numpy, so it is installed without its dependencies
(`pip install --no-deps apache-otava`; `make setup` does).
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

MIN_MAGNITUDE: Final = 0.02
"""Smallest relative change of level that is one."""
MIN_POINTS: Final = 3
"""Points that a level needs on either side of its change."""
MAX_P: Final = 0.001


class OtavaMissingError(Exception):
    """Apache Otava is not installed; the text says how to get it."""

    def __init__(self) -> None:
        super().__init__("change points need Apache Otava: pip install --no-deps apache-otava")


@dataclass(frozen=True, kw_only=True)
class ChangePoint:
    """A new level from point `index` on. `ratio` is its mean over the mean of the level before."""

    index: int
    ratio: float
    p: float


def change_points(values: Sequence[float]) -> list[ChangePoint]:
    """Return where the level of `values` (positive, in order) changed by at least `MIN_MAGNITUDE`.

    Raises OtavaMissingError without Apache Otava, and ValueError for a value that is not a positive number.
    """
    if not all(math.isfinite(value) and value > 0 for value in values):
        raise ValueError("change points: expected positive numbers")
    try:
        from otava.analysis import compute_change_points
    except ImportError as error:
        raise OtavaMissingError from error
    if len(values) < 2 * MIN_POINTS:
        return []
    found, _ = compute_change_points(list(values), max_pvalue=MAX_P, min_magnitude=MIN_MAGNITUDE)
    return _with_room([(int(point.index), float(point.stats.pvalue)) for point in found], values)


def _with_room(found: Sequence[tuple[int, float]], values: Sequence[float]) -> list[ChangePoint]:
    """Keep the splits whose two levels have enough points, dropping the least significant one first."""
    kept = sorted(found)
    while cramped := [item for item in kept if _room(item[0], [index for index, _ in kept], len(values)) < MIN_POINTS]:
        kept.remove(max(cramped, key=lambda item: item[1]))
    edges = [0, *(index for index, _ in kept), len(values)]
    means = [math.fsum(values[a:b]) / (b - a) for a, b in itertools.pairwise(edges)]
    return [
        ChangePoint(index=index, ratio=means[place + 1] / means[place], p=p) for place, (index, p) in enumerate(kept)
    ]


def _room(index: int, kept: Sequence[int], count: int) -> int:
    """Points of the shorter of the two levels beside a split."""
    before = max((other for other in kept if other < index), default=0)
    after = min((other for other in kept if other > index), default=count)
    return min(index - before, after - index)
