"""The one table of metrics: name, unit, which direction is better, and how a value is written for people.

Values are kept in base units (ns, bytes, tokens per second); only `text` turns them into what a person reads.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, Literal


def milliseconds(ns: float) -> str:
    """Return ns as milliseconds with about four digits that count: `1234`, `160.4`, `12.35`, `0.012`."""
    ms = ns / 1e6
    digits = 0 if abs(ms) >= 1000 else 1 if abs(ms) >= 100 else 2 if abs(ms) >= 10 else 3
    return f"{ms:,.{digits}f}"


def bytes_text(count: float) -> str:
    """Return a number of bytes with a decimal prefix: `0 B`, `19.1 MB`."""
    value = float(count)
    for unit in ("B", "kB", "MB", "GB"):
        if abs(value) < 999.5:
            return f"{value:.0f} {unit}" if unit == "B" or abs(value) >= 100 else f"{value:.1f} {unit}"
        value /= 1000
    return f"{value:,.1f} TB"


def percent(share: float) -> str:
    """Return a share (1.0 = all) as percent: `100 %`, `12.3 %`."""
    value = share * 100
    return f"{value:.0f} %" if abs(value) >= 99.95 else f"{value:.1f} %"


def count_text(count: float) -> str:
    """Return a count, or a mean of counts: `3`, `1,204`, `2.5`."""
    return f"{count:,.0f}" if float(count).is_integer() else f"{count:,.1f}"


def plural(count: int, noun: str, many: str | None = None) -> str:
    """Return `1 step`, `3 steps`, `1,204 steps`."""
    return f"{count:,} {noun if count == 1 else many or f'{noun}s'}"


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
