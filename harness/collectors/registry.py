"""Every collector by name. The two that need no tool have their host side here; see `harness.collectors.base`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from harness.collectors.base import FINISH_TIMEOUT_S, Availability, Collector
from harness.collectors.kineto import Kineto
from harness.collectors.nsys import Nsys
from harness.errors import LaunchError
from harness.trace.merge import merge_launch


@dataclass(frozen=True, kw_only=True)
class RecorderHost:
    """Host side of the recorder, which runs inside the ranks."""

    name: str = "recorder"
    finish_timeout_s: float = FINISH_TIMEOUT_S

    def available(self) -> Availability:
        """Always: it needs nothing."""
        return Availability(ok=True, reason="records NVTX ranges in process; needs no tool")

    def wrap(self, argv: Sequence[str], env: Mapping[str, str], launch_dir: Path) -> tuple[list[str], dict[str, str]]:  # noqa: ARG002 - the protocol's signature
        """Return the launch as it is."""
        return list(argv), dict(env)

    def collect(self, launch_dir: Path, ranks: int, destination: Path) -> Path:
        """Merge the ranks' files."""
        return merge_launch(launch_dir, ranks, destination)


@dataclass(frozen=True, kw_only=True)
class Untraced:
    """No collector at all: step times alone, which is what the others' overhead is measured against."""

    name: str = "none"
    finish_timeout_s: float = FINISH_TIMEOUT_S

    def available(self) -> Availability:
        """Always."""
        return Availability(ok=True, reason="nothing is traced")

    def wrap(self, argv: Sequence[str], env: Mapping[str, str], launch_dir: Path) -> tuple[list[str], dict[str, str]]:  # noqa: ARG002 - the protocol's signature
        """Return the launch as it is."""
        return list(argv), dict(env)

    def collect(self, launch_dir: Path, ranks: int, destination: Path) -> Path:  # noqa: ARG002 - the protocol's signature
        """Raise LaunchError: there is no trace to collect."""
        raise LaunchError(f"{launch_dir} was launched untraced")


def collectors() -> dict[str, Collector]:
    """Return the host side of every collector, by name."""
    return {item.name: item for item in (Nsys(), Kineto(), RecorderHost(), Untraced())}


def collect_trace(
    collector: Collector, launch_dir: Path, ranks: int, destination: Path, *, keep_rank_files: bool = False
) -> Path:
    """Make the one trace of an ended launch at `destination` and remove the ranks' own files, whose rows it holds."""
    trace = collector.collect(launch_dir, ranks, destination)
    for rank in range(0 if keep_rank_files else ranks):
        (launch_dir / f"rank{rank}.sqlite").unlink(missing_ok=True)
    return trace
