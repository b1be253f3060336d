"""Makes one trace of a launch from the files its ranks wrote. Standard library only, like the writer.

The first readable rank's file is copied page by page; the others' rows follow with their string ids mapped and their
times moved to the first one's axis (by the system clock, which is the same for all processes of a machine). The result
appears under its name only when it is whole. A rank that left no readable file is noted in the trace, and the reader
turns the note into a warning.
"""

from __future__ import annotations

import contextlib
import os
import sqlite3
from pathlib import Path
from typing import Final

from harness.errors import LaunchError
from harness.trace import schema

_STRING_COLUMNS: Final = {
    ("NVTX_EVENTS", "textId"),
    ("NVTX_EVENTS", "jsonTextId"),
    ("CUPTI_ACTIVITY_KIND_RUNTIME", "nameId"),
    ("CUPTI_ACTIVITY_KIND_KERNEL", "demangledName"),
    ("CUPTI_ACTIVITY_KIND_KERNEL", "shortName"),
    ("CUPTI_ACTIVITY_KIND_KERNEL", "mangledName"),
    ("ThreadNames", "nameId"),
}
_TIME_COLUMNS: Final = ("start", "end")
# Handled by themselves: strings are mapped, and there is one session and one set of metadata.
_NOT_COPIED: Final = ("StringIds", "TARGET_INFO_SESSION_START_TIME", "META_DATA_EXPORT")


def merge_launch(launch_dir: Path, ranks: int, destination: Path) -> Path:
    """Merge `launch_dir/rank{r}.sqlite` for all `ranks` into one trace at `destination`, replacing what is there.

    Raises LaunchError when no rank left a readable file, or the trace cannot be written.
    """
    readable = {}
    for rank in range(ranks):
        path = launch_dir / f"rank{rank}.sqlite"
        if _recover(path):
            readable[rank] = path
    if not readable:
        raise LaunchError(f"no rank left a readable trace in {launch_dir}; expected rank0.sqlite and so on")
    missing = [rank for rank in range(ranks) if rank not in readable]
    try:
        _merge(list(readable.values()), missing, destination)
    except (sqlite3.Error, OSError) as error:
        raise LaunchError(
            f"cannot write the trace {destination}: {error}; the ranks' own traces stay in {launch_dir}: "
            "make room or choose another folder, and run again"
        ) from error
    return destination


def _merge(paths: list[Path], missing: list[int], destination: Path) -> None:
    destination.parent.mkdir(parents=True, exist_ok=True)
    unfinished = destination.with_name(f".{destination.name}.{os.getpid()}.unfinished")
    try:
        with contextlib.closing(sqlite3.connect(unfinished, isolation_level=None)) as merged:
            merged.execute("PRAGMA synchronous = OFF")
            first, *others = paths
            with contextlib.closing(sqlite3.connect(first)) as source:
                source.backup(merged)
            for path in others:
                _append(merged, path)
            notes = [(schema.META_MISSING_RANK, str(rank)) for rank in missing]
            merged.executemany("INSERT INTO META_DATA_EXPORT VALUES (?, ?)", notes)
        unfinished.replace(destination)
    finally:
        unfinished.unlink(missing_ok=True)


def _recover(path: Path) -> bool:
    """Roll back what a killed writer left unfinished; whether `path` is a trace then."""
    if not path.is_file():
        return False
    try:
        with contextlib.closing(sqlite3.connect(path)) as connection:
            tables = {name for (name,) in connection.execute("SELECT name FROM sqlite_master")}
    except sqlite3.DatabaseError:
        return False
    return set(schema.BASE_TABLES) <= tables


def _append(merged: sqlite3.Connection, path: Path) -> None:
    merged.execute("ATTACH ? AS source", (str(path),))
    merged.execute("BEGIN")
    _map_strings(merged)
    shift_ns = _clock(merged, "source") - _clock(merged, "main")
    tables = merged.execute("SELECT name FROM source.sqlite_master WHERE type = 'table'").fetchall()
    for table in (name for (name,) in tables if name in schema.TABLES and name not in _NOT_COPIED):
        for statement in schema.create_statements((table,)):
            merged.execute(statement)
        columns = [row[1] for row in merged.execute(f"PRAGMA source.table_info({table})")]
        values = ", ".join(_value(table, column, shift_ns) for column in columns)
        merged.execute(f"INSERT INTO main.{table} ({_quoted(columns)}) SELECT {values} FROM source.{table}")
    merged.execute(
        "INSERT INTO main.META_DATA_EXPORT SELECT * FROM source.META_DATA_EXPORT EXCEPT "
        "SELECT * FROM main.META_DATA_EXPORT"
    )
    merged.execute("COMMIT")
    merged.execute("DETACH source")


def _map_strings(merged: sqlite3.Connection) -> None:
    """Add the source's new strings and leave old id → new id in a temporary table."""
    for statement in (
        "DROP TABLE IF EXISTS temp.string_map",
        "INSERT INTO main.StringIds SELECT (SELECT COALESCE(MAX(id), 0) FROM main.StringIds)"
        " + ROW_NUMBER() OVER (ORDER BY id), value FROM source.StringIds"
        " WHERE value NOT IN (SELECT value FROM main.StringIds)",
        "CREATE TEMP TABLE string_map (old INTEGER PRIMARY KEY, new INTEGER)",
        "INSERT INTO string_map SELECT theirs.id, MIN(ours.id) FROM source.StringIds AS theirs"
        " JOIN main.StringIds AS ours USING (value) GROUP BY theirs.id",
    ):
        merged.execute(statement)


def _clock(merged: sqlite3.Connection, database: str) -> int:
    row = merged.execute(f"SELECT systemClockNs FROM {database}.TARGET_INFO_SESSION_START_TIME").fetchone()
    return int(row[0]) if row is not None and row[0] is not None else 0


def _value(table: str, column: str, shift_ns: int) -> str:
    if (table, column) in _STRING_COLUMNS:
        return f'(SELECT new FROM string_map WHERE old = "{column}")'
    if column in _TIME_COLUMNS and shift_ns:
        return f'"{column}" + {shift_ns}'
    return f'"{column}"'


def _quoted(columns: list[str]) -> str:
    return ", ".join(f'"{column}"' for column in columns)
