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

from harness.units import bytes_text, time_text


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


def _bytes_held(name: str, title: str, on_cuda: str, on_cpu: str | None = None) -> Metric:
    """A metric that is told as it is, and limited by its growth alone."""
    return Metric(
        name=name,
        title=title,
        unit="B",
        better="lower",
        text=bytes_text,
        over_ranks="max",
        over_steps="max",
        on_cuda=on_cuda,
        on_cpu=on_cpu or on_cuda,
    )


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
        _bytes_held("children_bytes", "Memory of child processes", "resident sets, of loader workers for instance"),
        _bytes_held(
            "allocated_bytes", "Allocated memory", "of the device, at a step’s end", "by malloc, at a step’s end"
        ),
        _bytes_held("reserved_bytes", "Reserved memory", "of the device, by its allocator", "heap that malloc holds"),
        _bytes_held(
            "fragmented_bytes",
            "Fragmented memory",
            "of the device, reserved and not allocated",
            "heap that malloc holds and nobody uses",
        ),
    )
}


@dataclass(frozen=True, kw_only=True)
class LaunchFigure:
    """One figure of a launch beside those of its steps. Where a policy has its key, it limits head's above base's."""

    name: str
    title: str
    text: Callable[[float], str]
    per_step: bool = True
    """Whether it is growth a step, limited as such; otherwise its limit is a share of base's."""
    metric: str | None = None
    """The metric whose growth it is."""
    least: float = 0.0
    """Growth of up to so much is not told, however sure it is."""
    policy_key: str | None = None


def _growth(metric: str, policy_key: str | None = None) -> LaunchFigure:
    title = f"{METRICS[metric].title}, growth a step"
    return LaunchFigure(
        name=f"{metric}_per_step",
        title=title,
        text=bytes_text,
        metric=metric,
        least=LEAST_GROWTH_BYTES,
        policy_key=policy_key,
    )


LEAST_GROWTH_BYTES: Final = 1000
"""10 MB by step 10,000. Allocators repeat to the byte, and so does bookkeeping that is nobody's leak."""
LAUNCH_FIGURES: Final[Mapping[str, LaunchFigure]] = {
    figure.name: figure
    for figure in (
        LaunchFigure(
            name="start_ns",
            title="Start-up",
            text=time_text,
            per_step=False,
            policy_key="max_start_growth",
        ),
        LaunchFigure(
            name="first_step_ns",
            title="First step",
            text=time_text,
            per_step=False,
            policy_key="max_first_step_growth",
        ),
        _growth("rss_bytes", policy_key="max_memory_growth_per_step"),
        _growth("children_bytes", policy_key="max_memory_growth_per_step"),
        _growth("allocated_bytes", policy_key="max_memory_growth_per_step"),
        _growth("reserved_bytes", policy_key="max_memory_growth_per_step"),
        _growth("fragmented_bytes"),  # part of what is reserved
        LaunchFigure(name="step_ns_per_step", title="Step time, growth a step", text=time_text),
    )
}
LIMITED: Final[Mapping[str, tuple[Metric, Limit]]] = {
    name: (metric, metric.limit) for name, metric in METRICS.items() if metric.limit is not None
}
DEFAULT_LIMITS: Final[Mapping[str, float]] = {name: limit.share for name, (_, limit) in LIMITED.items()}
"""Shares of a comparison that nobody gave limits."""
