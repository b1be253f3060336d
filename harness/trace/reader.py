"""Reads Nsight Systems SQLite exports, from 2021 on, into a `Trace`. The only place with SQL over their schema.

Files are opened read-only and nothing is ever written beside them. Tables and columns are probed, never assumed: nsys
creates tables with their first row and adds, renames and drops columns between versions. Event columns come as Arrow
through ADBC's native SQLite driver and are numpy from there on, with no Python work per row. That driver takes a
column's type from its first rows and fails on a later row of another type, so every expression is cast and holds no
NULL. `adbc_driver_sqlite.dbapi` would import pandas; the low-level bindings need pyarrow alone.

Row order is nsys' business (not even time-ordered since 2025.6); `harness.trace.assembly` sorts.
"""

from __future__ import annotations

import contextlib
import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import Final, NamedTuple

import adbc_driver_manager
import adbc_driver_sqlite
import numpy as np
import pyarrow as pa

from harness.errors import TraceError
from harness.trace import schema
from harness.trace.arrow import Rows, distinct, values
from harness.trace.assembly import assemble
from harness.trace.files import readable_database
from harness.trace.model import NO_NAME, FloatArray, Int64Array, Trace
from harness.trace.raw import OPEN_END, Columns, Export, Interner

_BATCH_ROWS: Final = 16_384
"""As many as keep a column of a batch within the processor's cache."""
_NO_PAYLOAD: Final = "-9e999"
_PAYLOADS: Final = ("uint64Value", "int64Value", "doubleValue", "uint32Value", "int32Value", "floatValue")
_STRINGS_PER_QUERY: Final = 5_000


class _Column(NamedTuple):
    """One integer column to read: the field it becomes, the names it goes by, and what stands for NULL or absence."""

    field: str
    names: tuple[str, ...]
    default: int = -1


_TIMES = (_Column("start_ns", ("start",)), _Column("end_ns", ("end", "start")))
_GPU = (
    *_TIMES,
    _Column("global_pid", ("globalPid",), 0),
    _Column("correlation_id", ("correlationId",)),
)
_PLACE = (_Column("device_id", ("deviceId",)), _Column("stream_id", ("streamId",)))
_KERNEL = (*_GPU, _Column("string_id", ("demangledName", "shortName", "mangledName")))
_MEMCPY = (
    *_GPU,
    _Column("bytes", ("bytes",), 0),
    _Column("copy_kind", ("copyKind",), 0),
    _Column("src_kind", ("srcKind",)),
    _Column("dst_kind", ("dstKind",)),
)
_MEMSET = (*_GPU, _Column("bytes", ("bytes",), 0), _Column("dst_kind", ("memKind",)))
_SYNC = (*_GPU, _Column("sync_type", ("syncType", "deprecatedSyncType"), 0))
_API = (
    *_TIMES,
    _Column("global_tid", ("globalTid",), 0),
    _Column("correlation_id", ("correlationId",)),
    _Column("string_id", ("nameId",)),
)
_NVTX = (
    _Column("start_ns", ("start",)),
    _Column("end_ns", ("end",), OPEN_END),
    _Column("event_type", ("eventType",)),
    _Column("domain", ("domainId",), 0),
    _Column("global_tid", ("globalTid",), 0),
    _Column("end_global_tid", ("endGlobalTid", "globalTid"), 0),
    _Column("string_id", ("textId",)),
)
_TELLTALE_TABLES: Final = {"NVTX_EVENTS", "META_DATA_EXPORT", "EXPORT_META_DATA", "TARGET_INFO_GPU"}
_NVTX_TYPES = (schema.NVTX_MARK, *schema.RANGE_TYPES, schema.NVTX_DOMAIN_CREATE)


def read_trace(*paths: str | Path, streams: bool = True) -> Trace:
    """Read one or several exports as one trace: one file a launch, a rank or a node.

    Without `streams` the devices and streams of GPU operations, which only drawing them needs, are not read: -1 then.
    Raises TraceError, one line, for what is no readable export. An export without NVTX ranges or without GPU work is
    read, with a warning in `Trace.warnings`.
    """
    if not paths:
        raise TraceError("no trace given: expected one or more SQLite exports of Nsight Systems")
    interner = Interner()
    exports = [_read_export(Path(path), interner, streams) for path in paths]
    return assemble(exports, interner)


def _read_export(path: Path, interner: Interner, streams: bool) -> Export:
    with readable_database(path) as uri:
        try:
            with contextlib.closing(sqlite3.connect(uri, uri=True)) as probe:
                probe.text_factory = _text
                with _Database(path, uri, probe) as database:
                    return database.export(interner, streams)
        except (sqlite3.Error, adbc_driver_manager.Error, OSError) as error:
            reason = str(error).splitlines()[0]
            raise TraceError(f"{path} cannot be read as a SQLite export: {reason}; export it again") from error


def _text(raw: bytes) -> str:
    return raw.decode(errors="replace")


class _Database:
    """One open export: the standard library's connection for small reads, ADBC's for event tables."""

    def __init__(self, path: Path, uri: str, probe: sqlite3.Connection) -> None:
        self._path = path
        self._probe = probe
        self._tables = {name for (name,) in probe.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
        if not any(name in _TELLTALE_TABLES or name.startswith("CUPTI_ACTIVITY") for name in self._tables):
            raise TraceError(
                f"{path} is a SQLite file but no Nsight Systems export: it has none of the tables of one; "
                "make one with `nsys export --type sqlite`"
            )
        self._stack = contextlib.ExitStack()
        handle = self._stack.enter_context(adbc_driver_sqlite.connect(uri))
        self._connection = self._stack.enter_context(adbc_driver_manager.AdbcConnection(handle))

    def __enter__(self) -> _Database:
        return self

    def __exit__(self, *exception: object) -> None:
        self._stack.close()

    def export(self, interner: Interner, streams: bool) -> Export:
        nvtx, payload = self._nvtx(interner)
        place = _PLACE if streams else ()
        meta = self._pairs("META_DATA_EXPORT") or self._pairs("EXPORT_META_DATA")
        session = self._session()
        return Export(
            source=str(self._path),
            nvtx=nvtx,
            payload=payload,
            nvtx_last_ns=self._nvtx_last_ns(nvtx),
            kernels=self._named("CUPTI_ACTIVITY_KIND_KERNEL", (*_KERNEL, *place), interner),
            memcpys=self._columns("CUPTI_ACTIVITY_KIND_MEMCPY", (*_MEMCPY, *place)),
            memsets=self._columns("CUPTI_ACTIVITY_KIND_MEMSET", (*_MEMSET, *place)),
            graphs=self._columns("CUPTI_ACTIVITY_KIND_GRAPH_TRACE", (*_GPU, *place)),
            api=self._api(interner),
            syncs=self._columns("CUPTI_ACTIVITY_KIND_SYNCHRONIZATION", _SYNC),
            process_names=self._process_names(),
            ranks=dict(_ranks(meta)),
            meta=dict(meta),
            missing_ranks=tuple(value for name, value in meta if name == schema.META_MISSING_RANK),
            host=self._host() or dict(meta).get("EXPORT_HOST", ""),
            session_start_utc_ns=session[0],
            system_clock_ns=session[1],
        )

    def _column_names(self, table: str) -> set[str]:
        if table not in self._tables:
            return set()
        return {row[1] for row in self._probe.execute(f'PRAGMA table_info("{table}")')}

    def _columns(self, table: str, columns: tuple[_Column, ...], where: str = "") -> Columns:
        """The asked-for columns of `table` as int64 arrays; empty ones where the table is missing or has no times."""
        present = self._column_names(table)
        if "start" not in present:
            return {column.field: np.empty(0, dtype=np.int64) for column in columns}
        expressions = [_integer(column, present) for column in columns]
        rows = Rows([np.int64] * len(columns), self._most_rows(table))
        for batch in self._batches(f'SELECT {", ".join(expressions)} FROM "{table}" {where}'):
            rows.add([values(column, np.int64) for column in batch.columns])
        return {column.field: rows.column(index, np.int64) for index, column in enumerate(columns)}

    def _named(self, table: str, columns: tuple[_Column, ...], interner: Interner, where: str = "") -> Columns:
        """Like `_columns`, with `string_id` turned into `name_id`."""
        read = self._columns(table, columns, where)
        read["name_id"] = self._names(read.pop("string_id"), interner)
        return read

    def _api(self, interner: Interner) -> Columns:
        table = "CUPTI_ACTIVITY_KIND_RUNTIME"
        has_class = "eventClass" in self._column_names(table)
        where = f"WHERE eventClass IS NOT {schema.CLASS_BACKTRACE}" if has_class else ""
        return self._named(table, _API, interner, where)

    def _nvtx(self, interner: Interner) -> tuple[Columns, FloatArray]:
        """Ranges, marks and domain names, and their payloads; `name_id` is the registered string, or else the text."""
        present = self._column_names("NVTX_EVENTS")
        where = f"WHERE eventType IN ({', '.join(map(str, _NVTX_TYPES))})"
        if not {"start", "eventType"} <= present:
            return self._named("", _NVTX, interner), np.empty(0)
        expressions = [_integer(column, present) for column in _NVTX]
        expressions.append(f"CAST({_first_of(_PAYLOADS, present, _NO_PAYLOAD)} AS REAL)")
        # As bytes: the text need not be valid UTF-8.
        expressions.append("COALESCE(CAST(text AS BLOB), x'')" if "text" in present else "x''")
        rows = Rows([np.int64] * (len(_NVTX) + 1) + [np.float64], self._most_rows("NVTX_EVENTS"))
        for batch in self._batches(f"SELECT {', '.join(expressions)} FROM NVTX_EVENTS {where}"):
            *numbers, payload, text = batch.columns
            written = _intern_texts(text, interner)
            rows.add([*(values(column, np.int64) for column in numbers), written, values(payload, np.float64)])
        read = {column.field: rows.column(index, np.int64) for index, column in enumerate(_NVTX)}
        registered, written = self._names(read.pop("string_id"), interner), rows.column(len(_NVTX), np.int64)
        read["name_id"] = np.where(registered == NO_NAME, written, registered)
        payload = rows.column(len(_NVTX) + 1, np.float64)
        return read, np.where(np.isneginf(payload), np.nan, payload)

    def _nvtx_last_ns(self, nvtx: Columns) -> int:
        """What stands for the end of ranges that have none; asked for only where there are some."""
        open_ranges = (nvtx["end_ns"] == OPEN_END) & np.isin(nvtx["event_type"], schema.RANGE_TYPES)
        if not bool(open_ranges.any()):
            return OPEN_END
        start, end = (_integer(column, self._column_names("NVTX_EVENTS")) for column in _TIMES)
        (last,) = self._probe.execute(f"SELECT MAX(MAX({start}, {end})) FROM NVTX_EVENTS").fetchone()
        return int(last)

    def _names(self, string_ids: Int64Array, interner: Interner) -> Int64Array:
        """Interned names of ids of StringIds; NO_NAME for ids that are not in it. Reads only those that are used."""
        if not len(string_ids) or not {"id", "value"} <= self._column_names("StringIds"):
            return np.full(len(string_ids), NO_NAME, dtype=np.int64)
        ids, slots = distinct(string_ids)
        texts: dict[int, str] = {}
        for first in range(0, len(ids), _STRINGS_PER_QUERY):
            some = ", ".join(map(str, ids[first : first + _STRINGS_PER_QUERY].tolist()))
            texts.update(self._probe.execute(f"SELECT id, CAST(value AS TEXT) FROM StringIds WHERE id IN ({some})"))
        names = [NO_NAME if (text := texts.get(one)) is None else interner.add(text) for one in ids.tolist()]
        return np.array(names, dtype=np.int64)[slots]

    def _most_rows(self, table: str) -> int:
        """At least the number of rows, at no cost: the span of their ids. 0 where there are none, or no ids."""
        with contextlib.suppress(sqlite3.OperationalError):  # a table made WITHOUT ROWID
            low, high = self._probe.execute(
                f'SELECT (SELECT MIN(rowid) FROM "{table}"), MAX(rowid) FROM "{table}"'
            ).fetchone()
            return 0 if high is None else int(high) - int(low) + 1
        return 0

    def _batches(self, statement: str) -> Iterator[pa.RecordBatch]:
        with adbc_driver_manager.AdbcStatement(self._connection) as query:
            query.set_options(**{"adbc.sqlite.query.batch_rows": str(_BATCH_ROWS)})
            query.set_sql_query(statement)
            stream, _ = query.execute_query()
            yield from pa.RecordBatchReader.from_stream(stream)

    def _pairs(self, table: str) -> list[tuple[str, str]]:
        if not {"name", "value"} <= self._column_names(table):
            return []
        return [(str(name), str(value)) for name, value in self._probe.execute(f'SELECT name, value FROM "{table}"')]

    def _session(self) -> tuple[int | None, int | None]:
        """UTC and system clock at time 0, ns; None where the export does not say."""
        present = self._column_names("TARGET_INFO_SESSION_START_TIME")
        if "utcEpochNs" not in present:
            return None, None
        clock = "systemClockNs" if "systemClockNs" in present else "NULL"
        row = self._probe.execute(f"SELECT utcEpochNs, {clock} FROM TARGET_INFO_SESSION_START_TIME").fetchone()
        return row if row is not None else (None, None)

    def _process_names(self) -> dict[int, str]:
        if not {"globalPid", "name"} <= self._column_names("PROCESSES"):
            return {}
        rows = self._probe.execute("SELECT globalPid, name FROM PROCESSES WHERE globalPid IS NOT NULL")
        return {int(pid): str(name or "") for pid, name in rows}

    def _host(self) -> str:
        """Name of the traced machine, only to tell machines apart."""
        if not {"name", "value"} <= self._column_names("TARGET_INFO_SYSTEM_ENV"):
            return ""
        row = self._probe.execute("SELECT value FROM TARGET_INFO_SYSTEM_ENV WHERE name = 'Hostname'").fetchone()
        return str(row[0]) if row is not None else ""


def _integer(column: _Column, present: set[str]) -> str:
    return f"CAST({_first_of(column.names, present, str(column.default))} AS INTEGER)"


def _first_of(columns: tuple[str, ...], present: set[str], default: str) -> str:
    """SQL for the first value of `columns` that is no NULL, or `default`."""
    candidates = [f'"{name}"' for name in columns if name in present]
    return f"COALESCE({', '.join([*candidates, default])})" if candidates else default


def _intern_texts(column: pa.Array, interner: Interner) -> Int64Array:
    """Interned names of a column of UTF-8 bytes, decoded once each; NO_NAME for the empty text."""
    encoded = column.dictionary_encode()
    texts = [raw.decode(errors="replace") for raw in encoded.dictionary.to_pylist()]
    ids = np.array([interner.add(text) if text else NO_NAME for text in texts], dtype=np.int64)
    return ids[values(encoded.indices, np.int32)]


def _ranks(meta: list[tuple[str, str]]) -> Iterator[tuple[int, int]]:
    """(global pid, rank) of the processes whose own writer wrote their rank down."""
    for name, value in meta:
        pid, _, rank = value.partition(":")
        if name == schema.META_RANK and pid.lstrip("-").isdigit() and rank.isdigit():
            yield int(pid), int(rank)
