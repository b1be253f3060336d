"""The reader: each schema change, hostile content, and what is no export at all."""

from __future__ import annotations

import contextlib
import sqlite3
import stat
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from nsys_exports import every_export

from harness.errors import TraceError
from harness.trace import schema
from harness.trace.model import GRAPH, KERNEL, MEMCPY, MEMSET, NO_NAME, Trace
from harness.trace.reader import read_trace

DATA = Path(__file__).resolve().parents[1] / "data"
TID = schema.global_tid(1, 1)


def build(path: Path, *scripts: str) -> Path:
    with contextlib.closing(sqlite3.connect(path)) as connection:
        for script in scripts:
            connection.executescript(script)
    return path


@pytest.fixture
def export(tmp_path: Path) -> Callable[..., Path]:
    """Builds an export from a schema's file under tests/data, and more SQL."""

    def make(version: str, *more: str) -> Path:
        return build(tmp_path / f"{version}.sqlite", (DATA / f"nsys_{version}.sql").read_text(), *more)

    return make


def named(trace: Trace, ids: np.ndarray) -> list[str]:
    return ["" if i == NO_NAME else trace.strings[i] for i in ids.tolist()]


def test_2021(export: Callable[..., Path]) -> None:
    trace = read_trace(export("2021"))
    assert named(trace, trace.ranges.name_id) == ["written", "registered"]
    assert named(trace, trace.ranges.domain_id) == ["", "NCCL"]
    assert trace.ranges.start_ns.tolist() == [-50, -10]
    assert named(trace, trace.operations.name_id) == ["void gemm<float>(int)"]
    # The backtrace row of the same correlation id is not a call.
    assert list(zip(trace.api.start_ns, trace.api.end_ns, strict=True)) == [(0, 5)]
    assert (trace.info.nsys_version, trace.info.session_start_utc_ns) == (None, None)
    assert trace.ranks == (0,)
    assert trace.warnings == ()


def test_2022(export: Callable[..., Path]) -> None:
    trace = read_trace(export("2022"))
    ranges = trace.ranges
    assert named(trace, ranges.name_id) == ["plain", "uint64", "double", "int32", "moved", "open", "from a text file"]
    assert np.array_equal(ranges.payload[:5], [np.nan, 7, 2.5, -3, np.nan], equal_nan=True)
    assert ranges.closed.tolist() == [True] * 5 + [False, True]
    assert ranges.push_pop.tolist() == [True, True, True, True, False, False, True]
    # Up to the largest time in the table.
    assert int(ranges.end_ns[5]) == 61
    assert (ranges.end_global_tid != ranges.global_tid).tolist() == [False] * 4 + [True, False, False]
    assert (named(trace, trace.marks.name_id), trace.marks.payload.tolist()) == (["mark"], [1.5])
    assert (trace.info.collector, trace.info.nsys_version) == ("nsys", "2022.4.2.1")
    assert [process.name for process in trace.processes] == ["python"]
    assert "1 ranges were still open when the trace ended" in trace.warnings
    assert "no GPU activity in the trace" in trace.warnings


def test_2023(export: Callable[..., Path]) -> None:
    trace = read_trace(export("2023"))
    operations = trace.operations
    assert operations.kind.tolist() == [MEMCPY, MEMSET, MEMCPY]
    assert operations.bytes.tolist() == [4096, 64, 9_000_000_000]
    assert operations.copy_kind.tolist() == [1, -1, 2]
    assert operations.src_kind.tolist() == [schema.PAGEABLE, -1, 2]
    # A NULL before the first number: the driver must not take the column for something else.
    assert operations.correlation_id.tolist() == [-1, 13, 12]
    assert len(trace.ranges) == len(trace.api) == 0
    assert trace.warnings == ("no NVTX ranges in the trace: time cannot be put on ranges",)


def test_2026(export: Callable[..., Path]) -> None:
    trace = read_trace(export("2026"))
    assert named(trace, trace.ranges.name_id) == ["outer", "sooner", "later"]
    assert trace.api.start_ns.tolist() == [150, 350]
    assert trace.operations.kind.tolist() == [GRAPH, GRAPH]
    assert trace.operations.correlation_id.tolist() == [5, 5]
    assert [(process.pid, process.rank) for process in trace.processes] == [(4_000_000, 0), (4_000_001, 1)]
    assert trace.rank_of(trace.api.global_tid).tolist() == [0, 1]
    assert trace.syncs.sync_type.tolist() == [3]


def test_hostile_content(export: Callable[..., Path]) -> None:
    """Bytes that are no UTF-8, text where numbers belong, numbers at the edge, ends before starts, missing strings."""
    path = export(
        "2021",
        "INSERT INTO NVTX_EVENTS (start, end, eventType, text, globalTid) VALUES"
        f" (1, 2, 59, CAST(x'61ff62' AS TEXT), {TID}), (2, 3, 59, NULL, NULL), (3, 4, 59, '', {TID}),"
        f" (5, 4, 59, 'backwards', {TID});"
        "INSERT INTO NVTX_EVENTS (start, end, eventType, text, globalTid, textId) VALUES"
        f" (6, 7, 59, 'own', {TID}, 999);"
        f"INSERT INTO NVTX_EVENTS (start, end, eventType, text, globalTid, uint64Value) VALUES"
        f" (7, 8, 59, 'big', {TID}, 9223372036854775807), (8, 9, 59, 'text', {TID}, 'not a number');"
        f"INSERT INTO NVTX_EVENTS (start, end, eventType, text, globalTid) VALUES ('soon', 9, 59, 'x', {TID});"
        f"INSERT INTO CUPTI_ACTIVITY_KIND_RUNTIME VALUES (9, 8, 0, {TID}, 10, 1, 0, NULL);",
    )
    trace = read_trace(path)
    rows = dict(zip(named(trace, trace.ranges.name_id), range(len(trace.ranges)), strict=True))
    assert "a\N{REPLACEMENT CHARACTER}b" in rows
    assert "own" in rows
    assert "" in rows
    assert int(trace.ranges.end_ns[rows["backwards"]]) == 5
    assert trace.api.end_ns.tolist() == [5, 9]
    assert trace.ranges.payload[rows["big"]] == pytest.approx(2**63)
    assert int(trace.ranges.start_ns[rows["x"]]) == 0


def test_types_that_change_after_many_rows(export: Callable[..., Path]) -> None:
    """The driver takes a column's type from its first batch; NULLs fill it here."""
    path = export(
        "2022",
        "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 70000)"
        f" INSERT INTO NVTX_EVENTS (start, end, eventType, globalTid) SELECT i, i, 59, {TID} FROM n;"
        f"INSERT INTO NVTX_EVENTS (start, end, eventType, text, globalTid, doubleValue)"
        f" VALUES (80000, 80001, 59, 'last', {TID}, 0.5);",
    )
    trace = read_trace(path)
    assert named(trace, trace.ranges.name_id[-1:]) == ["last"]
    assert trace.ranges.payload[-1] == 0.5


def test_columns_and_tables_may_be_missing(tmp_path: Path) -> None:
    path = build(
        tmp_path / "bare.sqlite",
        "CREATE TABLE NVTX_EVENTS (start INTEGER, end INTEGER, eventType INTEGER);"
        "INSERT INTO NVTX_EVENTS VALUES (1, 2, 59);"
        "CREATE TABLE CUPTI_ACTIVITY_KIND_KERNEL (start INTEGER, end INTEGER);"
        "INSERT INTO CUPTI_ACTIVITY_KIND_KERNEL VALUES (1, 2);"
        "CREATE TABLE CUPTI_ACTIVITY_KIND_RUNTIME (nameId INTEGER);"
        "INSERT INTO CUPTI_ACTIVITY_KIND_RUNTIME VALUES (1);",
    )
    trace = read_trace(path)
    assert (len(trace.ranges), len(trace.operations), len(trace.api)) == (1, 1, 0)


def test_several_hosts_keep_their_processes_apart(tmp_path: Path) -> None:
    script = (DATA / "nsys_2026.sql").read_text()
    host = "CREATE TABLE TARGET_INFO_SYSTEM_ENV (name TEXT, value TEXT); INSERT INTO TARGET_INFO_SYSTEM_ENV VALUES"
    later = "UPDATE TARGET_INFO_SESSION_START_TIME SET utcEpochNs = utcEpochNs + 1000000, systemClockNs = 5"
    one = build(tmp_path / "a.sqlite", script, f"{host} ('Hostname', 'node-a')")
    two = build(tmp_path / "b.sqlite", script, f"{host} ('Hostname', 'node-b')", later)
    trace = read_trace(one, two)
    assert trace.ranks == (0, 1, 2, 3)
    assert [process.source for process in trace.processes] == [0, 0, 1, 1]
    assert trace.info.host_count == 2
    assert any("2 hosts" in warning for warning in trace.warnings)
    assert "node-a" not in repr(trace.info)
    starts = trace.operations.start_ns.tolist()
    assert starts == [170, 360, 1_000_170, 1_000_360]
    # The same files of one host are the same processes, seen twice.
    again = build(tmp_path / "c.sqlite", script, f"{host} ('Hostname', 'node-a')")
    assert read_trace(one, again).ranks == (0, 1)


def test_ranks_come_from_marks_first(export: Callable[..., Path]) -> None:
    trace = read_trace(
        export(
            "2026",
            "INSERT INTO NVTX_EVENTS (start, eventType, text, globalTid, int64Value) VALUES"
            " (50, 34, 'rank', 348583844710659, 3), (60, 34, 'rank', 348583861487875, 2)",
        )
    )
    assert [(process.pid, process.rank) for process in trace.processes] == [(4_000_001, 2), (4_000_000, 3)]


# ---- what is no export


def test_what_cannot_be_read(tmp_path: Path, export: Callable[..., Path]) -> None:
    other = build(tmp_path / "other.sqlite", "CREATE TABLE runs (id INTEGER)")
    text = tmp_path / "notes.sqlite"
    text.write_text(
        "these are notes, and long enough to hold a header of a hundred bytes, if they were a database " * 2
    )
    whole = export("2026").read_bytes()
    cut = tmp_path / "cut.sqlite"
    cut.write_bytes(whole[: len(whole) // 2])
    (tmp_path / "empty.sqlite").touch()
    (tmp_path / "report.nsys-rep").write_bytes(b"NSYS" * 100)
    damaged = bytearray(whole)
    damaged[4096:] = b"\xff" * (len(whole) - 4096)
    (tmp_path / "damaged.sqlite").write_bytes(damaged)
    for path, expected in {
        other: "no Nsight Systems export",
        text: "is not a SQLite file",
        cut: "is truncated: it holds",
        tmp_path / "empty.sqlite": "is empty",
        tmp_path: "is a folder",
        tmp_path / "report.nsys-rep": "nsys export --type sqlite",
        tmp_path / "damaged.sqlite": "cannot be read",
        tmp_path / "missing.sqlite": "does not exist",
    }.items():
        with pytest.raises(TraceError) as caught:
            read_trace(path)
        message = str(caught.value)
        assert expected in message
        assert str(path) in message
        assert "\n" not in message
    with pytest.raises(TraceError, match="no trace given"):
        read_trace()


def test_nothing_is_written_beside_the_file(export: Callable[..., Path]) -> None:
    """In each journal mode, from a read-only folder: what is on a read-only medium can be read."""
    path = export("2026", "PRAGMA journal_mode = WAL")
    path.chmod(stat.S_IRUSR)
    path.parent.chmod(stat.S_IRUSR | stat.S_IXUSR)
    try:
        before = sorted((file.name, file.stat().st_mtime_ns) for file in path.parent.iterdir())
        assert len(read_trace(path).ranges) == 3
        assert sorted((file.name, file.stat().st_mtime_ns) for file in path.parent.iterdir()) == before
    finally:
        path.parent.chmod(stat.S_IRWXU)


def test_a_write_ahead_log_is_read_too(export: Callable[..., Path]) -> None:
    path = export("2026")
    with contextlib.closing(sqlite3.connect(path)) as writer:
        writer.execute("PRAGMA journal_mode = WAL")
        writer.execute("INSERT INTO NVTX_EVENTS (start, end, eventType, globalTid) VALUES (1, 2, 59, 1)")
        writer.commit()
        assert Path(f"{path}-wal").stat().st_size > 0
        assert len(read_trace(path).ranges) == 4


def test_a_name_with_odd_characters(tmp_path: Path) -> None:
    path = tmp_path / "50% of a?b#c ü.sqlite"
    build(path, (DATA / "nsys_2026.sql").read_text())
    assert len(read_trace(path).ranges) == 3


def test_reading_needs_no_pandas_and_no_torch(export: Callable[..., Path]) -> None:
    code = (
        "import sys; from harness.trace.reader import read_trace; read_trace(sys.argv[1]);"
        "print([name for name in ('pandas', 'torch') if name in sys.modules])"
    )
    shown = subprocess.run(
        [sys.executable, "-c", code, str(export("2026"))], capture_output=True, text=True, check=True
    )
    assert shown.stdout.strip() == "[]"


# ---- an export of every schema year, and real ones


@every_export
def test_exports_hold_what_plain_sql_says(export: Path) -> None:
    trace = read_trace(export)
    with contextlib.closing(sqlite3.connect(f"file:{export}?mode=ro&immutable=1", uri=True)) as connection:
        tables = {name for (name,) in connection.execute("SELECT name FROM sqlite_master")}

        def count(table: str, where: str = "1") -> int:
            if table not in tables:
                return 0
            return int(connection.execute(f"SELECT COUNT(*) FROM {table} WHERE {where}").fetchone()[0])

        kinds = {
            KERNEL: "CUPTI_ACTIVITY_KIND_KERNEL",
            MEMCPY: "CUPTI_ACTIVITY_KIND_MEMCPY",
            MEMSET: "CUPTI_ACTIVITY_KIND_MEMSET",
            GRAPH: "CUPTI_ACTIVITY_KIND_GRAPH_TRACE",
        }
        assert {kind: int((trace.operations.kind == kind).sum()) for kind in kinds} == {
            kind: count(table) for kind, table in kinds.items()
        }
        assert len(trace.ranges) == count("NVTX_EVENTS", "eventType IN (59, 60, 70, 71)")
        assert len(trace.api) == count("CUPTI_ACTIVITY_KIND_RUNTIME", "eventClass != 67")
        assert len(trace.syncs) == count("CUPTI_ACTIVITY_KIND_SYNCHRONIZATION")
        if len(trace.ranges):
            connection.text_factory = lambda raw: raw.decode(errors="replace")
            rows = connection.execute(
                # NVIDIA's rule: an end that is missing is the largest time in the table.
                "SELECT start, COALESCE(end, (SELECT MAX(MAX(start), MAX(end)) FROM NVTX_EVENTS)),"
                " COALESCE(value, text) FROM NVTX_EVENTS LEFT JOIN StringIds ON id = textId"
                " WHERE eventType IN (59, 60, 70, 71)"
            ).fetchall()
            ours = zip(
                trace.ranges.start_ns.tolist(),
                trace.ranges.end_ns.tolist(),
                named(trace, trace.ranges.name_id),
                strict=True,
            )
            assert sorted(ours) == sorted(rows)
    for times in (trace.ranges.start_ns, trace.operations.start_ns, trace.api.start_ns, trace.syncs.start_ns):
        assert (np.diff(times) >= 0).all()
