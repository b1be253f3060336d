"""`--html` from the command line: repeatable from the database alone, and clear about what is wrong."""

from __future__ import annotations

import json
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest
from markup import check_page
from stored_duels import DUEL_ID, DuelSpec, comparison_of

import harness.store.database
from harness.cli.__main__ import run

MADE = DuelSpec(pairs=4, steps=4, ranks=1)


@pytest.fixture
def reports(tmp_path: Path) -> Path:
    folder = tmp_path / "reports"
    comparison_of(folder, MADE)
    return folder


def test_the_report_repeats_to_the_byte_and_is_listed(reports: Path, capsys: pytest.CaptureFixture[str]) -> None:
    first, second = reports / "one.html", reports / "two.html"
    for target in (first, second):
        assert run(["report", DUEL_ID, "--reports", str(reports), "--html", str(target), "--json"]) == 0
    said = capsys.readouterr().out
    assert json.loads(said[: said.index("\n}\n") + 3])["duel"]["id"] == DUEL_ID
    assert first.read_bytes() == second.read_bytes()
    root = check_page(first.read_text(encoding="utf-8"))
    assert str(reports) not in first.read_text(encoding="utf-8")
    links = [link.attributes["href"] for link in root.by_id("reproduce").all("a")]
    assert links == [f"./duels/{DUEL_ID}/"]
    index = check_page((reports / "index.html").read_text(encoding="utf-8"))
    assert {link.attributes["href"] for link in index.by_id("reports").all("a")} == {"./one.html", "./two.html"}


def test_a_report_elsewhere_links_back_into_the_reports_folder(reports: Path, tmp_path: Path) -> None:
    target = tmp_path / "elsewhere" / "report.html"
    assert run(["report", "--reports", str(reports), "--html", str(target)]) == 0
    root = check_page(target.read_text(encoding="utf-8"))
    links = [link.attributes["href"] for link in root.by_id("reproduce").all("a")]
    assert links == [f"./../reports/duels/{DUEL_ID}/"]
    assert not (reports / "index.html").exists()


def complaint(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    assert run([*arguments]) == 2
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == 1
    return lines[0]


def test_databases_that_cannot_be_read(
    reports: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    target = reports / "report.html"
    target.write_text("old", encoding="utf-8")
    command = ["report", "--html", str(target), "--reports"]
    assert "no results yet" in complaint(capsys, *command, str(tmp_path / "none"))
    harness.store.database.Store(tmp_path / "empty" / "results.db").close()
    assert "holds no duel yet" in complaint(capsys, *command, str(tmp_path / "empty"))

    with harness.store.database.Store(tmp_path / "newer" / "results.db") as store:
        row = {"migration_set": "stepduel", "name": "add_time_travel", "applied_at": "2099-01-01"}
        store.db.table(harness.store.database.migrations.migrations_table).insert(row)
    assert "newer Stepduel" in complaint(capsys, *command, str(tmp_path / "newer"))

    monkeypatch.setattr(harness.store.database, "BUSY_TIMEOUT_S", 0.2)
    with closing(sqlite3.connect(reports / "results.db")) as other:
        other.execute("pragma locking_mode = exclusive")
        other.execute("begin exclusive")
        assert "locked" in complaint(capsys, *command, str(reports))
    assert target.read_text(encoding="utf-8") == "old"


def test_a_report_that_cannot_be_written_is_one_clear_line(reports: Path, capsys: pytest.CaptureFixture[str]) -> None:
    said = complaint(capsys, "report", "--reports", str(reports), "--html", str(reports / "results.db" / "x.html"))
    assert "cannot write" in said
    assert (reports / "results.db").is_file()
