"""What the steps' typical time does not tell of a launch: how long it takes to start, and what grows from step to step.

Each figure is one number a launch, so it has an interval over launch pairs, as the verdict has.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import fmean
from typing import ClassVar, Final

import numpy as np

from harness.comparison.growth import Growing, RangeGrowth, growing_place
from harness.metrics import LAUNCH_FIGURES, LaunchFigure
from harness.stats.trend import FAR_STEP, FEWEST_STEPS, confidence_of, slope, slope_interval, slope_variance
from harness.store import SIDES, DuelStepRecord, PairRecord
from harness.verdict import Slowing

CONFIDENCE: Final = 0.99
"""Of the interval of a figure that is no trend."""

BySequence = Mapping[int, float]
"""Values by the step's place in its launch. With turns of several steps, not every step is measured."""


@dataclass(frozen=True, kw_only=True)
class _Told:
    """One figure as a launch pair tells it."""

    base: float
    head: float
    delta: float
    within: float | None = None
    """Variance of `delta` that the scatter within the launches explains, where that is used."""


@dataclass(frozen=True, kw_only=True)
class LaunchFigureChange:
    """One figure, its mean over the launches of each side, and head's less base's in the mean over launch pairs.

    `bound` is what the difference may come to, None where nobody limits it; it is exceeded if the interval lies beyond.
    """

    ALSO_IN_DOCUMENT: ClassVar = ("grows", "at_far_step")

    name: str
    base: float
    head: float
    delta: float
    """Of step time the slope of the differences between both sides' steps, which their common noise leaves alone."""
    low: float | None
    high: float | None
    bound: float | None
    where: Growing | None = None
    """Of allocated memory that grows: the range, where that is sure as well."""

    @property
    def figure(self) -> LaunchFigure:
        """What it is."""
        return LAUNCH_FIGURES[self.name]

    @property
    def grows(self) -> bool:
        """Whether head's is surely the larger, by an amount that is told."""
        return self.low is not None and self.low > self.figure.least

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
        if self.where is not None:
            line += f", most of it {self.where.text}"
        return f"{line}, beyond the limit of {text(self.bound or 0.0)}" if self.exceeded else line


def slowing_of(figures: Sequence[LaunchFigureChange]) -> Slowing | None:
    """Return what step time's figure tells the verdict's line; None where head does not surely get slower."""
    for change in figures:
        if change.name == "step_ns_per_step" and change.grows and change.low is not None and change.high is not None:
            return Slowing(ns_per_step=change.delta, ci_ns=(change.low, change.high))
    return None


def launch_figures(
    steps: Sequence[DuelStepRecord],
    pairs: Sequence[PairRecord],
    limits: Mapping[str, float],
    growth: RangeGrowth | None = None,
) -> tuple[LaunchFigureChange, ...]:
    """Return what the launch pairs tell, in the order of the table. `limits` are by key of the policy, and
    `growth` is by range that of what is allocated.
    """
    launches: dict[tuple[int, str], list[DuelStepRecord]] = {(pair.pair, side): [] for pair in pairs for side in SIDES}
    for step in steps:
        launches[step.pair, step.side].append(step)
    by_figure: dict[str, dict[int, _Told]] = {}
    for name, figure in LAUNCH_FIGURES.items():
        of_pairs = {pair.pair: _told(figure, pair, *(launches[pair.pair, side] for side in SIDES)) for pair in pairs}
        by_figure[name] = {pair: one for pair, one in of_pairs.items() if one is not None}
    memory = sum(LAUNCH_FIGURES[name].metric is not None for name, told in by_figure.items() if told)
    found = []
    for name, told in by_figure.items():
        figure = LAUNCH_FIGURES[name]
        if told:
            confidence = confidence_of(1 if figure.metric is None else memory) if figure.per_step else CONFIDENCE
            found.append(_change(figure, list(told.values()), confidence, limits.get(figure.policy_key or "")))
    place = growing_place(growth or {}, [pair.pair for pair in pairs])
    return tuple(
        replace(change, where=place) if change.name == "allocated_bytes_per_step" and change.grows else change
        for change in found
    )


def _told(
    figure: LaunchFigure, pair: PairRecord, base: Sequence[DuelStepRecord], head: Sequence[DuelStepRecord]
) -> _Told | None:
    if figure.name == "step_ns_per_step":
        return _time_trend(_slowest(base), _slowest(head))
    if figure.metric is not None:
        values = [_growth(_of_metric(side, figure.metric)) for side in (base, head)]
    elif figure.name == "start_ns":
        values = [launch.get("start_ns") for launch in (pair.base_launch, pair.head_launch)]
    else:
        values = [_first_step_ns(side) for side in (base, head)]
    if values[0] is None or values[1] is None:
        return None
    return _Told(base=values[0], head=values[1], delta=values[1] - values[0])


def _change(figure: LaunchFigure, told: Sequence[_Told], confidence: float, limit: float | None) -> LaunchFigureChange:
    base, head, delta = (
        fmean(values) for values in zip(*((one.base, one.head, one.delta) for one in told), strict=True)
    )
    interval = None
    if len(told) > 1:
        within = [one.within for one in told if one.within is not None]
        lent = np.array(within) if len(within) == len(told) else None
        interval = slope_interval(np.array([one.delta for one in told]), confidence, lent)
    low, high = interval or (None, None)
    bound = None if limit is None else limit if figure.per_step else limit * base
    return LaunchFigureChange(name=figure.name, base=base, head=head, delta=delta, low=low, high=high, bound=bound)


def _time_trend(base: BySequence, head: BySequence) -> _Told | None:
    """Step pairs share what the machine does to both; the slope of their difference is free of it."""
    at = sorted(base.keys() & head.keys())
    if len(at) < FEWEST_STEPS:
        return None
    base_ns, head_ns = (np.array([side[step] for step in at]) for side in (base, head))
    return _Told(
        base=slope(base_ns, at),
        head=slope(head_ns, at),
        delta=slope(head_ns - base_ns, at),
        within=slope_variance(head_ns - base_ns, at),
    )


def _growth(values: BySequence) -> float | None:
    at = sorted(values)
    return slope(np.array([values[step] for step in at]), at) if len(at) >= FEWEST_STEPS else None


def _first_step_ns(steps: Sequence[DuelStepRecord]) -> float | None:
    """Time of the very first step, warm-up included, on its slowest rank."""
    return max((float(step.duration_ns) for step in steps if step.sequence == 0), default=None)


def _of_metric(steps: Sequence[DuelStepRecord], metric: str) -> BySequence:
    return {step.sequence: float(step.figures[metric]) for step in steps if step.measured and metric in step.figures}


def _slowest(steps: Sequence[DuelStepRecord]) -> BySequence:
    slowest: dict[int, float] = {}
    for step in steps:
        if step.measured:
            slowest[step.sequence] = max(float(step.duration_ns), slowest.get(step.sequence, 0.0))
    return slowest
