"""A scenario over time: comparable step times as series, with their changes of level, odd points and creep."""

from __future__ import annotations

from harness.history.series import Key, Point, ScenarioHistory, Series, scenario_history

__all__ = ["Key", "Point", "ScenarioHistory", "Series", "scenario_history"]
