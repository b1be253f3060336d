"""A gate as GitHub annotations: lines on stdout that a workflow shows beside the run."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from harness.report.outcome import Outcome, Standing
from harness.visible import shortened

LEVELS: Final[dict[Standing, str]] = {
    "passed": "notice",
    "regressed": "error",
    "undecided": "warning",
    "failed": "error",
}


def github_annotations(outcomes: Sequence[Outcome]) -> str:
    """Return one workflow command a scenario, each on its line."""
    return "".join(
        f"::{LEVELS[outcome.standing]} title={_property(f'stepduel {outcome.scenario}: {outcome.standing}')}"
        f"::{_data(outcome.message)}\n"
        for outcome in outcomes
    )


def _data(text: str) -> str:
    """A message as GitHub's runner reads it: a line end inside it would begin another command."""
    shown = shortened(text, 800)
    return shown.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _property(text: str) -> str:
    return _data(shortened(text, 200)).replace(":", "%3A").replace(",", "%2C")
