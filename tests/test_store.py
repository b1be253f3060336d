"""The store keeps a run whole or not at all, whoever else is writing, and refuses what it does not understand."""

from __future__ import annotations

import math
import os
import sqlite3
import subprocess
import sys
import threading
from contextlib import ExitStack
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from child_process import PIPE, child

from harness.environment import Environment, Gpu
from harness.errors import UsageError
from harness.store import (
    RangeRecord,
    RunRecord,
    StepRecord,
    Store,
    check_writable,
    database,
    migrations,
    new_run_id,
    waiting,
)

ENVIRONMENT = Environment(
    cpu_model="Test CPU",
    logical_cores=4,
    usable_cores=2,
    memory_bytes=2**33,
    gpus=(Gpu(name="Test GPU", memory_bytes=2**34, driver="1.2"),),
    kernel="Linux 6",
    python="3.11.7",
    versions={"torch": "2.13.0"},
)


def make_run(run_id: str = "r1", **changes: object) -> RunRecord:
    values: dict[str, object] = {
        "id": run_id,
        "started_at": "2026-01-02T03:04:05+00:00",
        "scenario": "smoke",
        "scenario_hash": "abc",
        "scenario_document": {"run": {"steps": 2}, "probes": {}},
        "subject": ".",
        "revision": "f" * 40,
        "dirty": True,
        "collector": "recorder",
        "device": "cpu",
        "ranks": 2,
        "status": "completed",
        "reason": None,
        "harness_version": "0.1.0",
        "load_average": 0.25,
        "trace": "traces/r1.sqlite",
        "logs": "logs/r1",
        "engine_versions": {"torch": "2.13.0"},
        "engine": {"parameters": 7068},
    }
    return RunRecord(**{**values, **changes})  # type: ignore[arg-type]  # a test's own values


def make_step(sequence: int, rank: int, **changes: object) -> StepRecord:
    values: dict[str, object] = {
        "sequence": sequence,
        "rank": rank,
        "measured": sequence > 0,
        "duration_ns": 1_000_000_007 + sequence,
        "loss": 6.123456789012345,
        "tokens": 512,
        "figures": {"peak_memory_bytes": 2**40},
    }
    return StepRecord(**{**values, **changes})  # type: ignore[arg-type]  # a test's own values


def make_range(sequence: int, rank: int, path: str, **changes: object) -> RangeRecord:
    values: dict[str, object] = {
        "sequence": sequence,
        "rank": rank,
        "path": path,
        "calls": 1,
        "total_ns": 10**12,
        "self_ns": 3,
        "moved_bytes": None,
        "collected_objects": 0,
    }
    return RangeRecord(**{**values, **changes})  # type: ignore[arg-type]  # a test's own values


STEPS = [make_step(sequence, rank) for sequence in (0, 1, 2) for rank in (0, 1)]
RANGES = [make_range(1, rank, path) for rank in (0, 1) for path in ("step", "step/gc.collect")]


def test_everything_comes_back_as_it_was_written(tmp_path: Path) -> None:
    with Store(tmp_path / "new folder" / "results.db") as db:
        db.add_run(make_run(), ENVIRONMENT, reversed(STEPS), reversed(RANGES))
    with Store(tmp_path / "new folder" / "results.db") as db:
        assert db.run("r1") == make_run()
        assert db.steps("r1") == STEPS, "in the order they ran"
        assert db.ranges("r1") == RANGES
        assert db.db.table("environments").count == 1
        with pytest.raises(UsageError, match="no run 'r2'"):
            db.run("r2")


def test_a_loss_that_is_no_number_is_not_one_that_is_unknown(tmp_path: Path) -> None:
    losses = [math.nan, None, 0.0]
    steps = [make_step(sequence, 0, loss=loss) for sequence, loss in enumerate(losses)]
    with Store(tmp_path / "results.db") as db:
        db.add_run(make_run(), ENVIRONMENT, steps, [])
        not_a_number, unknown, zero = (step.loss for step in db.steps("r1"))
    assert not_a_number is not None
    assert math.isnan(not_a_number)
    assert (unknown, zero) == (None, 0.0)


def test_a_folder_of_reports_keeps_itself_out_of_the_repository_it_lies_in(tmp_path: Path) -> None:
    subprocess.run(["git", "init", "-q", str(tmp_path)], check=True)
    (tmp_path / "reports" / "logs" / "of a launch").mkdir(parents=True)  # they come before the database
    (tmp_path / "reports" / "logs" / "of a launch" / "rank0.log").touch()
    Store(tmp_path / "reports" / "results.db").close()
    status = ["git", "-C", str(tmp_path), "status", "--porcelain"]
    assert subprocess.run(status, check=True, capture_output=True, text=True).stdout == ""
    Store(tmp_path / "results.db").close()  # this folder holds what is not ours
    assert not (tmp_path / ".gitignore").exists()


def test_a_failed_run_is_kept_with_its_reason(tmp_path: Path) -> None:
    failed = make_run(status="failed", reason="rank 1 died", trace=None, device=None, revision=None, dirty=None)
    with Store(tmp_path / "results.db") as db:
        db.add_run(failed, ENVIRONMENT, STEPS[:2], [])
        assert db.run("r1") == failed
        assert db.steps("r1") == STEPS[:2]


def test_one_environment_for_many_runs_and_one_path_for_many_ranges(tmp_path: Path) -> None:
    with Store(tmp_path / "results.db") as db:
        for run_id in ("a", "b", "c"):
            db.add_run(make_run(run_id), ENVIRONMENT, STEPS, RANGES)
        assert db.db.table("environments").count == 1
        assert db.db.table("range_paths").count == 2
        assert db.db.table("ranges").count == 3 * len(RANGES)


def test_a_run_that_breaks_half_way_leaves_nothing(tmp_path: Path) -> None:
    with Store(tmp_path / "results.db") as db:
        with pytest.raises(sqlite3.IntegrityError):
            db.add_run(make_run(), ENVIRONMENT, STEPS, [*RANGES, RANGES[0]])
        assert [db.db.table(name).count for name in ("runs", "environments", "steps", "ranges", "range_paths")] == [
            0
        ] * 5
        db.add_run(make_run(), ENVIRONMENT, STEPS, RANGES)
        assert db.ranges("r1") == RANGES


WRITER = """
import sys
from pathlib import Path
sys.path.insert(0, sys.argv[3])
import test_store as t
for number in range(10):
    with t.Store(Path(sys.argv[1])) as db:
        db.add_run(t.make_run(f"{sys.argv[2]}-{number}"), t.ENVIRONMENT, t.STEPS, t.RANGES)
"""


def test_benches_at_once_lose_nothing(tmp_path: Path) -> None:
    tests_folder = str(Path(__file__).resolve().parent)
    path = tmp_path / "results.db"  # absent: the processes also race to create it
    command = [sys.executable, "-c", WRITER, str(path)]
    with ExitStack() as stack:
        writers = [stack.enter_context(child([*command, str(i), tests_folder], stderr=PIPE)) for i in range(3)]
        for writer in writers:
            _, errors = writer.communicate(timeout=120)
            assert writer.returncode == 0, errors
    with Store(path) as db:
        assert {row["id"] for row in db.db.table("runs").rows} == {f"{i}-{n}" for i in range(3) for n in range(10)}
        for run_id in ("0-0", "2-9"):
            assert (db.steps(run_id), db.ranges(run_id)) == (STEPS, RANGES)
        assert db.db.journal_mode == "wal"


def test_migrations_are_recorded_by_name_and_applied_once(tmp_path: Path) -> None:
    for _ in range(2):
        Store(tmp_path / "results.db").close()
    with Store(tmp_path / "results.db") as db:
        names = [row["name"] for row in db.db.table("_sqlite_migrations").rows]
    assert names == [migration.name for migration in migrations._migrations]


def test_a_database_from_a_newer_version_is_refused_and_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "results.db"
    with Store(path) as db:
        db.add_run(make_run(), ENVIRONMENT, STEPS, RANGES)
        row = {"migration_set": "stepduel", "name": "add_time_travel", "applied_at": "2099-01-01"}
        db.db.table("_sqlite_migrations").insert(row)
    before = path.read_bytes()
    with pytest.raises(UsageError, match=r"newer Stepduel .*'add_time_travel'.*update Stepduel"):
        Store(path)
    assert path.read_bytes() == before


def test_files_that_are_no_results_database_are_refused(tmp_path: Path) -> None:
    (tmp_path / "text.db").write_text("this is not SQLite" * 100)
    with pytest.raises(UsageError, match="not a results database"):
        Store(tmp_path / "text.db")
    other = sqlite3.connect(tmp_path / "other.db")
    other.execute("create table mine (x)")
    other.close()
    with pytest.raises(UsageError, match="a SQLite file, but not a results database"):
        Store(tmp_path / "other.db")
    with pytest.raises(UsageError, match="choose another folder with --reports"):
        Store(tmp_path / "text.db" / "results.db")


def test_a_locked_database_is_said_to_be_locked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(database, "BUSY_TIMEOUT_S", 0.1)
    path = tmp_path / "results.db"
    Store(path).close()
    holder = sqlite3.connect(path, isolation_level=None)
    holder.execute("begin exclusive")
    with Store(path) as db, pytest.raises(UsageError, match="locked: another process holds it; try again"):
        db.add_run(make_run(), ENVIRONMENT, STEPS, RANGES)
    holder.close()


def test_a_long_wait_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(waiting, "NOTICE_S", 0.1)
    monkeypatch.setattr(database, "NOTICE_S", 0.1)
    path = tmp_path / "results.db"
    Store(path).close()
    code = (
        "import sqlite3, sys; c = sqlite3.connect(sys.argv[1], isolation_level=None); c.execute('begin immediate');"
        "print('held', flush=True); sys.stdin.readline(); c.execute('commit')"
    )
    command = [sys.executable, "-c", code, str(path)]
    with child(command, stdin=PIPE, stdout=PIPE) as holder:
        assert holder.stdout is not None
        assert holder.stdin is not None
        assert holder.stdout.readline() == "held\n"
        letting_go = threading.Timer(1.0, lambda: (holder.stdin.write("\n"), holder.stdin.flush()))  # type: ignore[union-attr] # checked above
        letting_go.start()
        with Store(path) as store:
            store.add_run(make_run(), ENVIRONMENT, STEPS, RANGES)
            assert store.run("r1").id == "r1"
        letting_go.join()
    said = capsys.readouterr().err
    assert said.count("\n") == 1
    assert said.startswith(f"stepduel: waiting for another process to be done with {path} (at most 30 s)")


def test_a_short_wait_is_not_worth_a_word(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "results.db"
    Store(path).close()
    holder = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
    holder.execute("begin immediate")
    letting_go = threading.Timer(0.3, holder.rollback)
    letting_go.start()
    with Store(path) as store:
        store.add_run(make_run(), ENVIRONMENT, STEPS, RANGES)
    letting_go.join()
    holder.close()
    assert capsys.readouterr().err == ""


def test_check_writable_creates_nothing(tmp_path: Path) -> None:
    check_writable(tmp_path / "a" / "b" / "results.db")
    assert list(tmp_path.iterdir()) == []
    (tmp_path / "file").write_text("")
    with pytest.raises(UsageError, match="not a folder this user may write to"):
        check_writable(tmp_path / "file" / "results.db")


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_check_writable_sees_a_read_only_folder(tmp_path: Path) -> None:
    tmp_path.chmod(0o500)
    with pytest.raises(UsageError, match="not a folder this user may write to"):
        check_writable(tmp_path / "results.db")


def test_run_ids_sort_by_time_and_differ_within_a_millisecond() -> None:
    moment = datetime(2026, 12, 31, 23, 59, 59, 998_000, tzinfo=UTC)
    ids = [new_run_id(moment + timedelta(milliseconds=offset)) for offset in range(4)]
    assert ids == sorted(ids)
    assert ids[0].startswith("20261231-235959-998-")
    assert len({new_run_id(moment) for _ in range(200)}) == 200


@pytest.mark.parametrize(("first", "loaded"), [("", False), ("import pandas; ", True)])
def test_the_store_loads_no_pandas_and_leaves_one_that_is_loaded_in_place(first: str, loaded: bool) -> None:
    code = f"import sys; {first}before = sys.modules.get('pandas'); import harness.store; "
    code += "print(sys.modules.get('pandas') is before, 'pandas' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["True", str(loaded)]
