"""The queries made for Datasette run on a real results database and give what Python computes from the same rows."""

from __future__ import annotations

import importlib.util
import json
import socket
import sqlite3
import subprocess
import sys
import time
from pathlib import Path
from typing import Any
from urllib.error import URLError
from urllib.parse import quote, urlencode
from urllib.request import urlopen

import pytest
from child_process import DEVNULL, child
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
    (duel,) = rows(database, "change_by_duel")
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


def test_no_query_hides_a_table(database: sqlite3.Connection) -> None:
    tables = {row[0] for row in database.execute("select name from sqlite_master where type = 'table'")}
    assert tables.isdisjoint(CONTENT["queries"]), "both have their page at the same address"


def test_every_table_and_column_it_describes_is_there(database: sqlite3.Connection) -> None:
    for table, about in CONTENT["tables"].items():
        columns = {row[1] for row in database.execute(f"pragma table_info({table})")}
        assert columns, table
        assert set(about.get("columns", ())) <= columns, table


@pytest.mark.slow
@pytest.mark.skipif(importlib.util.find_spec("datasette") is None, reason="no datasette: pip install 'stepduel[serve]'")
def test_datasette_serves_every_query_and_table(database: sqlite3.Connection, tmp_path: Path) -> None:
    """As `make serve` starts it, asked over HTTP."""
    database.close()
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    command = [sys.executable, "-m", "datasette", "serve", str(tmp_path / "results.db"), "--metadata", str(METADATA)]
    with child([*command, "--port", str(port)], stdout=DEVNULL, stderr=DEVNULL) as server:
        site = f"http://127.0.0.1:{port}"
        assert "Stepduel results" in page(site, server)
        for name, query in CONTENT["queries"].items():
            given = urlencode({"scenario": "smoke", "run_id": "r1", "duel_id": "d1"})
            found = json.loads(page(f"{site}/results/{name}.json?_shape=array&{given}", server))
            assert found, name
            assert query["title"] in page(f"{site}/results/{name}?{given}", server)
        for table in CONTENT["tables"]:
            assert f"<title>results: {table}: " in page(f"{site}/results/{quote(table)}", server)


def page(address: str, server: subprocess.Popen[str]) -> str:
    """Ask until the server answers; it takes a second or two to start."""
    deadline = time.monotonic() + 60
    while True:
        try:
            with urlopen(address, timeout=30) as answer:
                return str(answer.read(), "utf-8")
        except URLError as error:
            started = not isinstance(error.reason, ConnectionRefusedError)
            if started or server.poll() is not None or time.monotonic() > deadline:
                raise
            time.sleep(0.1)
