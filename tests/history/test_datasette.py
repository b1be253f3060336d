"""The queries made for Datasette run on a real results database and give what Python computes from the same rows."""

from __future__ import annotations

import json
import sqlite3
from pathlib import Path
from typing import Any

import pytest
from results import add_duel, add_run

METADATA = Path(__file__).resolve().parents[2] / "docs" / "datasette.json"
CONTENT = json.loads(METADATA.read_text())["databases"]["results"]


@pytest.fixture
def database(tmp_path: Path) -> sqlite3.Connection:
    path = tmp_path / "results.db"
    add_run(path, "r1", 100, ranges=("step", "step/load"))
    add_run(path, "r2", 110, minute=1, steps=4)
    add_run(path, "bad", 1, minute=2, steps=0, status="failed", reason="rank 0 raised")
    add_duel(path, "d1", 100, 125, ranges=("step/load", "step/gone"))
    return sqlite3.connect(path)


def rows(database: sqlite3.Connection, name: str, **given: str) -> list[dict[str, Any]]:
    cursor = database.execute(CONTENT["queries"][name]["sql"], given)
    columns = [column[0] for column in cursor.description]
    return [dict(zip(columns, row, strict=True)) for row in cursor]


def test_step_time_is_the_median_of_the_slowest_rank(database: sqlite3.Connection) -> None:
    found = rows(database, "step_time_by_commit", scenario="smoke")
    assert [(row["id"], row["step_ms"]) for row in found] == [("r1", 100.0), ("r2", 110.0)]
    database.execute("update steps set duration_ns = duration_ns * sequence where run_id = 'r2' and rank = 0")
    assert rows(database, "step_time_by_commit", scenario="smoke")[1]["step_ms"] == 275.0, "between 2 and 3 x 110"


def test_duels_tell_the_change(database: sqlite3.Connection) -> None:
    (duel,) = rows(database, "duels")
    assert (duel["id"], duel["pairs"], duel["change_percent"]) == ("d1", 2, 25.0)


def test_ranges_are_means_per_step(database: sqlite3.Connection) -> None:
    found = {row["path"]: row for row in rows(database, "slowest_ranges", run_id="r1")}
    assert set(found) == {"step", "step/load"}
    parts = {row["path"]: row for row in rows(database, "ranges_of_a_duel", duel_id="d1")}
    assert set(parts) == {"step/load", "step/gone"}
    assert all(row["head_ms"] is None for row in parts.values())


def test_what_failed_is_listed_with_its_reason(database: sqlite3.Connection) -> None:
    assert [(row["what"], row["id"], row["reason"]) for row in rows(database, "failures")] == [
        ("run", "bad", "rank 0 raised")
    ]
    assert len(rows(database, "conditions")) == 2


def test_every_table_and_column_it_describes_is_there(database: sqlite3.Connection) -> None:
    for table, about in CONTENT["tables"].items():
        columns = {row[1] for row in database.execute(f"pragma table_info({table})")}
        assert columns, table
        assert set(about.get("columns", ())) <= columns, table
