"""Writes a trace from inside the process that is measured: standard library only, cheap per row, safe to kill.

Rows are handed over in batches of plain tuples, in the order of the `…_ROW` layouts below, and go to SQLite through one
`executemany` with no Python work per row. One `TraceWriter` belongs to one process; calls may come from any thread but
not from two at once.

Killed at any moment, the file holds every batch whose `add_…` call had returned: each batch is one transaction with a
rollback journal, and pages reach the file only at its commit. A process killed within a commit leaves the journal
beside the file; `harness.trace.merge` rolls it back, and the reader reads a copy that is. No write-ahead log can get
lost. `synchronous` is off: a killed process loses nothing by it, only a machine that loses power does.
"""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Iterable, Sequence
from pathlib import Path
from types import TracebackType
from typing import Final

from harness.trace import schema

RANGE_ROW: Final = ("start_ns", "end_ns", "event_type", "text", "global_tid", "end_global_tid", "domain_id", "payload")
"""`end_ns` None while open; `event_type` schema.NVTX_PUSH_POP, NVTX_START_END or (with `end_ns` None) NVTX_MARK;
`end_global_tid` None unless another thread ended it; `domain_id` from `TraceWriter.domain_id`, 0 for the default
domain; `payload` an int, a float or None."""

API_ROW: Final = ("start_ns", "end_ns", "event_class", "global_tid", "correlation_id", "name_id")
KERNEL_ROW: Final = (
    "start_ns", "end_ns", "device_id", "context_id", "stream_id", "correlation_id", "global_pid",
    "demangled_name_id", "short_name_id", "registers", "grid_x", "grid_y", "grid_z", "block_x", "block_y", "block_z",
)  # fmt: skip
MEMCPY_ROW: Final = (
    "start_ns", "end_ns", "device_id", "context_id", "stream_id", "correlation_id", "global_pid",
    "bytes", "copy_kind", "src_kind", "dst_kind",
)  # fmt: skip
MEMSET_ROW: Final = (
    "start_ns", "end_ns", "device_id", "context_id", "stream_id", "correlation_id", "global_pid",
    "value", "bytes", "mem_kind",
)  # fmt: skip
SYNC_ROW: Final = (
    "start_ns", "end_ns", "device_id", "context_id", "stream_id", "correlation_id", "global_pid",
    "sync_type", "event_id",
)  # fmt: skip

_GPU_NAMES = "start, end, deviceId, contextId, streamId, correlationId, globalPid"
# The payload goes to the column of its type, as nsys does it; `typeof` spares a Python loop over the rows.
_INSERT_NVTX = """
    INSERT INTO NVTX_EVENTS (start, end, eventType, text, globalTid, endGlobalTid, domainId, int64Value, doubleValue)
    VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7,
            CASE typeof(?8) WHEN 'integer' THEN ?8 END, CASE typeof(?8) WHEN 'real' THEN ?8 END)
"""
_INSERT = {
    "CUPTI_ACTIVITY_KIND_RUNTIME": (
        "(start, end, eventClass, globalTid, correlationId, nameId, returnValue) VALUES (?, ?, ?, ?, ?, ?, 0)"
    ),
    "CUPTI_ACTIVITY_KIND_KERNEL": (
        f"({_GPU_NAMES}, demangledName, shortName, registersPerThread, gridX, gridY, gridZ, blockX, blockY, blockZ,"
        " staticSharedMemory, dynamicSharedMemory, localMemoryPerThread, localMemoryTotal, gridId,"
        " tensorSizeMinusOneElements) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, 0, 0, 0, 0, 0, '[]')"
    ),
    "CUPTI_ACTIVITY_KIND_MEMCPY": (
        f"({_GPU_NAMES}, bytes, copyKind, srcKind, dstKind) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"
    ),
    "CUPTI_ACTIVITY_KIND_MEMSET": f"({_GPU_NAMES}, value, bytes, memKind) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
    "CUPTI_ACTIVITY_KIND_SYNCHRONIZATION": (
        f"({_GPU_NAMES}, syncType, eventId) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)"
    ),
}  # fmt: skip


class TraceWriter:
    """An open trace file of one process.

    `path` must not exist. `collector` says what writes it, `sees_gpu` whether that records GPU work. Event times are ns
    on one clock of the caller's; the session says where its zero is: `session_start_utc_ns` in UTC, and
    `system_clock_ns` on CLOCK_MONOTONIC (0 when the caller's clock *is* `time.monotonic_ns`), which lines up the ranks
    of one host exactly.
    """

    def __init__(
        self,
        path: Path,
        *,
        collector: str,
        sees_gpu: bool = True,
        process_id: int,
        process_name: str,
        session_start_utc_ns: int,
        system_clock_ns: int,
        rank: int | None = None,
        versions: Sequence[tuple[str, str]] = (),
    ) -> None:
        if path.exists():
            raise FileExistsError(f"{path} exists; a trace is written once")
        self.path = path
        self.global_pid = schema.global_pid(process_id)
        self._string_ids: dict[str, int] = {}
        self._domain_ids: dict[str, int] = {}
        self._connection = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
        for pragma in ("journal_mode = DELETE", "synchronous = OFF", "cache_spill = OFF"):
            self._connection.execute(f"PRAGMA {pragma}")
        with _Transaction(self._connection) as run:
            for statement in schema.create_statements(schema.BASE_TABLES):
                run.execute(statement)
            for name, rows in schema.ENUMS.items():
                run.execute(f"CREATE TABLE {name} (id INTEGER NOT NULL PRIMARY KEY, name TEXT, label TEXT)")
                run.executemany(f"INSERT INTO {name} VALUES (?, ?, ?)", rows)
            utc = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(session_start_utc_ns // 10**9))
            session = (session_start_utc_ns, utc, utc, system_clock_ns)
            run.execute("INSERT INTO TARGET_INFO_SESSION_START_TIME VALUES (?, ?, ?, ?)", session)
            meta = [
                ("EXPORT_PRODUCT_NAME", "stepduel"),
                (schema.META_SCHEMA_VERSION, schema.SCHEMA_VERSION),
                (schema.META_COLLECTOR, collector),
                (schema.META_SEES_GPU, "yes" if sees_gpu else "no"),
                *versions,
            ]
            if rank is not None:
                meta.append((schema.META_RANK, f"{self.global_pid}:{rank}"))
            run.executemany("INSERT INTO META_DATA_EXPORT VALUES (?, ?)", meta)
            run.execute("INSERT INTO PROCESSES VALUES (?, ?, ?)", (self.global_pid, process_id, process_name))

    def domain_id(self, name: str, *, global_tid: int | None = None) -> int:
        """The id of NVTX domain `name` (0 for the default domain, the empty name), announced in the trace once."""
        if not name:
            return 0
        known = self._domain_ids.get(name)
        if known is not None:
            return known
        self._domain_ids[name] = new = len(self._domain_ids) + 1
        row = (0, None, schema.NVTX_DOMAIN_CREATE, name, global_tid or self.global_pid, None, new, None)
        self._insert(_INSERT_NVTX, [row])
        return new

    def string_id(self, text: str) -> int:
        """The id of `text` in StringIds, for the `…name_id` fields of GPU and API rows."""
        known = self._string_ids.get(text)
        if known is not None:
            return known
        self._string_ids[text] = new = len(self._string_ids) + 1
        self._insert("INSERT INTO StringIds VALUES (?, ?)", [(new, text)])
        return new

    def string_ids(self, texts: Iterable[str]) -> list[int]:
        """`string_id` of each of `texts`, new ones written in one transaction."""
        wanted = list(texts)
        new = [text for text in dict.fromkeys(wanted) if text not in self._string_ids]
        first = len(self._string_ids) + 1
        self._string_ids.update({text: first + offset for offset, text in enumerate(new)})
        self._insert("INSERT INTO StringIds VALUES (?, ?)", [(self._string_ids[text], text) for text in new])
        return [self._string_ids[text] for text in wanted]

    def add_ranges(self, rows: Iterable[tuple[object, ...]]) -> None:
        """Append NVTX ranges and marks, tuples laid out as `RANGE_ROW`, in one transaction."""
        self._insert(_INSERT_NVTX, rows)

    def add_thread_names(self, rows: Iterable[tuple[int, str]]) -> None:
        """Append `(global_tid, name)` pairs."""
        named = [(self.string_id(name), tid) for tid, name in rows]
        self._insert("INSERT INTO ThreadNames (nameId, globalTid) VALUES (?, ?)", named)

    def add_api_calls(self, rows: Iterable[tuple[object, ...]]) -> None:
        """Append CUDA runtime and driver calls, tuples laid out as `API_ROW`."""
        self._insert_lazily("CUPTI_ACTIVITY_KIND_RUNTIME", rows)

    def add_kernels(self, rows: Iterable[tuple[object, ...]]) -> None:
        """Append kernels, tuples laid out as `KERNEL_ROW`."""
        self._insert_lazily("CUPTI_ACTIVITY_KIND_KERNEL", rows)

    def add_memcpys(self, rows: Iterable[tuple[object, ...]]) -> None:
        """Append copies, tuples laid out as `MEMCPY_ROW`; kinds as in `schema.COPY_KINDS` and `MEMORY_KINDS`."""
        self._insert_lazily("CUPTI_ACTIVITY_KIND_MEMCPY", rows)

    def add_memsets(self, rows: Iterable[tuple[object, ...]]) -> None:
        """Append memsets, tuples laid out as `MEMSET_ROW`."""
        self._insert_lazily("CUPTI_ACTIVITY_KIND_MEMSET", rows)

    def add_syncs(self, rows: Iterable[tuple[object, ...]]) -> None:
        """Append synchronisation records, tuples laid out as `SYNC_ROW`; types as in `schema.SYNC_TYPES`."""
        self._insert_lazily("CUPTI_ACTIVITY_KIND_SYNCHRONIZATION", rows)

    def close(self) -> None:
        """Close the file. Everything added is in it already."""
        self._connection.close()

    def __enter__(self) -> TraceWriter:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        self.close()

    def _insert_lazily(self, table: str, rows: Iterable[tuple[object, ...]]) -> None:
        batch = list(rows)
        if not batch:
            return
        for statement in schema.create_statements((table,)):
            self._connection.execute(statement)
        self._insert(f"INSERT INTO {table} {_INSERT[table]}", batch)

    def _insert(self, statement: str, rows: Iterable[tuple[object, ...]]) -> None:
        with _Transaction(self._connection) as run:
            run.executemany(statement, rows)


class _Transaction:
    """BEGIN … COMMIT on a connection in autocommit mode; an exception rolls back."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection

    def __enter__(self) -> sqlite3.Connection:
        self._connection.execute("BEGIN IMMEDIATE")
        return self._connection

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        self._connection.execute("COMMIT" if kind is None else "ROLLBACK")
