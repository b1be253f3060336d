"""Opens the results of commands that only read them: without a database there is nothing to show."""

from __future__ import annotations

from pathlib import Path

from harness.duel import RESULTS
from harness.errors import UsageError
from harness.store import Store


def open_results(reports: Path) -> Store:
    """Return the open store below `reports`. UsageError where there is no database yet."""
    path = reports / RESULTS
    if not path.is_file():
        raise UsageError(f"{path}: no results yet; run stepduel bench or compare, or choose another --reports")
    return Store(path)
