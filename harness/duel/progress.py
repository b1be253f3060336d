"""What a duel tells while it runs, whoever shows it."""

from __future__ import annotations

from typing import Protocol

from harness.comparison import Comparison
from harness.duel.pacing import DetectableEffect


class Progress(Protocol):
    """What a duel tells while it runs."""

    def resumed(self, pairs: int, duel_id: str) -> None:
        """Stored launch pairs are used."""

    def nothing_to_resume(self) -> None:
        """`--resume` found no unfinished duel of this code, scenario and machine: a new one starts."""

    def starting(self, pair: int, most_pairs: int) -> None:
        """A launch pair is being started."""

    def forecast(self, effect: DetectableEffect, first_look: int, last_look: int, margin: float, steps: int) -> None:
        """What this duel can see, before the first measured step."""

    def out_of_reach(self, needed_s: float, left_s: float, pairs: int) -> None:
        """The budget ends before the first look, of so many launch pairs."""

    def stepped(self, pair: int, done: int, steps: int) -> None:
        """Both sides have made one more step; `done` below 1 is warm-up."""

    def paired(self, comparison: Comparison) -> None:
        """A launch pair has ended and is stored."""

    def unexplained(self, problem: str) -> None:
        """The traced launch pair failed; the verdict stands without it."""
