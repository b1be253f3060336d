"""What grows from step to step: memory that leaks, a step that gets slower.

Each launch gives one slope, the median of the slopes of all pairs of its steps (Theil and Sen), which a jump or a few
odd steps do not move. An interval over the slopes of launches says whether they agree (`comparison.launch_figures`).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Final

import numpy as np

from harness.stats.paired import FloatArray, mean_interval, t_interval
from harness.stats.variance_prior import MAX_LENT_DOF, VariancePrior

FALSE_TRENDS: Final = 0.005
"""Share of same-code duels that may be said to get slower, and share of them in which memory may be said to grow,
whichever figure of it: 1 % in all."""
FEWEST_STEPS: Final = 4
"""Launches with fewer steps show no slope."""
PARTS: Final = 10
"""Parts of a launch whose scatter around its trend tells how well the slope is known: so many that they say it, so few
that swings over many steps count as scatter."""
NORMAL_MAD: Final = 1.4826
"""Standard deviation of a normal distribution by its median absolute deviation."""
FAR_STEP: Final = 10_000
"""A trend is told as what it comes to by this step."""


def confidence_of(trends: int) -> float:
    """Return the confidence of the two-sided interval of each of so many figures of one kind; only growth is told."""
    return 1 - 2 * FALSE_TRENDS / trends


def slope(values: FloatArray, steps: Sequence[int] | None = None) -> float:
    """Return the median slope over all pairs of the (steps,) values; NaN for fewer than two.

    `steps` says at which steps they were measured, rising; one after the other without it.
    """
    if len(values) < 2:
        return math.nan
    at = np.arange(len(values)) if steps is None else np.asarray(steps)
    first, second = np.triu_indices(len(values), k=1)  # (pairs of steps,)
    return float(np.median((values[second] - values[first]) / (at[second] - at[first])))


def slope_variance(values: FloatArray, steps: Sequence[int]) -> float:
    """Return the variance of `slope` that the scatter within the launch explains; NaN for fewer values than `PARTS`."""
    if len(values) < PARTS:
        return math.nan
    at = np.asarray(steps, dtype=np.float64)
    rest = np.array([np.median(part) for part in np.array_split(values - slope(values, steps) * at, PARTS)])
    centre = np.array([part.mean() for part in np.array_split(at, PARTS)])
    variance = (NORMAL_MAD * float(np.median(np.abs(rest - np.median(rest))))) ** 2
    return variance / float(((centre - centre.mean()) ** 2).sum())


def slope_interval(slopes: FloatArray, confidence: float, within: FloatArray | None = None) -> tuple[float, float]:
    """Return the two-sided interval of the mean of launches' slopes, (launches,) of two at least.

    `within` are their `slope_variance`s. Slopes of same-code launches scatter hardly more than those explain, so they
    lend to the scatter of a few launches as same-code duels do: it may count as more certain, never as smaller.
    """
    count, mean = len(slopes), slopes.mean(keepdims=True)
    if within is None or np.isnan(within).any():
        low, high, _ = mean_interval(slopes[:, None], confidence)
    else:
        prior = VariancePrior(dof=MAX_LENT_DOF, variance=float(within.mean()), duels=0)
        variance, dof = prior.pooled(float(slopes.var(ddof=1)), count)
        low, high, _ = t_interval(mean, np.full(1, math.sqrt(variance / count)), dof, confidence)
    if math.isnan(low[0]):  # launches that agree exactly, as allocators do, have an interval of no width
        return float(mean[0]), float(mean[0])
    return float(low[0]), float(high[0])
