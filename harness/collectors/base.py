"""What a collector is, on the host and in a rank. Standard library only: ranks import this file too.

A collector has up to two sides:

- the *host side* (`Collector`) decides whether it can be used here, wraps the launch's command line, and turns what the
  launch left behind into one trace;
- the *rank side* (`RankSide`) runs inside every rank. A collector module that has one offers
  `start_rank(trace_path, rank) -> RankSide`; the worker calls it before it imports the engine. `nsys` has none: it
  looks in from outside.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Protocol

FINISH_TIMEOUT_S: Final = 10.0
"""How long a launch may take to end after its last word where no tool writes a report then."""


@dataclass(frozen=True, kw_only=True)
class Availability:
    """Whether a collector can be used on this machine, and in one line why not (or what was found)."""

    ok: bool
    reason: str


class Collector(Protocol):
    """Host side: one object a launch. Never imports torch."""

    @property
    def name(self) -> str:
        """`recorder`, `kineto`, `nsys` or `none`: the plan's `collector`."""

    @property
    def finish_timeout_s(self) -> float:
        """How long the launch may take to end after its last word."""

    def available(self) -> Availability:
        """Say whether a launch can be traced here, before anything is started."""

    def wrap(self, argv: Sequence[str], env: Mapping[str, str], launch_dir: Path) -> tuple[list[str], dict[str, str]]:
        """Return the command line and the whole environment to start instead of `argv` and `env`.

        `argv` is the torchrun command of one node. The result is run as it stands, its output goes to
        `launch_dir/torchrun.log`, and its exit status must be that of `argv`.
        """

    def collect(self, launch_dir: Path, ranks: int, destination: Path) -> Path:
        """Make one trace at `destination` from what the ended launch left in `launch_dir`; return its path.

        Also called for a failed launch, with whatever its ranks had written. Raises `LaunchError` when there is no
        trace or it holds none of the expected ranges.
        """


class RankSide(Protocol):
    """Rank side. Every method is called by the worker outside the step range, in this order, from one thread."""

    def begin_capture(self) -> None:
        """Called once, right before the first measured step (after a device synchronise on CUDA)."""

    def end_capture(self) -> None:
        """Called once, right after the last measured step, or at the end where the launch stops earlier."""

    def flush(self) -> None:
        """Called after every step: put on disk what has been seen, so that a killed rank leaves it readable."""

    def close(self) -> list[Path]:
        """Called at the end, after a failure too: finish and return the files written, `rank{r}.sqlite` first."""
