"""The table of metrics: what each rank measures of a step beside its time, its loss and its tokens.

From here the control channel, the database, comparisons, the gate's policy and every report take what they show and
what they limit. The worker measures (`worker/meters.py`); to add a metric takes a line here and its source there.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from statistics import fmean
from typing import Final, Literal, Protocol

from harness.units import bytes_text, milliseconds


@dataclass(frozen=True, kw_only=True)
class Limit:
    """How far head may be worse than base, as a share of base's figure, and by how much in any case.

    Such a figure repeats so closely that a plain threshold does; it is no part of the verdict on time.
    """

    policy_key: str
    """What the share is called in a gate's policy."""
    gate_share: float
    """The share of a policy that names none."""
    share: float
    """The share of a comparison outside a gate."""
    least: float
    """Differences of up to so much are never beyond the limit."""


@dataclass(frozen=True, kw_only=True)
class Metric:
    """One figure of a step. `name` is its key on the control channel, its column and its key in JSON, unit included."""

    name: str
    title: str
    unit: Literal["B", "J"]
    """Bytes are whole numbers; anything else need not be."""
    better: Literal["lower", "higher"]
    text: Callable[[float], str]
    over_ranks: Literal["max", "sum"]
    over_steps: Literal["max", "mean"]
    """The largest is taken over the warm-up, too, the mean over measured steps."""
    on_cuda: str
    """What it counts on a GPU."""
    on_cpu: str
    limit: Limit | None = None

    @property
    def whole(self) -> bool:
        """Whether its values are integers."""
        return self.unit == "B"

    def detail(self, device: str | None, ranks: int) -> str:
        """Return what it counts: `allocated on the device, of the largest rank`."""
        over = {"max": "of the largest rank", "sum": "of all ranks together"}[self.over_ranks]
        return (self.on_cuda if device == "cuda" else self.on_cpu) + (f", {over}" if ranks > 1 else "")

    def of_ranks(self, values: Iterable[float]) -> float | None:
        """Return a step's figure from those of its ranks; None where one of them, as NaN, is unknown."""
        known = list(values)
        if any(map(math.isnan, known)):
            return None
        combined = max(known) if self.over_ranks == "max" else math.fsum(known)
        return int(combined) if self.whole else combined

    def of_steps(self, steps: Iterable[Step]) -> float | None:
        """Return the figure of a launch, or of all launches of a side; None where no step tells it."""
        told = [
            value
            for step in steps
            if (step.measured or self.over_steps == "max") and (value := step.figures.get(self.name)) is not None
        ]
        return None if not told else max(told) if self.over_steps == "max" else fmean(told)

    def bound(self, base: float, share: float) -> float:
        """Return the worst figure that head may have."""
        assert self.limit is not None
        room = max(int(base * share) if self.whole else base * share, self.limit.least)
        return base + room if self.better == "lower" else base - room

    def exceeds(self, head: float, bound: float) -> bool:
        """Say whether head is worse than its bound."""
        return head > bound if self.better == "lower" else head < bound


class Step(Protocol):
    """A stored step, as far as its figures go."""

    @property
    def measured(self) -> bool: ...
    @property
    def figures(self) -> Mapping[str, float]: ...


METRICS: Final[Mapping[str, Metric]] = {
    metric.name: metric
    for metric in (
        Metric(
            name="peak_memory_bytes",
            title="Peak memory",
            unit="B",
            better="lower",
            text=bytes_text,
            over_ranks="max",
            over_steps="max",
            on_cuda="allocated on the device",
            on_cpu="largest resident set",
            limit=Limit(policy_key="max_memory_growth", gate_share=0.05, share=0.02, least=1 << 20),
        ),
        Metric(
            name="rss_bytes",
            title="Resident memory",
            unit="B",
            better="lower",
            text=bytes_text,
            over_ranks="max",
            over_steps="max",
            on_cuda="resident set on the host",
            on_cpu="resident set",
        ),
    )
}


@dataclass(frozen=True, kw_only=True)
class LaunchFigure:
    """One figure of a launch beside those of its steps. Where a policy has its key, it limits head's above base's."""

    name: str
    title: str
    text: Callable[[float], str]
    per_step: bool
    """Whether it is growth a step, limited as such; otherwise its limit is a share of base's."""
    policy_key: str | None = None


def _milliseconds_text(ns: float) -> str:
    return f"{milliseconds(ns)} ms"


LAUNCH_FIGURES: Final[Mapping[str, LaunchFigure]] = {
    figure.name: figure
    for figure in (
        LaunchFigure(
            name="start_ns",
            title="Start-up",
            text=_milliseconds_text,
            per_step=False,
            policy_key="max_start_growth",
        ),
        LaunchFigure(
            name="first_step_ns",
            title="First step",
            text=_milliseconds_text,
            per_step=False,
            policy_key="max_first_step_growth",
        ),
        LaunchFigure(
            name="rss_bytes_per_step",
            title="Resident memory, growth a step",
            text=bytes_text,
            per_step=True,
            policy_key="max_memory_growth_per_step",
        ),
        LaunchFigure(
            name="device_bytes_per_step",
            title="Device memory, growth a step",
            text=bytes_text,
            per_step=True,
            policy_key="max_memory_growth_per_step",
        ),
        LaunchFigure(name="step_ns_per_step", title="Step time, growth a step", text=_milliseconds_text, per_step=True),
    )
}
LIMITED: Final[Mapping[str, tuple[Metric, Limit]]] = {
    name: (metric, metric.limit) for name, metric in METRICS.items() if metric.limit is not None
}
DEFAULT_LIMITS: Final[Mapping[str, float]] = {name: limit.share for name, (_, limit) in LIMITED.items()}
"""Shares of a comparison that nobody gave limits."""
