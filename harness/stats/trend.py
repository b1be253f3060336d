"""What grows from step to step: memory that leaks, a step that gets slower.

Each launch gives one slope, the median of the slopes of all pairs of its steps (Theil and Sen), which a jump or a few
odd steps do not move. An interval over the slopes of launches says whether they agree (`comparison.launch_figures`).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Final

import numpy as np

from harness.stats.paired import FloatArray

CONFIDENCE: Final = 0.99
"""Of the interval over launches."""
FEWEST_STEPS: Final = 4
"""Launches with fewer steps show no slope."""


def slope(values: FloatArray, steps: Sequence[int] | None = None) -> float:
    """Return the median slope over all pairs of the (steps,) values; NaN for fewer than two.

    `steps` says at which steps they were measured, rising; one after the other without it.
    """
    if len(values) < 2:
        return math.nan
    at = np.arange(len(values)) if steps is None else np.asarray(steps)
    first, second = np.triu_indices(len(values), k=1)  # (pairs of steps,)
    return float(np.median((values[second] - values[first]) / (at[second] - at[first])))
