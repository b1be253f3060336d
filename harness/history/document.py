"""A scenario's history as the JSON document `stepduel/history/3`. Ratios are new/old."""

from __future__ import annotations

from typing import Any, Final

from harness import documents
from harness.history.series import ScenarioHistory

SCHEMA: Final = "stepduel/history/3"


def document(history: ScenarioHistory) -> dict[str, Any]:
    """Return the history as plain JSON-ready values."""
    return documents.document(SCHEMA, history)
