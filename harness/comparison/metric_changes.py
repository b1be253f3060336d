"""Every metric of both sides of a duel, and the one limit that head is held to, whoever tells of it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

from harness.metrics import LIMITED, METRICS, Metric, Step


@dataclass(frozen=True, kw_only=True)
class MetricChange:
    """One metric over all ranks, steps and launches of each side. Without a limit, `bound` and `share` are None."""

    ALSO_IN_DOCUMENT: ClassVar = ("unit",)

    name: str
    base: float
    head: float
    share: float | None
    """How much worse than base head may be."""
    bound: float | None
    """The same as a figure."""
    exceeded: bool
    pairs_beyond: int = 0
    """Launch pairs that are beyond the limit on their own."""

    @property
    def metric(self) -> Metric:
        """What it is."""
        return METRICS[self.name]

    @property
    def unit(self) -> str:
        """Of its figures."""
        return self.metric.unit


def metric_changes(base: Sequence[Step], head: Sequence[Step], limits: Mapping[str, float]) -> tuple[MetricChange, ...]:
    """Return what the steps of both sides tell, in the order of the table. `limits` are shares by metric."""
    found = []
    for name, metric in METRICS.items():
        base_figure, head_figure = metric.of_steps(base), metric.of_steps(head)
        if base_figure is not None and head_figure is not None:
            found.append(metric_change(metric, base_figure, head_figure, limits.get(name)))
    return tuple(found)


def metric_change(metric: Metric, base: float, head: float, share: float | None) -> MetricChange:
    """Hold head's figure against base's. A negative one is a `ValueError`: unknown is not zero."""
    if base < 0 or head < 0:
        raise ValueError(f"{metric.name} of {base} and {head}: expected none below 0")
    bound = None if share is None or metric.name not in LIMITED else metric.bound(base, share)
    exceeded = bound is not None and metric.exceeds(head, bound)
    return MetricChange(
        name=metric.name, base=base, head=head, share=None if bound is None else share, bound=bound, exceeded=exceeded
    )
