"""Brings together databases, from several CI runners for example.

Every run and duel has an id of its own that no other has, so one that is there already is the same: a merge repeated
adds nothing, except that a duel which has gone on since gets its new launch pairs. Range paths are numbered by each
database for itself and are translated by name.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from urllib.parse import quote

from harness.errors import UsageError
from harness.store.database import Store

_FINDINGS = "status, reason, steps, warmup_steps, base, head, prior, objection, detectable_effect, device, explanation"
"""What a duel finds out while it runs."""
_WITH_AN_ID = ("environments", "runs", "duels")


@dataclass(frozen=True, kw_only=True)
class Merged:
    """What one database added."""

    runs: int
    duels: int
    pairs: int
    baselines: int


def merge(store: Store, source: Path) -> Merged:
    """Add everything that the database `source` holds and `store` lacks, whole or not at all.

    `source` is not changed; one of an older version is brought up to date in a copy. Raises UsageError.
    """
    if not source.is_file():
        raise UsageError(f"{source}: no such database to merge")
    if source.resolve() == store.path.resolve():
        raise UsageError(f"{source}: is the database to merge into")
    with _up_to_date_copy(source) as copy:
        store.db.conn.execute("attach database ? as other", [str(copy)])
        try:
            with store.transaction():
                return _add_all(store)
        finally:
            store.db.conn.execute("detach database other")


@contextmanager
def _up_to_date_copy(source: Path) -> Iterator[Path]:
    """A private copy of a database, with this version's schema; made by SQLite, so its write-ahead log is in it."""
    with TemporaryDirectory(prefix="stepduel-") as folder:
        copy = Path(folder) / "copy.db"
        try:
            address = f"file:{quote(str(source.resolve()))}?mode=ro"
            with closing(sqlite3.connect(address, uri=True)) as opened, closing(sqlite3.connect(copy)) as target:
                opened.backup(target)
        except sqlite3.Error as error:
            raise UsageError(f"{source}: cannot be read as a results database: {error}") from error
        try:
            Store(copy).close()
        except UsageError as error:
            raise UsageError(str(error).replace(str(copy), str(source))) from error
        yield copy


def _add_all(store: Store) -> Merged:
    added = {table: _copy(store, table) for table in _WITH_AN_ID}
    _execute(store, "insert or ignore into range_paths (path) select path from other.range_paths")
    pairs = _copy(store, "duel_pairs")
    for table in ("steps", "duel_steps"):
        _copy(store, table)
    for table in ("ranges", "duel_ranges"):
        _copy_ranges(store, table)
    # A duel that was still running when it was merged first may have ended since.
    _execute(
        store,
        f"update main.duels set ({_FINDINGS}) = "
        f"(select {_FINDINGS} from other.duels as newer where newer.id = duels.id) "
        "where status = 'running' and id in (select id from other.duels where status != 'running')",
    )
    baselines = _copy(store, "baselines")
    return Merged(runs=added["runs"], duels=added["duels"], pairs=pairs, baselines=baselines)


def _copy(store: Store, table: str) -> int:
    """Copy the rows whose primary key is new; columns are named, since versions may order them differently."""
    columns = ", ".join(_columns(store, table))
    return _execute(store, f"insert or ignore into main.{table} ({columns}) select {columns} from other.{table}")


def _copy_ranges(store: Store, table: str) -> None:
    columns = [column for column in _columns(store, table) if column != "path_id"]
    theirs = ", ".join(f"rows.{column}" for column in columns)
    _execute(
        store,
        f"insert or ignore into main.{table} ({', '.join(columns)}, path_id) select {theirs}, mine.id "
        f"from other.{table} as rows join other.range_paths as names on names.id = rows.path_id "
        "join main.range_paths as mine on mine.path = names.path",
    )


def _columns(store: Store, table: str) -> list[str]:
    return [column.name for column in store.db.table(table).columns]


def _execute(store: Store, statement: str) -> int:
    return int(store.db.conn.execute(statement).rowcount)
