"""What a collector is, on the host and in a rank. Standard library only: ranks import this file too.

A collector has up to two sides:

- the *host side* (`Collector`) says what it can do (`Abilities`), decides whether it can be used here, wraps the
  launch's command line, and turns what the launch left behind into one trace;
- the *rank side* (`RankSide`) runs inside every rank. A collector module that has one offers
  `start_rank(trace_path, rank) -> RankSide` and is named by `Abilities.rank_side`; the worker calls it before it
  imports the engine. `nsys` has none: it looks in from outside.

One collector is one file in this folder and its line in `registry.py`, which every command imports for its options: so
a collector imports numpy, nvtx and torch only inside the functions that need them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal, Protocol

FINISH_TIMEOUT_S: Final = 10.0
"""How long a launch may take to end after its last word where no tool writes a report then."""


@dataclass(frozen=True, kw_only=True)
class Abilities:
    """What the rest of Stepduel has to know about a collector. The first three travel to the ranks in the plan."""

    rank_side: str | None = None
    """Module that offers `start_rank`, where something of the collector runs inside the ranks."""
    settle_s: float = 0.0
    """From the opening of the capture until every process has heard of it; what they do before may be missing."""
    ends_in_order: bool = False
    """Whether it takes its last records from a process that ends in order, by its interpreter's own shutdown."""
    traces: bool = True
    sees_gpu: bool = False
    """Whether it records GPU work, so that a trace without any says that there was none."""
    fixed_pace: bool = False
    """Whether it must be told before the launch which steps to record."""
    automatic: Literal["always", "on_cuda", "never"] = "never"
    """When `--collector auto` may take it: the first in the registry's order that can be used."""
    named_by: str | None = None
    """Environment variable by which a user insists on it: then `auto` never passes it over."""


@dataclass(frozen=True, kw_only=True)
class Availability:
    """Whether a collector can be used on this machine, and in one line why not (or what was found)."""

    ok: bool
    reason: str


class Collector(Protocol):
    """Host side: one object a launch. Never imports torch."""

    @property
    def name(self) -> str:
        """What `--collector` calls it, and results and traces say of it."""

    @property
    def abilities(self) -> Abilities:
        """What it can do; the same for every object of a class."""

    @property
    def finish_timeout_s(self) -> float:
        """How long the launch may take to end after its last word."""

    def available(self) -> Availability:
        """Say whether a launch can be traced here, before anything is started."""

    def wrap(self, argv: Sequence[str], env: Mapping[str, str], launch_dir: Path) -> tuple[list[str], dict[str, str]]:
        """Return the command line and the whole environment to start instead of `argv` and `env`.

        `argv` is the torchrun command of one node. The result is run as it stands, its output goes to
        `launch_dir/torchrun.log`, and its exit status must be that of `argv`. A collector that returns `argv` as it is
        needs nothing around the launch: its ranks are then forked, see `LaunchRequest.command`.
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
