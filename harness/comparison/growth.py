"""Where memory grows from step to step: in which of the worker's own ranges, which lie directly in the step.

What counts is what is allocated, by the device's allocator or by malloc, not the resident set: what keeps memory that
another range has freed makes that other range's resident set grow.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from harness.names import PATH_SEPARATOR, STEP
from harness.stats.trend import slope_interval
from harness.store import SideName
from harness.units import bytes_text

CONFIDENCE: Final = 0.99
"""Of the interval of the place that grows most, all places that might have been it taken into account."""

RangeGrowth = Mapping[tuple[int, SideName, str], float]
"""Bytes a step by launch pair, side and path."""


@dataclass(frozen=True, kw_only=True)
class Growing:
    """The place in which memory grows most, head's beyond base's in bytes a step."""

    path: str
    delta: float
    low: float
    high: float

    @property
    def text(self) -> str:
        """The same for people."""
        name = self.path.removeprefix(f"{STEP}{PATH_SEPARATOR}")
        return f"in {name}: {bytes_text(self.delta)} [{bytes_text(self.low)}, {bytes_text(self.high)}]"


def growing_place(growth: RangeGrowth, pairs: Sequence[int]) -> Growing | None:
    """Return the range that surely grows and by most; None if none does. One that a side lacks grows by 0 there."""
    paths = sorted({path for _, _, path in growth})
    places = {
        path: [growth.get((pair, "head", path), 0.0) - growth.get((pair, "base", path), 0.0) for pair in pairs]
        for path in paths
    }
    if not places or len(pairs) < 2:
        return None
    path = max(places, key=lambda path: float(np.mean(places[path])))
    low, high = slope_interval(np.array(places[path]), 1 - (1 - CONFIDENCE) / len(places))
    delta = float(np.mean(places[path]))
    return Growing(path=path, delta=delta, low=low, high=high) if low > 0 else None
