"""Reads a scenario: one TOML file that says which engine runs, how it is configured, for how long, what is probed.

A scenario is made of layers, later ones winning key by key: the file named by `extends` (one level, no chains), the
file itself, then `--set KEY=VALUE`. Each value remembers the layer it came from, so a complaint names the right file.
Keys of `[engine]` other than `factory` are passed to the factory as they are; the worker checks them against the
factory's own dataclass, because only there is the engine importable.
"""

from __future__ import annotations

from harness.scenario.files import ScenarioFile, load_scenario, read_scenario, scenario_files, search_path
from harness.scenario.model import (
    CompareSettings,
    PayloadName,
    Probe,
    RunSettings,
    Scenario,
    SubjectSettings,
    measured,
)

__all__ = [
    "CompareSettings",
    "PayloadName",
    "Probe",
    "RunSettings",
    "Scenario",
    "ScenarioFile",
    "SubjectSettings",
    "load_scenario",
    "measured",
    "read_scenario",
    "scenario_files",
    "search_path",
]
