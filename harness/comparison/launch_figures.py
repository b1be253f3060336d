"""What the steps' typical time does not tell of a launch: how long it takes to start, and what grows from step to step.

Each figure is one number a launch, so it has an interval over launch pairs, as the verdict has.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar, Final

import numpy as np

from harness.metrics import LAUNCH_FIGURES, LaunchFigure
from harness.stats.paired import mean_interval
from harness.stats.trend import CONFIDENCE, FEWEST_STEPS, slope
from harness.store import SIDES, DuelStepRecord, PairRecord

FAR_STEP: Final = 10_000
"""A trend is told as what it comes to by this step."""


@dataclass(frozen=True, kw_only=True)
class LaunchFigureChange:
    """One figure, its mean over the launches of each side, and head's less base's in the mean over launch pairs.

    `bound` is what the difference may come to, None where nobody limits it; it is exceeded if the interval lies beyond.
    """

    ALSO_IN_DOCUMENT: ClassVar = ("delta", "grows", "at_far_step")

    name: str
    base: float
    head: float
    low: float | None
    high: float | None
    bound: float | None

    @property
    def figure(self) -> LaunchFigure:
        """What it is."""
        return LAUNCH_FIGURES[self.name]

    @property
    def delta(self) -> float:
        """Head's less base's."""
        return self.head - self.base

    @property
    def grows(self) -> bool:
        """Whether head's is surely the larger."""
        return self.low is not None and self.low > 0

    @property
    def exceeded(self) -> bool:
        """Whether head is surely beyond its limit."""
        return self.bound is not None and self.low is not None and self.low > self.bound

    @property
    def at_far_step(self) -> float | None:
        """What the difference of a trend comes to at `FAR_STEP`; None for what is no trend."""
        return self.delta * FAR_STEP if self.figure.per_step else None

    @property
    def line(self) -> str:
        """One line for people."""
        text = self.figure.text
        line = f"{self.figure.title.lower()}: base {text(self.base)}, head {text(self.head)}"
        if self.low is not None and self.high is not None:
            line += f", difference {text(self.delta)} [{text(self.low)}, {text(self.high)}]"
        if self.at_far_step is not None and self.grows:
            line += f", which comes to {text(self.at_far_step)} by step {FAR_STEP:,}"
        return f"{line}, beyond the limit of {text(self.bound or 0.0)}" if self.exceeded else line


def launch_figures(
    steps: Sequence[DuelStepRecord], pairs: Sequence[PairRecord], limits: Mapping[str, float], device: str | None
) -> tuple[LaunchFigureChange, ...]:
    """Return what the launch pairs tell, in the order of the table. `limits` are by key of the policy."""
    by_launch: dict[tuple[int, str], list[DuelStepRecord]] = {}
    for step in steps:
        by_launch.setdefault((step.pair, step.side), []).append(step)
    sources: dict[str, Callable[[PairRecord, str], float | None]] = {
        "start_ns": lambda pair, side: (pair.base_launch if side == "base" else pair.head_launch).get("start_ns"),
        "first_step_ns": lambda pair, side: _first_step_ns(by_launch.get((pair.pair, side), [])),
        "rss_bytes_per_step": lambda pair, side: _slope(by_launch.get((pair.pair, side), []), "rss_bytes"),
        "step_ns_per_step": lambda pair, side: _time_slope(by_launch.get((pair.pair, side), [])),
    }
    if device == "cuda":  # on a CPU it is the high-water mark of the resident set
        sources["device_bytes_per_step"] = lambda pair, side: _slope(
            by_launch.get((pair.pair, side), []), "peak_memory_bytes"
        )
    found = []
    for name, figure in LAUNCH_FIGURES.items():
        source = sources.get(name)
        told = [] if source is None else [[source(pair, side) for side in SIDES] for pair in pairs]
        values = [[base, head] for base, head in told if base is not None and head is not None]
        if values:
            found.append(_change(figure, values, limits.get(figure.policy_key or "")))
    return tuple(found)


def _change(figure: LaunchFigure, values: Sequence[Sequence[float]], limit: float | None) -> LaunchFigureChange:
    base, head = (float(mean) for mean in np.mean(values, axis=0))
    differences = np.diff(np.array(values), axis=1)  # (pairs, 1)
    low, high = (None, None)
    if len(values) > 1:
        lows, highs, _ = mean_interval(differences, CONFIDENCE)
        # Launches that agree exactly, as allocators do, have an interval of no width.
        low, high = (head - base if math.isnan(bound) else float(bound) for bound in (lows[0], highs[0]))
    bound = None if limit is None else limit if figure.per_step else limit * base
    return LaunchFigureChange(name=figure.name, base=base, head=head, low=low, high=high, bound=bound)


def _first_step_ns(steps: Sequence[DuelStepRecord]) -> float | None:
    """Time of the very first step, warm-up included, on its slowest rank."""
    return max((float(step.duration_ns) for step in steps if step.sequence == 0), default=None)


def _slope(steps: Sequence[DuelStepRecord], metric: str) -> float | None:
    values = {step.sequence: float(step.figures[metric]) for step in steps if step.measured and metric in step.figures}
    return _slope_of(values)


def _time_slope(steps: Sequence[DuelStepRecord]) -> float | None:
    slowest: dict[int, float] = {}
    for step in steps:
        if step.measured:
            slowest[step.sequence] = max(float(step.duration_ns), slowest.get(step.sequence, 0.0))
    return _slope_of(slowest)


def _slope_of(by_sequence: Mapping[int, float]) -> float | None:
    """With turns of several steps, not every step is measured."""
    at = sorted(by_sequence)
    return slope(np.array([by_sequence[step] for step in at]), at) if len(at) >= FEWEST_STEPS else None
