"""Step times of launch pairs, and the intervals and tests on a handful of numbers that come of them.

The unit of evidence is the launch pair, never the step: the steps of one process share its luck (hash seed, address
layout, thread placement), so forty of them weigh as two or three. `estimands` says what a launch pair counts with.
Logarithms make "twice as slow" and "twice as fast" the same distance, and small ones are fractions.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

import numpy as np
from numpy.typing import NDArray
from scipy import special

FloatArray = NDArray[np.float64]

SMALLEST_SPREAD = 1e-9
"""Launch pairs that all agree this closely (as a fraction) were not timed: a nanosecond of a one-second step."""


class Problem(StrEnum):
    """Why step times cannot be judged. Each is also a reason code of an `invalid` verdict."""

    NO_STEPS = "no_steps"
    UNEQUAL_STEPS = "unequal_steps"
    UNEQUAL_RANKS = "unequal_ranks"
    NOT_A_TIME = "not_a_time"
    ZERO_VARIANCE = "zero_variance"


class UnusableError(Exception):
    """Step times that no statistic may be computed from. `problem` is the reason code, the text says what was seen."""

    def __init__(self, problem: Problem, message: str) -> None:
        super().__init__(message)
        self.problem = problem


@dataclass(frozen=True, kw_only=True, eq=False)
class StepPairs:
    """Step times of one launch pair after its warm-up, in nanoseconds: arrays of shape (steps, ranks).

    Row i of both sides is one step pair: the same step, on the same batch, taken in turn.
    """

    base_ns: NDArray[np.generic]
    head_ns: NDArray[np.generic]


def step_times(pair: StepPairs) -> tuple[FloatArray, FloatArray]:
    """Return base's and head's step times, (steps,) ns each: of every step its slowest rank's.

    Raises `UnusableError` if a side has no steps, the sides differ in steps or ranks, or a time is not positive.
    """
    base_ns, head_ns = _slowest_rank(pair.base_ns, "base"), _slowest_rank(pair.head_ns, "head")
    if len(base_ns) != len(head_ns):
        raise UnusableError(
            Problem.UNEQUAL_STEPS, f"base has {len(base_ns)} steps and head {len(head_ns)}; step pairs need both"
        )
    base_ranks, head_ranks = np.shape(pair.base_ns)[1], np.shape(pair.head_ns)[1]
    if base_ranks != head_ranks:
        raise UnusableError(Problem.UNEQUAL_RANKS, f"base ran on {base_ranks} ranks and head on {head_ranks}")
    return base_ns, head_ns


def _slowest_rank(durations_ns: NDArray[np.generic], side: str) -> FloatArray:
    """Maximum over ranks of a (steps, ranks) array, checked."""
    times = np.asarray(durations_ns, dtype=np.float64)
    if times.ndim != 2:
        raise ValueError(f"{side}: step times have shape {times.shape}, expected (steps, ranks)")
    if times.size == 0:
        raise UnusableError(Problem.NO_STEPS, f"{side} measured no step")
    # The maximum of a row with NaN is NaN, but a rank's zero or negative time would hide behind another rank's.
    if not (np.isfinite(times).all() and (times > 0).all()):
        raise UnusableError(Problem.NOT_A_TIME, f"{side} has a step time that is not a positive number")
    longest: FloatArray = times.max(axis=1)
    return longest


def t_quantile(probability: float, dof: float) -> float:
    """Quantile of Student's t; `dof` need not be whole."""
    return float(special.stdtrit(dof, probability))


def t_upper_tail(statistic: float, dof: float) -> float:
    """P(T > statistic) of Student's t."""
    return float(special.stdtr(dof, -statistic))


def sample_variance(values: Sequence[float]) -> float:
    """Variance with n − 1 in the denominator; NaN for a single value, which says nothing about spread."""
    return float(np.var(np.asarray(values, dtype=np.float64), ddof=1)) if len(values) > 1 else math.nan


def mean_interval(values: FloatArray, confidence: float) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Two-sided t interval and p-value of the mean over the rows of a (pairs, parts) array.

    See `t_interval` for what it returns.
    """
    count, parts = values.shape
    spread = values.std(axis=0, ddof=1) if count > 1 else np.full(parts, np.nan)
    return t_interval(values.mean(axis=0), spread / math.sqrt(count), count - 1.0, confidence)


def t_interval(
    mean: FloatArray, error: FloatArray, dof: float, confidence: float
) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Two-sided t interval and p-value of means, (parts,), with their standard errors of `dof` degrees of freedom.

    Returns `(low, high, p)`, each of shape (parts,). One row, or a column without any spread, has no interval: NaN
    bounds and a NaN p, which no correction for multiple tests may take for evidence.
    """
    # A constant column can leave a rounding residue of the mean behind: spread below that is none.
    error = np.where(error > 1e-12 * np.abs(mean), error, np.nan)
    half = t_quantile(0.5 + confidence / 2, dof) * error
    p = 2 * special.stdtr(dof, -np.abs(mean) / error)
    return mean - half, mean + half, np.asarray(p, dtype=np.float64)
