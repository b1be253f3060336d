"""Keeps the results database small: removes old runs and duels with everything below them, and shrinks the file."""

from __future__ import annotations

import sqlite3
from dataclasses import dataclass
from datetime import datetime

from harness.errors import UsageError
from harness.store.database import Store

_NEWEST = "select id, row_number() over (partition by {by} order by started_at desc, id desc) as place from {table}"
_OLD = f"""
    select id from {{table}} where id in (select id from ({_NEWEST}) where place > :keep) and started_at < :before
    and not exists (
        select 1 from baselines where baselines.scenario = {{table}}.scenario and baselines.revision in {{code}})"""
_OLD_RUNS = _OLD.format(table="runs", by="scenario", code="(runs.revision)")
_OLD_DUELS = (
    _OLD.format(
        table="duels",
        by="scenario, kind",
        code="(json_extract(duels.base, '$.revision'), json_extract(duels.head, '$.revision'))",
    )
    + " and status != 'running'"
)
_ALWAYS = "9999"
"""Later than any time of a start."""


@dataclass(frozen=True, kw_only=True)
class Pruned:
    """What was removed: ids, what lay on the disk for them (relative to the reports folder), and bytes it freed."""

    runs: tuple[str, ...]
    duels: tuple[str, ...]
    files: tuple[str, ...]
    freed_bytes: int


def prune(store: Store, *, keep: int, before: datetime | None = None) -> Pruned:
    """Remove all but the newest `keep` runs of each scenario, and the newest `keep` duels of each scenario and kind.

    With `before`, only what started earlier is removed. What measured a pinned baseline stays, and running duels.
    Files are named, not removed. Raises UsageError.
    """
    size = store.path.stat().st_size
    given = {"keep": keep, "before": _ALWAYS if before is None else before.isoformat()}
    with store.transaction():
        runs = [row["id"] for row in store.db.query(_OLD_RUNS, given)]
        duels = [row["id"] for row in store.db.query(_OLD_DUELS, given)]
        files = [name for run in runs for name in _files(store, "trace, logs", "runs", run)]
        files += [name for duel in duels for name in _files(store, "logs", "duels", duel)]
        for table, ids in (("runs", runs), ("duels", duels)):
            store.db.conn.executemany(f"delete from {table} where id = ?", [(item,) for item in ids])
        _drop_orphans(store)
    _shrink(store)
    return Pruned(
        runs=tuple(runs), duels=tuple(duels), files=tuple(files), freed_bytes=max(0, size - store.path.stat().st_size)
    )


def _files(store: Store, columns: str, table: str, item: str) -> list[str]:
    row = next(store.db.query(f"select {columns} from {table} where id = ?", [item]))
    return [name for name in row.values() if name]


def _drop_orphans(store: Store) -> None:
    """Remove environments and range paths that nothing refers to any more."""
    for table, used in (
        ("environments", "select environment_id from runs union select environment_id from duels"),
        ("range_paths", "select path_id from ranges union select path_id from duel_ranges"),
    ):
        store.db.conn.execute(f"delete from {table} where id not in ({used})")


def _shrink(store: Store) -> None:
    try:
        store.db.conn.execute("vacuum")
        store.db.conn.execute("pragma wal_checkpoint(truncate)")
    except sqlite3.OperationalError as error:
        raise UsageError(
            f"{store.path}: old results are removed, but the file cannot shrink: {error}: run it again when nobody "
            "else uses the database and the disk has room for a second copy of it"
        ) from error
