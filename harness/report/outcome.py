"""What a gate says of one scenario, as every rendering of a gate takes it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from harness.comparison import Comparison

Standing = Literal["passed", "regressed", "undecided", "failed"]


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """One scenario. `undecided` is no verdict (also an invalid one), `failed` a launch or a scenario that did not run.

    `message` says why in one line. Without a comparison nothing was measured, which is never a pass.
    """

    scenario: str
    standing: Standing
    message: str
    comparison: Comparison | None = None
    duration_s: float = 0.0
    report: str | None = None
    """Where the HTML report of this scenario lies, relative to where the rendering is written."""

    def __post_init__(self) -> None:
        if self.standing == "passed" and self.comparison is None:
            raise ValueError(f"{self.scenario}: nothing was measured, so it cannot have passed")
