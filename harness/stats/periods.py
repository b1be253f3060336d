"""Finds what head pays at every Nth step: a checkpoint, a log, a collection.

The profile of a side is the median over its launches of each step relative to its launch's median step. Hiccups of the
machine, which meet a step index in one launch, are not in it; what the code does at an index is. Steps at which head's
profile stands out above base's by more than scatter make a period where they are equally far apart.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

import numpy as np

from harness.stats.paired import FloatArray

STANDS_OUT: Final = 5.0
"""Robust standard deviations of the difference of the profiles from which on a step stands out."""
LEAST_SHARE: Final = 0.02
"""A step that costs less than this more, of a typical step, is not named."""
FEWEST_TIMES: Final = 3
"""Times that a period must be seen. N steps can show periods of up to N / 3."""
ALIKE: Final = 0.3
"""A step counts with the dearest one if it costs at least this share of it more."""
REGULAR: Final = 0.8
"""Share of the steps that stand out which must lie on the period, and of the period's which must stand out."""
_MAD_TO_SD: Final = 1.4826
_MEDIAN_TO_MEAN: Final = 1.2533
"""Standard error of a median over that of a mean, of normal values."""
_QUANTILES_APART: Final = 0.9704
"""Standard deviations between the 5 % and the 25 % quantile of a normal distribution."""


@dataclass(frozen=True, kw_only=True)
class Period:
    """`extra_ns` more in head at steps `first`, `first + every`, …, counted from the first measured step.

    Below 0 it is base that pays. `path` is the range in which that happens, where it is known.
    """

    every: int
    first: int
    extra_ns: float
    path: str | None = None


def longest_period(steps: int) -> int:
    """Return the longest period that launches of so many measured steps can show."""
    return steps // FEWEST_TIMES


def find_period(base_ns: Sequence[FloatArray], head_ns: Sequence[FloatArray]) -> Period | None:
    """Return what one side pays periodically beyond the other, or None. Each item is one launch: (steps,) ns.

    Launches of unequal length are cut to the shortest. Where both sides have a period of their own, head's is told.
    """
    found = _dearer(base_ns, head_ns)
    if found is not None:
        return found
    saved = _dearer(head_ns, base_ns)
    return None if saved is None else replace(saved, extra_ns=-saved.extra_ns)


def _dearer(base_ns: Sequence[FloatArray], head_ns: Sequence[FloatArray]) -> Period | None:
    count = min((len(one) for one in (*base_ns, *head_ns)), default=0)
    if count < 2 * FEWEST_TIMES:
        return None
    (base, base_scatter), (head, head_scatter) = _profile(base_ns, count), _profile(head_ns, count)
    typical_ns = float(np.median([np.median(one[:count]) for one in head_ns]))
    extra = head - base  # (steps,) typical steps
    # Every second step may stand out, so only the lower half tells what is ordinary and how it scatters.
    lowest, low = np.quantile(extra, (0.05, 0.25))
    scatter = max(float(low - lowest) / _QUANTILES_APART, math.hypot(base_scatter, head_scatter))
    above = extra - low
    # What comes back costs about the same each time: lesser steps are scatter beside it.
    stands_out = above > max(STANDS_OUT * scatter, LEAST_SHARE, ALIKE * float(above.max()))
    found = _regular(np.flatnonzero(stands_out), count)
    if found is None:
        return None
    every, first = found
    on = np.arange(first, count, every)
    return Period(
        every=every, first=first, extra_ns=float(np.mean(extra[on]) - np.median(extra[~stands_out])) * typical_ns
    )


def _profile(launches: Sequence[FloatArray], count: int) -> tuple[FloatArray, float]:
    """The (steps,) medians over launches, and by how much such a median scatters, robustly, from what it leaves."""
    relative = np.array([one[:count] / np.median(one[:count]) for one in launches])  # (launches, steps)
    profile: FloatArray = np.median(relative, axis=0)
    scatter = _MAD_TO_SD * float(np.median(np.abs(relative - profile)))
    return profile, _MEDIAN_TO_MEAN * scatter / math.sqrt(len(launches))


def _regular(steps: np.ndarray[tuple[int, ...], np.dtype[np.int64]], count: int) -> tuple[int, int] | None:
    """The distance and the first of steps that are equally far apart; None if they are too few or too irregular."""
    if len(steps) < FEWEST_TIMES:
        return None
    gaps = Counter(np.diff(steps).tolist())
    every = max(gaps, key=lambda gap: (gaps[gap], gap))
    if every < 2:  # more than every other step: that is the typical step
        return None
    phase = Counter((steps % every).tolist()).most_common(1)[0][0]
    on = set(range(phase, count, every))
    hits = len(on & set(steps.tolist()))
    regular = hits >= REGULAR * len(steps) and hits >= REGULAR * len(on) and hits >= FEWEST_TIMES
    return (every, phase) if regular else None
