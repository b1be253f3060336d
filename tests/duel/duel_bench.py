"""Where the tests of duels run: a repository with a toy engine and a scenario for it."""

from __future__ import annotations

import subprocess
from dataclasses import dataclass
from pathlib import Path

SCENARIO = """
description = "a toy that only reports"

[run]
warmup_steps = 1
timeout_s = 5
start_timeout_s = 30

[engine]
factory = "toy:build"
step_ms = 100
"""


@dataclass(frozen=True, kw_only=True)
class Bench:
    """Where a test's duels run."""

    folder: Path
    repo: Path
    python: Path
    scenario: str
    reports: Path

    def arguments(self, *more: str) -> list[str]:
        """A compare of the working tree with itself, short, with a fixed order of steps."""
        return [
            "compare", self.scenario, ".", ".", "--repo", str(self.repo), "--reports", str(self.reports),
            "--seed", "7", "--steps", "10", *more,
        ]  # fmt: skip


def git(folder: Path, *arguments: str) -> str:
    identity = ["-c", "user.name=Test", "-c", "user.email=test@example.invalid", "-c", "commit.gpgsign=false"]
    done = subprocess.run(["git", *identity, *arguments], cwd=folder, check=True, capture_output=True, text=True)
    return done.stdout.strip()
