"""What bench says of a launch too short for what its scenario says comes periodically."""

from __future__ import annotations

import pytest

from harness.cli.bench import _warn_of_period
from harness.scenario import RunSettings


@pytest.mark.parametrize(("period", "steps", "warned"), [(20, 59, True), (20, 60, False), (1, 2, False)])
def test_a_launch_too_short_for_its_period_is_warned_of(
    capsys: pytest.CaptureFixture[str], period: int, steps: int, warned: bool
) -> None:
    _warn_of_period(RunSettings(period=period, steps=steps))
    said = capsys.readouterr().err
    assert said == ("warning: 59 steps show no period of 20: --steps 60 does\n" if warned else "")
