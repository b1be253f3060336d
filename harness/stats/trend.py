"""What grows from step to step: memory that leaks, a step that gets slower.

Each launch gives one slope, the median of the slopes of all pairs of its steps (Theil and Sen), which a jump or a few
odd steps do not move. The launches agree or not: a t interval over their slopes says so.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from harness.stats.paired import FloatArray, sample_variance, t_quantile

CONFIDENCE: Final = 0.99
FEWEST_STEPS: Final = 4
"""Launches with fewer steps show no slope."""


@dataclass(frozen=True, kw_only=True)
class Trend:
    """Growth a step in the unit of the series, its interval over launches, and how many launches gave it."""

    per_step: float
    low: float
    high: float
    launches: int

    @property
    def grows(self) -> bool:
        """Whether the launches agree that it grows."""
        return self.low > 0


def slope(values: FloatArray, steps: Sequence[int] | None = None) -> float:
    """Return the median slope over all pairs of the (steps,) values; NaN for fewer than two.

    `steps` says at which steps they were measured, rising; one after the other without it.
    """
    if len(values) < 2:
        return math.nan
    at = np.arange(len(values)) if steps is None else np.asarray(steps)
    first, second = np.triu_indices(len(values), k=1)  # (pairs of steps,)
    return float(np.median((values[second] - values[first]) / (at[second] - at[first])))


def trend(series: Sequence[FloatArray], less: Sequence[FloatArray] | None = None) -> Trend | None:
    """Return the growth that these launches show, each (steps,); with `less`, beyond that of the other side's launches.

    None for fewer than two launches of at least `FEWEST_STEPS` steps: one launch's slope has no interval. Launches that
    agree exactly, as allocators do, have an interval of no width.
    """
    slopes = [slope(one) for one in series]
    if less is not None:
        slopes = [own - slope(other) for own, other in zip(slopes, less, strict=True)]
    long_enough = all(len(one) >= FEWEST_STEPS for one in (*series, *(less or ())))
    if len(slopes) < 2 or not long_enough:
        return None
    mean, error = float(np.mean(slopes)), math.sqrt(sample_variance(slopes) / len(slopes))
    half = t_quantile(0.5 + CONFIDENCE / 2, len(slopes) - 1) * error
    return Trend(per_step=mean, low=mean - half, high=mean + half, launches=len(slopes))
