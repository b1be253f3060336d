"""A scenario's history as the JSON document `stepduel/history/1`. Times in ms, ratios new/old."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any, Final

from harness.history.series import Point, ScenarioHistory, Series

SCHEMA: Final = "stepduel/history/1"


def document(history: ScenarioHistory) -> dict[str, Any]:
    """Return the history as plain JSON-ready values."""
    return {
        "schema": SCHEMA,
        "scenario": history.scenario,
        "baseline": history.baseline,
        "series": [_series(one) for one in history.series],
        "failed": [
            {name: getattr(record, name) for name in ("id", "kind", "side", "status", "reason")}
            for record in history.failed
        ],
        "running": list(history.running),
        "duels": [asdict(duel) for duel in history.duels],
        "notes": list(history.notes),
    }


def _series(series: Series) -> dict[str, Any]:
    return {
        "key": {**asdict(series.key), "overrides": list(series.key.overrides), "cpu_model": series.cpu_model},
        "scenario_keys": dict(series.scenario_keys),
        "order": "commits" if series.by_commit else "measured",
        "points": [_point(point) for point in series.points],
        "changes": [{**asdict(change), "revision": series.points[change.index].revision} for change in series.changes],
        "levels": [{"first": a, "last": b - 1, "mean_ms": mean / 1e6} for a, b, mean in series.levels],
        "baseline_ms": None if series.baseline_ns is None else series.baseline_ns / 1e6,
        "creep": series.creep,
    }


def _point(point: Point) -> dict[str, Any]:
    return {
        "id": point.id,
        "side": point.side,
        "started_at": point.started_at,
        "revision": point.revision,
        "dirty": point.dirty,
        "step_ms": point.step_ns / 1e6,
        "launches": point.launches,
        "steps": point.steps,
        "mark": point.mark or None,
    }
