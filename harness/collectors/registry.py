"""Every collector by name, best first: `auto` takes the first that can be used. See `harness.collectors.base`."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Final

from harness.collectors.base import Abilities, Collector
from harness.collectors.kineto import Kineto
from harness.collectors.nsys import Nsys
from harness.collectors.recorder import RecorderHost
from harness.collectors.untraced import Untraced

DEFAULT: Final = RecorderHost.name
"""Traces the launches that are timed: it costs least."""
UNTRACED: Final = Untraced.name


def collectors() -> dict[str, Collector]:
    """Return the host side of every collector, by name."""
    return {item.name: item for item in (Nsys(), Kineto(), RecorderHost(), Untraced())}


def names_where(able: Callable[[Abilities], bool] = lambda _: True) -> list[str]:
    """Return the names of the collectors whose abilities are as asked for."""
    return [name for name, item in collectors().items() if able(item.abilities)]


def collect_trace(
    collector: Collector, launch_dir: Path, ranks: int, destination: Path, *, keep_rank_files: bool = False
) -> Path:
    """Make the one trace of an ended launch at `destination` and remove the ranks' own files, whose rows it holds."""
    trace = collector.collect(launch_dir, ranks, destination)
    for rank in range(0 if keep_rank_files else ranks):
        (launch_dir / f"rank{rank}.sqlite").unlink(missing_ok=True)
    return trace
