"""The one table of metrics: name, unit, which direction is better, and how a value is written for people."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, Literal

from harness.units import bytes_text, count_text, milliseconds


@dataclass(frozen=True, kw_only=True)
class Metric:
    """One thing that is measured. `better` says which direction an improvement has."""

    name: str
    unit: Literal["ns", "B", "tokens/s", "objects", "1"]
    better: Literal["lower", "higher"]
    text: Callable[[float], str]


METRICS: Final[dict[str, Metric]] = {
    metric.name: metric
    for metric in (
        Metric(name="step_duration_ns", unit="ns", better="lower", text=lambda ns: f"{milliseconds(ns)} ms"),
        Metric(name="tokens_per_s", unit="tokens/s", better="higher", text=lambda rate: f"{rate:,.0f} tokens/s"),
        Metric(name="peak_memory_bytes", unit="B", better="lower", text=bytes_text),
        Metric(name="rss_bytes", unit="B", better="lower", text=bytes_text),
        Metric(name="moved_bytes", unit="B", better="lower", text=bytes_text),
        Metric(name="collected_objects", unit="objects", better="lower", text=count_text),
    )
}
