"""Databases of several runners brought together, and kept small: nothing twice, nothing lost that should stay."""

from __future__ import annotations

import json
import shutil
import sqlite3
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from results import OTHER_MACHINE, add_duel, add_pair, add_run, revision

from harness.cli.__main__ import run
from harness.comparison import compare_stored, document
from harness.store import BaselineRecord, Baselines, Duels, Store
from harness.store.merging import merge
from harness.store.pruning import prune

TABLES = ("environments", "runs", "steps", "duels", "duel_pairs", "duel_steps", "baselines")


def contents(path: Path) -> dict[str, list[tuple[Any, ...]]]:
    """Every row of every table, ranges with the name of their path instead of its number."""
    connection = sqlite3.connect(path)
    found = {table: sorted(connection.execute(f"select * from {table}").fetchall(), key=repr) for table in TABLES}
    for table in ("ranges", "duel_ranges"):
        columns = [row[1] for row in connection.execute(f"pragma table_info({table})") if row[1] != "path_id"]
        query = f"select path, {', '.join(columns)} from {table} join range_paths on range_paths.id = path_id"
        found[table] = sorted(connection.execute(query).fetchall(), key=repr)
    connection.close()
    return found


def merged(into: Path, *sources: Path) -> Path:
    with Store(into) as store:
        for source in sources:
            merge(store, source)
    return into


@pytest.fixture
def runners(tmp_path: Path) -> tuple[Path, Path]:
    """Two databases that number the same range paths differently, and share one duel."""
    a, b = tmp_path / "a.db", tmp_path / "b.db"
    add_run(a, "a1", 100, ranges=("step", "step/load"))
    add_run(b, "b1", 100, minute=1, ranges=("other", "step/load", "step"), environment=OTHER_MACHINE)
    add_duel(a, "shared", 100, 110, minute=3, ranges=("step/load", "new"))
    shutil.copy(a, tmp_path / "copy.db")
    with Store(a) as store:
        shared = Duels(store)
        record, pairs, steps, ranges = (
            shared.duel("shared"),
            shared.pairs("shared"),
            shared.steps("shared"),
            shared.slowest_ranges("shared"),
        )
    with Store(b) as store:
        from results import ENVIRONMENT

        duels = Duels(store)
        duels.add(record, ENVIRONMENT)
        for pair in pairs:
            duels.add_pair(
                "shared",
                pair,
                [step for step in steps if step.pair == pair.pair],
                [row for row in ranges if row.pair == pair.pair],
            )
    return a, b


def test_merging_loses_nothing_and_adds_nothing_twice(tmp_path: Path, runners: tuple[Path, Path]) -> None:
    a, b = runners
    before = contents(a), contents(b)
    both = merged(tmp_path / "both.db", a, b)
    found = contents(both)
    for table, rows in found.items():
        assert set(rows) == set(before[0][table]) | set(before[1][table]), table
        assert len(rows) == len(set(rows)), table
    assert contents(merged(both, b, a, a)) == found
    assert contents(merged(tmp_path / "other-way.db", b, a)) == found
    assert (contents(a), contents(b)) == before, "sources are only read"
    with Store(a) as one, Store(both) as other:
        assert document(compare_stored(Duels(one), "shared")) == document(compare_stored(Duels(other), "shared"))


def test_a_duel_that_went_on_gets_its_new_launch_pairs(tmp_path: Path) -> None:
    source, into = tmp_path / "source.db", tmp_path / "into.db"
    add_duel(source, "d", 100, 110, pairs=1, status="running")
    merged(into, source)
    with Store(source) as store:
        add_pair(Duels(store), "d", 2, 100, 110)
        Duels(store).update("d", status="completed")
    merged(into, source)
    assert contents(into) == contents(source)


@settings(max_examples=8)
@given(st.lists(st.lists(st.integers(0, 5), max_size=4), min_size=1, max_size=4))
def test_any_merge_is_the_union(tmp_path_factory: pytest.TempPathFactory, owners: list[list[int]]) -> None:
    folder = tmp_path_factory.mktemp("union")
    paths = []
    for number, ids in enumerate(owners):
        path = folder / f"{number}.db"
        Store(path).close()
        for item in dict.fromkeys(ids):
            add_run(path, f"r{item}", 100 + item, minute=item, ranges=[f"p{item}", f"q{item}"][:: (1, -1)[number % 2]])
        paths.append(path)
    found = contents(merged(folder / "all.db", *paths))
    assert sorted({row[0] for row in found["runs"]}) == sorted({f"r{item}" for ids in owners for item in ids})
    assert contents(merged(folder / "again.db", *paths[::-1], *paths))["runs"] == found["runs"]


def test_a_source_that_is_no_results_database_leaves_all_as_it_was(tmp_path: Path, runners: tuple[Path, Path]) -> None:
    a, b = runners
    before = contents(a)
    text, foreign, newer = tmp_path / "text.db", tmp_path / "foreign.db", tmp_path / "newer.db"
    text.write_text("not a database, and long enough to be looked at as one" * 40)
    sqlite3.connect(foreign).execute("create table other (x)").connection.close()
    shutil.copy(b, newer)
    connection = sqlite3.connect(newer)
    connection.execute(
        "insert into _sqlite_migrations (migration_set, name, applied_at) values ('stepduel', 'from_the_future', '9')"
    )
    connection.commit()
    connection.close()
    reports = tmp_path / "reports"
    reports.mkdir()
    shutil.copy(a, reports / "results.db")
    for source, complaint in (
        (text, "cannot be read as a results database"),
        (foreign, "not a results database"),
        (newer, "newer Stepduel"),
        (tmp_path / "absent.db", "no such database"),
        (reports / "results.db", "is the database to merge into"),
    ):
        with pytest.MonkeyPatch.context() as patch:
            patch.chdir(tmp_path)
            assert run(["db", "merge", str(source)]) == 2, source
            with Store(reports / "results.db") as store, pytest.raises(Exception, match=complaint):
                merge(store, source)
    assert contents(reports / "results.db") == before


def test_an_empty_database_merges_as_nothing(tmp_path: Path, runners: tuple[Path, Path]) -> None:
    empty = tmp_path / "empty.db"
    empty.touch()
    before = contents(runners[0])
    assert contents(merged(runners[0], empty)) == before


def test_a_locked_database_is_one_clear_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("harness.store.database.BUSY_TIMEOUT_S", 0.2)
    reports = tmp_path / "reports"
    add_run(reports / "results.db", "r", 100)
    add_run(tmp_path / "other.db", "s", 100, minute=1)
    holder = sqlite3.connect(reports / "results.db", isolation_level=None)
    holder.execute("begin immediate")
    try:
        for arguments in (["db", "merge", str(tmp_path / "other.db")], ["db", "prune", "--keep", "0"]):
            assert run([*arguments, "--reports", str(reports)]) == 2
            errors = capsys.readouterr().err
            assert "locked: another process holds it; try again" in errors
            assert errors.count("\n") == 1
    finally:
        holder.execute("rollback")
        holder.close()
    assert [row[0] for row in contents(reports / "results.db")["runs"]] == ["r"]


def test_pruning_keeps_the_newest_of_each_scenario_and_the_baseline(tmp_path: Path) -> None:
    path = tmp_path / "results.db"
    for minute in range(6):
        add_run(path, f"r{minute}", 100, minute=minute, ranges=("step", f"old/{minute}"))
        add_run(path, f"o{minute}", 100, minute=minute, scenario="other")
        add_duel(path, f"d{minute}", 100, 100, minute=minute, ranges=(f"duel/{minute}",))
    add_duel(path, "aa", 100, 100, minute=0, kind="aa")
    add_duel(path, "going-on", 100, 100, minute=0, status="running")
    with Store(path) as store:
        Baselines(store).pin(BaselineRecord(scenario="smoke", revision=revision(1), pinned_at="x"))
        pruned = prune(store, keep=2)
    assert sorted(pruned.runs) == ["o0", "o1", "o2", "o3", "r0", "r2", "r3"]
    assert sorted(pruned.duels) == ["d2", "d3"], "d0 and d1 measured the baseline, on one side"
    assert "traces/r0.sqlite" in pruned.files
    assert "duels/d2" in pruned.files
    found = contents(path)
    assert {row[0] for row in found["steps"]} == {"o4", "o5", "r1", "r4", "r5"}
    assert {row[0] for row in found["duel_steps"]} == {"d0", "d1", "d4", "d5", "aa", "going-on"}
    connection = sqlite3.connect(path)
    paths = {row[0] for row in connection.execute("select path from range_paths")}
    assert paths == {"step", "old/1", "old/4", "old/5", *(f"duel/{n}" for n in (0, 1, 4, 5))}
    assert connection.execute("pragma integrity_check").fetchall() == [("ok",)]
    assert connection.execute("pragma foreign_key_check").fetchall() == []


def test_pruning_shrinks_the_file_and_removes_files_only_inside_the_reports_folder(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    reports, outside = tmp_path / "reports", tmp_path / "outside"
    outside.mkdir()
    (outside / "precious").write_text("x")
    path = reports / "results.db"
    add_run(path, "old", 100, steps=3000, logs="../outside", trace=str(outside / "precious"))
    add_run(path, "older", 100, minute=0)
    add_run(path, "new", 100, minute=9)
    (reports / "traces").mkdir()
    (reports / "traces" / "older.sqlite").write_bytes(b"x" * 1000)
    (reports / "logs" / "older").mkdir(parents=True)
    (reports / "logs" / "older" / "rank0.log").write_bytes(b"x" * 500)
    size = path.stat().st_size
    assert run(["db", "prune", "--keep", "1", "--files", "--json", "--reports", str(reports)]) == 0
    found = json.loads(capsys.readouterr().out)
    assert sorted(found["runs"]) == ["old", "older"]
    assert path.stat().st_size < size / 2
    assert found["freed_bytes"] == size - path.stat().st_size + 1500
    assert (outside / "precious").read_text() == "x"
    assert not (reports / "traces" / "older.sqlite").exists()
    assert not (reports / "logs" / "older").exists()


def test_only_what_is_old_enough_is_pruned(tmp_path: Path) -> None:
    from datetime import UTC, datetime

    path = tmp_path / "results.db"
    for minute in range(4):
        add_run(path, f"r{minute}", 100, minute=minute)
    with Store(path) as store:
        pruned = prune(store, keep=0, before=datetime(2026, 1, 1, 0, 2, tzinfo=UTC))
    assert sorted(pruned.runs) == ["r0", "r1"]


def test_a_baseline_is_pinned_shown_replaced_and_cleared(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    from duel_bench import git

    monkeypatch.chdir(tmp_path)
    git(tmp_path, "init", "-q", "-b", "main")
    for subject in ("one", "two"):
        git(tmp_path, "commit", "-q", "--allow-empty", "-m", subject)
    assert run(["baseline", "set", "smoke", "HEAD~1"]) == 0
    assert run(["baseline", "set", "smoke"]) == 0
    capsys.readouterr()
    assert run(["baseline", "show", "--json"]) == 0
    (one,) = json.loads(capsys.readouterr().out)["baselines"]
    assert (one["scenario"], one["revision"]) == ("smoke", git(tmp_path, "rev-parse", "HEAD"))
    assert run(["baseline", "set", "smoke", "nothing"]) == 2
    assert run(["baseline", "set", "smock"]) == 2
    assert run(["baseline", "clear", "smoke"]) == 0
    capsys.readouterr()
    assert run(["baseline", "show"]) == 0
    assert "no baseline is pinned" in capsys.readouterr().out


def test_every_scenario_has_its_own_baseline(tmp_path: Path) -> None:
    pinned = [
        BaselineRecord(scenario=name, revision=revision(number), pinned_at="x") for number, name in enumerate("abc")
    ]
    with Store(tmp_path / "results.db") as store:
        baselines = Baselines(store)
        for each in reversed(pinned):
            baselines.pin(each)
        assert [baselines.of(name) for name in "abcd"] == [*pinned, None]
        assert (baselines.unpin("b"), baselines.unpin("b")) == (True, False)
        assert [baselines.of(name) for name in "abc"] == [pinned[0], None, pinned[2]]
