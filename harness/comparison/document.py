"""A comparison as the JSON document `stepduel/compare/2`. `ratio` is head/base of step time."""

from __future__ import annotations

from typing import Any, Final

from harness import documents
from harness.comparison.result import Comparison

SCHEMA: Final = "stepduel/compare/2"


def document(comparison: Comparison) -> dict[str, Any]:
    """Return the comparison as plain JSON-ready values."""
    return documents.document(SCHEMA, comparison)
