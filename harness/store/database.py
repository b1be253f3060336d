"""The results database: every run, its environment, every step of every rank and every range of every step.

Figures people read (medians, shares, verdicts) are not stored: they are computed again from these rows. One run is one
transaction, begun with `BEGIN IMMEDIATE`, so that writers queue instead of failing half way. The schema grows by named
migrations which sqlite-utils records in the database itself; a name unknown here means that a newer version wrote it.
"""

from __future__ import annotations

import json
import math
import os
import secrets
import sqlite3
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, fields
from datetime import UTC, datetime
from pathlib import Path
from types import TracebackType
from typing import Any, Literal, Self

from harness.environment import Environment
from harness.errors import UsageError
from harness.measured import RangeRecord
from harness.metrics import METRICS, Metric
from harness.store.sqlite import Database, Migrations
from harness.store.waiting import NOTICE_S, when_free

RESULTS = "results.db"
"""The database's name in a folder of reports."""
_OURS = frozenset({"logs", "traces", "duels"})
"""What launches leave in a folder of reports."""
BUSY_TIMEOUT_S = 30.0
"""How long a writer waits for another one. A run is written in well under a second."""

STEP_TABLES = ("steps", "duel_steps")
"""Tables with a column for each metric."""

Status = Literal["completed", "failed"]

migrations = Migrations("stepduel")


@migrations()
def create_runs(db: Database) -> None:
    """Runs, environments, steps and ranges."""
    for statement in (
        """create table environments (
            id text primary key, machine text not null, cpu_model text not null, logical_cores integer not null,
            usable_cores integer not null, memory_bytes integer not null, gpus text not null, kernel text not null,
            python text not null, versions text not null)""",
        """create table runs (
            id text primary key, started_at text not null, scenario text not null, scenario_hash text not null,
            scenario_document text not null, subject text not null, revision text, dirty integer,
            environment_id text not null references environments(id), collector text not null, device text,
            ranks integer not null, status text not null, reason text, harness_version text not null,
            load_average real not null, trace text, logs text, engine_versions text not null, engine text not null)""",
        "create index runs_by_scenario on runs(scenario, started_at)",
        # `sequence` counts the steps of a launch from its first warm-up step on; a failed launch stops anywhere.
        """create table steps (
            run_id text not null references runs(id) on delete cascade, sequence integer not null,
            rank integer not null, measured integer not null, duration_ns integer not null, loss real, tokens integer,
            peak_memory_bytes integer, rss_bytes integer,
            primary key (run_id, sequence, rank)) without rowid""",
        "create table range_paths (id integer primary key, path text not null unique)",
        """create table ranges (
            run_id text not null references runs(id) on delete cascade, sequence integer not null,
            rank integer not null, path_id integer not null references range_paths(id), calls integer not null,
            total_ns integer not null, self_ns integer not null, moved_bytes integer, collected_objects integer,
            primary key (run_id, sequence, rank, path_id)) without rowid""",
    ):
        db.conn.execute(statement)


@dataclass(frozen=True, kw_only=True)
class RunRecord:
    """One launch. `trace` and `logs` are relative to the reports folder, so that it can be moved as a whole."""

    id: str
    started_at: str
    scenario: str
    scenario_hash: str
    scenario_document: Mapping[str, Any]
    subject: str
    revision: str | None
    dirty: bool | None
    collector: str
    device: str | None
    ranks: int
    status: Status
    reason: str | None
    harness_version: str
    load_average: float
    trace: str | None
    logs: str | None
    engine_versions: Mapping[str, str]
    engine: Mapping[str, Any]


@dataclass(frozen=True, kw_only=True)
class StepRecord:
    """One step of one rank as its worker reported it; warm-up steps have `measured` false."""

    sequence: int
    rank: int
    measured: bool
    duration_ns: int
    loss: float | None
    """Of this rank; in results from before, rank 0 has the mean and the others none."""
    tokens: int | None
    figures: Mapping[str, float]
    """By metric, over all ranks, in rank 0's row alone; what is unknown is left out."""


def with_columns(fields: dict[str, Any]) -> dict[str, Any]:
    """Return the fields of a step as a row of its table, with a column for each metric.

    SQLite keeps not-a-number as null, so a loss that is none goes in as text.
    """
    figures = fields.pop("figures")
    if fields["loss"] is not None and math.isnan(fields["loss"]):
        fields["loss"] = "nan"
    return {**fields, **{name: figures.get(name) for name in METRICS}}


def with_figures(row: dict[str, Any]) -> dict[str, Any]:
    """Return a row of a table of steps as the fields of its record."""
    columns = [(name, row.pop(name)) for name in METRICS]
    row["figures"] = {name: value for name, value in columns if value is not None}
    row["measured"] = bool(row["measured"])
    row["loss"] = None if row["loss"] is None else float(row["loss"])
    return row


def step_columns(kind: type[Any]) -> str:
    """Return what to select for a record: columns of other versions are left alone."""
    return ", ".join([*(field.name for field in fields(kind) if field.name != "figures"), *METRICS])


def new_run_id(now: datetime | None = None) -> str:
    """Return an id that sorts by time and is unique: UTC to the millisecond, then 24 random bits."""
    moment = now or datetime.now(UTC)
    return f"{moment:%Y%m%d-%H%M%S}-{moment.microsecond // 1000:03d}-{secrets.token_hex(3)}"


def open_results(reports: Path) -> Store:
    """Return the open store below `reports`. UsageError where there is no database yet."""
    path = reports / RESULTS
    if not path.is_file():
        raise UsageError(f"{path}: no results yet; run stepduel bench or compare, or choose another --reports")
    return Store(path)


def check_writable(path: Path) -> None:
    """Raise UsageError if `path` cannot become or is not a results database; creates nothing."""
    if path.exists():
        Store(path).close()
        return
    folder = path.parent
    while not folder.exists():
        folder = folder.parent
    if not folder.is_dir() or not os.access(folder, os.W_OK):
        raise UsageError(f"cannot write {path}: {folder} is not a folder this user may write to; choose --reports")


def _make_folder(folder: Path) -> None:
    """Make a folder of reports; keep it out of the repository it lies in, unless it holds something of the user's.

    What is measured must not make the measured code look edited. Logs and traces come before the database.
    """
    folder.mkdir(parents=True, exist_ok=True)
    if {entry.name for entry in folder.iterdir()} <= _OURS:
        (folder / ".gitignore").write_text("*\n", encoding="utf-8")


class Store:
    """The results database at `path`, created with its folder when absent. A context manager; closes on exit."""

    def __init__(self, path: Path) -> None:
        self.path = path
        with self._clear_errors():
            if not path.exists():
                _make_folder(path.parent)
            connection = sqlite3.connect(path, timeout=min(NOTICE_S, BUSY_TIMEOUT_S), isolation_level=None)
            self.db = Database(connection)
            try:
                when_free(path, self._prepare, BUSY_TIMEOUT_S)
            except BaseException:
                connection.close()
                raise

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close the connection; the last one out folds the write-ahead log into the database file."""
        self.db.close()

    def add_run(
        self, run: RunRecord, environment: Environment, steps: Iterable[StepRecord], ranges: Iterable[RangeRecord]
    ) -> None:
        """Write a run whole or not at all."""
        with self.transaction():
            self.add_environment(environment)
            row = asdict(run)
            for key in ("scenario_document", "engine_versions", "engine"):
                row[key] = json.dumps(row[key])
            self.db.table("runs").insert({**row, "environment_id": environment.id})
            self.db.table("steps").insert_all({"run_id": run.id, **with_columns(asdict(step))} for step in steps)
            self._add_ranges(run.id, list(ranges))

    def add_environment(self, environment: Environment) -> None:
        """Write an environment, inside a transaction, unless it is known already."""
        content = asdict(environment)
        self.db.table("environments").insert(
            {
                "id": environment.id,
                "machine": environment.machine,
                **content,
                "gpus": json.dumps(content["gpus"]),
                "versions": json.dumps(content["versions"]),
            },
            ignore=True,
        )

    def path_ids(self, paths: Iterable[str]) -> dict[str, int]:
        """Return the id of each range path, inside a transaction, adding those that are new."""
        self.db.table("range_paths").insert_all(({"path": path} for path in sorted(paths)), ignore=True)
        return {row["path"]: row["id"] for row in self.db["range_paths"].rows}

    def run(self, run_id: str) -> RunRecord:
        """Return one run; UsageError when there is none of that id."""
        rows = list(self.db["runs"].rows_where("id = ?", [run_id]))
        if not rows:
            raise UsageError(f"{self.path}: no run {run_id!r}")
        row = rows[0]
        del row["environment_id"]
        row["dirty"] = None if row["dirty"] is None else bool(row["dirty"])
        for key in ("scenario_document", "engine_versions", "engine"):
            row[key] = json.loads(row[key])
        return RunRecord(**row)

    def newest_run(self) -> RunRecord:
        """Return the run that was started last; UsageError when there is none."""
        row = next(self.db.query("select id from runs order by started_at desc, id desc limit 1"), None)
        if row is None:
            raise UsageError(f"{self.path}: holds no run yet; run stepduel bench")
        return self.run(row["id"])

    def steps(self, run_id: str) -> list[StepRecord]:
        """Return the steps of a run in the order they ran, ranks ascending within each."""
        query = f"select {step_columns(StepRecord)} from steps where run_id = ? order by sequence, rank"
        return [StepRecord(**with_figures(row)) for row in self.db.query(query, [run_id])]

    def ranges(self, run_id: str) -> list[RangeRecord]:
        """Return the ranges of a run by step, rank and path."""
        rows = self.db.query(
            """select sequence, rank, path, calls, total_ns, self_ns, moved_bytes, collected_objects, grown_bytes
            from ranges join range_paths on range_paths.id = path_id
            where run_id = ? order by sequence, rank, path""",
            [run_id],
        )
        return [RangeRecord(**row) for row in rows]

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """Run the block as one write transaction, waiting for other writers; nothing of it stays if it raises."""
        with self._clear_errors():
            when_free(self.path, lambda: self.db.conn.execute("begin immediate"), BUSY_TIMEOUT_S)
            try:
                yield
            except BaseException:
                if self.db.conn.in_transaction:  # SQLite ends it by itself on a full disk
                    self.db.conn.execute("rollback")
                raise
            self.db.conn.execute("commit")

    def _add_ranges(self, run_id: str, ranges: list[RangeRecord]) -> None:
        ids = self.path_ids({record.path for record in ranges})
        self.db.table("ranges").insert_all(
            {"run_id": run_id, "path_id": ids[row.pop("path")], **row} for row in map(asdict, ranges)
        )

    def _prepare(self) -> None:
        """Refuse a database from the future, then bring an older or empty one up to date."""
        if self.db.table_names() and migrations.migrations_table not in self.db.table_names():
            raise UsageError(f"{self.path}: a SQLite file, but not a results database: name another with --reports")
        known = {migration.name for migration in migrations.pending(Database(memory=True))}
        unknown = [item.name for item in migrations.applied(self.db) if item.name not in known]
        if unknown:
            raise UsageError(
                f"{self.path} was written by a newer Stepduel (it has the change {unknown[-1]!r}): "
                "update Stepduel, or name another folder with --reports"
            )
        self.db.conn.execute("pragma foreign_keys = on")
        self.db.conn.execute("pragma journal_mode = wal")
        if migrations.pending(self.db) or any(self._columns_to_add()):
            with self.transaction():
                migrations.apply(self.db)
                for table, metric in self._columns_to_add():
                    kind = "integer" if metric.whole else "real"
                    self.db.conn.execute(f"alter table {table} add column {metric.name} {kind}")

    def _columns_to_add(self) -> list[tuple[str, Metric]]:
        """The metrics that the tables of steps lack: those are new in `harness.metrics`."""
        return [
            (table, metric)
            for table in STEP_TABLES
            if (columns := self.db.table(table).columns_dict)
            for metric in METRICS.values()
            if metric.name not in columns
        ]

    @contextmanager
    def _clear_errors(self) -> Iterator[None]:
        try:
            yield
        except sqlite3.OperationalError as error:
            hint = "another process holds it; try again" if "locked" in str(error) else "check the disk and its rights"
            raise UsageError(f"{self.path}: {error}: {hint}") from error
        except sqlite3.DatabaseError as error:
            if type(error) is not sqlite3.DatabaseError:  # its subclasses are mistakes of this module
                raise
            raise UsageError(f"{self.path}: not a results database: {error}; name another with --reports") from error
        except OSError as error:
            raise UsageError(f"{self.path}: {error.strerror}: choose another folder with --reports") from error
