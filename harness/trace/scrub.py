"""Make a copy of an Nsight Systems export that can be shared: the performance data, without whom and where.

An export carries far more than timings: every environment variable, the host, the user, the command line, the names of
all processes on the machine and what the program printed. New versions add tables, so this works by *allowing*: a text
is kept only where a name of a kernel, an API call or a range is known to live, or where a setting is known to be
harmless. Everything else that is text becomes `scrubbed`. What is kept is then searched for the host, user and home
folder that the export itself gives away, and for file paths. Numbers (times, ids, bytes) are never touched.

The copy is rebuilt with VACUUM, so that no removed text stays in the file's free pages.
"""

from __future__ import annotations

import contextlib
import hashlib
import re
import sqlite3
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from harness.errors import TraceError, UsageError
from harness.trace.export.replacing import replacing
from harness.trace.files import readable_database
from harness.trace.scrub_rules import (
    FOREIGN_TABLES,
    IDENTITY_NAMES,
    IDENTITY_VARIABLES,
    INTERPRETER,
    KEPT_TEXT,
    KEPT_VALUES,
    META_TABLES,
    MODULE_ID_COLUMNS,
    NAME_ID_COLUMNS,
    NOBODY,
    PATH,
    SCRUBBED,
    WATCHED_THREADS,
)

_WRITE_ERRORS: Final = (
    sqlite3.SQLITE_FULL,
    sqlite3.SQLITE_IOERR_WRITE,
    sqlite3.SQLITE_IOERR_FSYNC,
    sqlite3.SQLITE_IOERR_TRUNCATE,
)


@dataclass(frozen=True, kw_only=True)
class ScrubSummary:
    """What was taken out. Counts are of table cells."""

    texts_removed: int
    names_redacted: int
    identities: int
    """How many different host, user and folder names the export gave away."""


def scrub(source: Path, target: Path, *, force: bool = False) -> ScrubSummary:
    """Write a copy of the export `source` to `target` without what identifies people and machines.

    `source` is opened read-only. `target` appears complete or not at all. Raises UsageError where `target` exists and
    `force` is not given, TraceError where `source` is no SQLite export.
    """
    if source.exists() and target.exists() and target.samefile(source):
        raise UsageError(f"{target} is the trace itself: scrub writes a copy and leaves its input alone")
    # The unscrubbed copy exists for a moment, in a folder that only its owner can enter.
    with replacing(target, force=force, folder=False) as clean:
        work = clean.with_name("copy.sqlite")
        _copy(source, work, target)
        try:
            with contextlib.closing(sqlite3.connect(work, isolation_level=None)) as connection:
                connection.text_factory = lambda raw: raw.decode(errors="replace")
                connection.execute("PRAGMA journal_mode = OFF")
                summary = _scrub_connection(connection)
                # Written anew: pages that held removed text are not in the new file.
                connection.execute("VACUUM INTO ?", (str(clean),))
        except sqlite3.Error as error:
            raise UsageError(f"{target} cannot be written: {error}") from error
    return summary


def _copy(source: Path, work: Path, target: Path) -> None:
    with readable_database(source) as uri:
        try:
            with contextlib.closing(sqlite3.connect(uri, uri=True)) as connection:
                tables = {row[0] for row in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
                if "StringIds" not in tables:
                    raise TraceError(
                        f"{source} is a SQLite file but no Nsight Systems export: it has no StringIds table"
                    )
                connection.execute("VACUUM INTO ?", (str(work),))
        except sqlite3.DatabaseError as error:
            # VACUUM INTO reads one file and writes another, and its error does not name either: the code tells.
            if error.sqlite_errorcode in _WRITE_ERRORS:
                raise UsageError(f"{target} cannot be written: {error}") from error
            raise TraceError(f"{source} cannot be read as a SQLite export: {error}") from error


def _scrub_connection(connection: sqlite3.Connection) -> ScrubSummary:
    identities = _identities(connection)
    redactor = _Redactor(identities)
    connection.create_function("redact", 1, redactor, deterministic=True)
    connection.execute("BEGIN")
    removed = _scrub_strings(connection)
    redacted = 0
    for table, columns in _text_columns(connection):
        for column in columns:
            if table in META_TABLES and column == "value":
                removed += _scrub_values(connection, table)
            elif table == "PROCESSES" and column == "name":
                removed += _scrub_process_names(connection)
            elif KEPT_TEXT.fullmatch(f"{table}.{column}"):
                redacted += _redact(connection, table, column)
            else:
                removed += _blank(connection, table, column)
    connection.execute("COMMIT")
    return ScrubSummary(texts_removed=removed, names_redacted=redacted, identities=len(identities))


class _Redactor:
    """SQL function: the text with identities replaced, or NULL where there is nothing to replace.

    Paths become `scrubbed-path-1`, `scrubbed-path-2`…, so that two ranges named after two files stay two ranges.
    """

    def __init__(self, identities: set[str]) -> None:
        words = sorted((re.escape(word.encode()) for word in identities), key=len, reverse=True)
        self._identity = (
            re.compile(rb"(?<![A-Za-z0-9_])(?:" + b"|".join(words) + rb")(?![A-Za-z0-9_])") if words else None
        )
        self._path = re.compile(PATH)
        self._aliases: dict[bytes, bytes] = {}

    def __call__(self, raw: object) -> bytes | None:
        if not isinstance(raw, bytes):
            return None
        text = self._path.sub(lambda match: self._alias(match.group()), raw)
        if self._identity is not None:
            text = self._identity.sub(SCRUBBED.encode(), text)
        return text if text != raw else None

    def _alias(self, path: bytes) -> bytes:
        return self._aliases.setdefault(path, b"%s-path-%d" % (SCRUBBED.encode(), len(self._aliases) + 1))


def _redact(connection: sqlite3.Connection, table: str, column: str) -> int:
    """Take identities out of a column that is kept. A binary payload that holds one is emptied: its layout is fixed."""
    replacement = "NULL" if column == "binaryData" else f'CAST(redact(CAST("{column}" AS BLOB)) AS TEXT)'
    return connection.execute(
        f'UPDATE "{table}" SET "{column}" = {replacement} '
        f"WHERE typeof(\"{column}\") IN ('text', 'blob') AND redact(CAST(\"{column}\" AS BLOB)) IS NOT NULL"
    ).rowcount


def _blank(connection: sqlite3.Connection, table: str, column: str) -> int:
    return connection.execute(
        f'UPDATE "{table}" SET "{column}" = ? WHERE typeof("{column}") IN (\'text\', \'blob\') AND "{column}" <> \'\'',
        (SCRUBBED,),
    ).rowcount


def _tables(connection: sqlite3.Connection) -> list[str]:
    query = "SELECT name FROM sqlite_master WHERE type = 'table' AND name NOT LIKE 'sqlite_%' ORDER BY name"
    return [row[0] for row in connection.execute(query)]


def _columns(connection: sqlite3.Connection, table: str) -> list[tuple[str, str]]:
    """Return (name, declared type in capitals) of each column."""
    return [(row[1], row[2].upper()) for row in connection.execute(f'PRAGMA table_info("{table}")')]


def _text_columns(connection: sqlite3.Connection) -> Iterator[tuple[str, list[str]]]:
    """Yield each table with its columns that can hold text; numeric ones are never read, and never written."""
    for table in _tables(connection):
        columns = [name for name, kind in _columns(connection, table) if not re.match("INT|BIGINT|REAL|FLOAT", kind)]
        if columns:
            yield table, columns


def _identities(connection: sqlite3.Connection) -> set[str]:
    """Collect the host, user and folder names that the export's own metadata tells."""
    found: set[str] = set()
    for table in set(META_TABLES) & set(_tables(connection)):
        for name, value in connection.execute(f'SELECT name, value FROM "{table}" WHERE value IS NOT NULL'):
            if IDENTITY_NAMES.fullmatch(str(name)):
                found.add(str(value).strip())
            elif match := IDENTITY_VARIABLES.fullmatch(str(value)):
                found.add(match.group(1).strip())
    # A home folder tells the user, a full host name its first label.
    for value in list(found):
        if match := re.match(r"/(?:home|Users)/([^/]+)", value):
            found.add(match.group(1))
        if re.fullmatch(r"[A-Za-z][\w-]*(\.[\w-]+)+", value):
            found.add(value.split(".")[0])
    return {value for value in found if len(value) > 2 and value.lower() not in NOBODY and not value.isdigit()}


def _scrub_strings(connection: sqlite3.Connection) -> int:
    """Blank every string that no performance column refers to; shorten modules to their file name."""
    connection.execute("CREATE TEMP TABLE kept (id INTEGER PRIMARY KEY)")
    connection.execute("CREATE TEMP TABLE modules (id INTEGER PRIMARY KEY)")
    for table in _tables(connection):
        if table.startswith(FOREIGN_TABLES) or table in ("StringIds", "PROCESSES"):
            continue
        only = WATCHED_THREADS.get(table, "")
        watched = _watched_processes(connection) if only else ""
        for column, kind in _columns(connection, table):
            if not kind.startswith("INT"):
                continue
            into = "kept" if column in NAME_ID_COLUMNS else "modules" if column in MODULE_ID_COLUMNS else None
            if into:
                where = only.format(watched=watched)
                connection.execute(
                    f'INSERT OR IGNORE INTO {into} SELECT DISTINCT "{column}" FROM "{table}" '
                    f'WHERE "{column}" IS NOT NULL {where}'
                )
    modules = connection.execute("SELECT id, value FROM StringIds WHERE id IN modules AND id NOT IN kept").fetchall()
    connection.executemany(
        "UPDATE StringIds SET value = ? WHERE id = ?",
        [(re.split(r"[/\\]", value)[-1], number) for number, value in modules],
    )
    return connection.execute(
        "UPDATE StringIds SET value = ? WHERE id NOT IN kept AND id NOT IN modules AND value <> ''", (SCRUBBED,)
    ).rowcount


def _watched_processes(connection: sqlite3.Connection) -> str:
    """Return SQL that selects the globalPid of every process with ranges or GPU activity."""
    parts = ["SELECT NULL"]
    for table in _tables(connection):
        if table == "NVTX_EVENTS" or table.startswith(("CUPTI_ACTIVITY_KIND", "MPI_")):
            names = {name for name, _ in _columns(connection, table)}
            if "globalTid" in names:
                parts.append(f'SELECT globalTid & -16777216 FROM "{table}"')
            elif "globalPid" in names:
                parts.append(f'SELECT globalPid FROM "{table}"')
    return " UNION ".join(parts)


def _scrub_values(connection: sqlite3.Connection, table: str) -> int:
    removed = 0
    names = [row[0] for row in connection.execute(f'SELECT DISTINCT name FROM "{table}" WHERE name IS NOT NULL')]
    for name in names:
        if name == "Hostname":
            removed += _scrub_host(connection, table)
        elif not KEPT_VALUES.fullmatch(name):
            query = f"UPDATE \"{table}\" SET value = ? WHERE name = ? AND value <> ''"
            removed += connection.execute(query, (SCRUBBED, name)).rowcount
    return removed


def _scrub_host(connection: sqlite3.Connection, table: str) -> int:
    """Replace the host by a stand-in of 16 bits: enough to tell the machines of one job apart, too few to name one."""
    removed = 0
    query = f"SELECT DISTINCT value FROM \"{table}\" WHERE name = 'Hostname' AND value <> ''"
    for (host,) in connection.execute(query).fetchall():
        alias = host if host.startswith(SCRUBBED) else f"{SCRUBBED}-{hashlib.sha256(host.encode()).hexdigest()[:4]}"
        update = f"UPDATE \"{table}\" SET value = ? WHERE name = 'Hostname' AND value = ?"
        removed += connection.execute(update, (alias, host)).rowcount
    return removed


def _scrub_process_names(connection: sqlite3.Connection) -> int:
    removed = 0
    for (name,) in connection.execute("SELECT DISTINCT name FROM PROCESSES WHERE name <> ''").fetchall():
        match = INTERPRETER.fullmatch(name)
        kept = match.group(1) if match else SCRUBBED
        if kept != name:
            removed += connection.execute("UPDATE PROCESSES SET name = ? WHERE name = ?", (kept, name)).rowcount
    return removed
