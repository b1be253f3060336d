"""Where the noise of a duel comes from, and how many steps a launch should therefore run.

Step differences x = ln(head/base) of one launch pair scatter by σ_w and remember their neighbour (lag-1 autocorrelation
ρ), so the mean of n of them has variance σ_w²(1+ρ)/((1−ρ)n). On top of that each launch pair has luck of its own, σ_b,
that no number of steps averages out. Starting costs c_start and a step pair c_step; a fixed budget is spent best with

    n* = √( (c_start/c_step) · σ_w²(1+ρ) / ((1−ρ)σ_b²) )   steps per launch.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from harness.stats.paired import StepPairs

HIGHEST_AUTOCORRELATION = 0.95
"""Beyond this a launch of a few dozen steps cannot tell its drift from its luck."""


@dataclass(frozen=True, kw_only=True)
class Noise:
    """Standard deviations of ln(head/base), as fractions, and the autocorrelation of steps."""

    within: float
    between: float
    autocorrelation: float

    def spread(self, steps: int) -> float:
        """Standard deviation between launch pairs of the mean over `steps` step pairs."""
        return math.sqrt(self.between**2 + self._step_variance / steps)

    def best_steps(self, start_cost: float, step_cost: float, *, at_least: int = 5, at_most: int = 200) -> int:
        """Return n*, kept within bounds; both costs in the same unit, each for a pair (base and head)."""
        if not (start_cost >= 0 and step_cost > 0):
            raise ValueError(f"costs {start_cost} and {step_cost}: expected times, of a step above 0")
        if self.between == 0:
            return at_most
        best = math.sqrt(start_cost / step_cost * self._step_variance) / self.between
        return min(max(round(best), at_least), at_most)

    @property
    def _step_variance(self) -> float:
        """Long-run variance: n times the variance of the mean of n autocorrelated step pairs."""
        return self.within**2 * (1 + self.autocorrelation) / (1 - self.autocorrelation)


def estimate_noise(pairs: Sequence[StepPairs]) -> Noise | None:
    """Split the scatter of checked step pairs into its parts; None below two launch pairs of three steps.

    `between` is what is left of the variance of pair means after the steps' share, and 0 if nothing is. The pairs must
    have passed `paired.pair_difference`, which raises on what cannot be judged.
    """
    if len(pairs) < 2 or min(len(pair.base_ns) for pair in pairs) < 3:
        return None
    series = [np.log(np.max(pair.head_ns, axis=1) / np.max(pair.base_ns, axis=1)) for pair in pairs]
    centred = [x - x.mean() for x in series]
    squares = sum(float(x @ x) for x in centred)
    variance = squares / sum(len(x) - 1 for x in centred)
    lagged = sum(float(x[:-1] @ x[1:]) for x in centred)
    rho = min(max(lagged / squares, 0.0), HIGHEST_AUTOCORRELATION) if squares > 0 else 0.0
    noise = Noise(within=math.sqrt(variance), between=0.0, autocorrelation=rho)
    steps_share = float(np.mean([noise.spread(len(x)) ** 2 for x in series]))
    between = max(float(np.var([x.mean() for x in series], ddof=1)) - steps_share, 0.0)
    return Noise(within=noise.within, between=math.sqrt(between), autocorrelation=rho)
