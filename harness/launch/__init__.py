"""Starts, steps and ends launches. The only part of Stepduel that starts engine processes; never imports torch."""

from harness.launch.failure import BUILD_RAISED, CLOCK, LaunchFailedError
from harness.launch.interrupts import interrupted_once
from harness.launch.launch import Launch
from harness.launch.request import LaunchOutcome, LaunchRequest, Ready, StepReport
from harness.launch.scenario_request import Pace, scenario_request

__all__ = [
    "BUILD_RAISED",
    "CLOCK",
    "Launch",
    "LaunchFailedError",
    "LaunchOutcome",
    "LaunchRequest",
    "Pace",
    "Ready",
    "StepReport",
    "interrupted_once",
    "scenario_request",
]
