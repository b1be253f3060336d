"""No collector at all: step times alone, which is what the others' overhead is measured against."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from harness.collectors.base import FINISH_TIMEOUT_S, Abilities, Availability
from harness.errors import LaunchError


@dataclass(frozen=True, kw_only=True)
class Untraced:
    """Host side; see `harness.collectors.base.Collector`."""

    name: str = "none"
    finish_timeout_s: float = FINISH_TIMEOUT_S
    abilities: ClassVar[Abilities] = Abilities(traces=False)

    def available(self) -> Availability:
        """Always."""
        return Availability(ok=True, reason="nothing is traced")

    def wrap(self, argv: Sequence[str], env: Mapping[str, str], launch_dir: Path) -> tuple[list[str], dict[str, str]]:  # noqa: ARG002 - the protocol's signature
        """Return the launch as it is."""
        return list(argv), dict(env)

    def collect(self, launch_dir: Path, ranks: int, destination: Path) -> Path:  # noqa: ARG002 - the protocol's signature
        """Raise LaunchError: there is no trace to collect."""
        raise LaunchError(f"{launch_dir} was launched untraced")
