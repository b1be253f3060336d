"""The writer: rows land as given, and a kill at any moment leaves a readable file."""

from __future__ import annotations

import sqlite3
import sys
from pathlib import Path

import pytest
from child_process import PIPE, child

from harness.trace import schema
from harness.trace.reader import read_trace
from harness.trace.writer import KERNEL_ROW, RANGE_ROW, TraceWriter


def open_writer(path: Path, **overrides: object) -> TraceWriter:
    settings: dict[str, object] = {
        "collector": "recorder",
        "process_id": 4_000_123,
        "process_name": "python",
        "session_start_utc_ns": 1_700_000_000_000_000_000,
        "system_clock_ns": 0,
    }
    return TraceWriter(path, **(settings | overrides))  # type: ignore[arg-type] # a dict of mixed values


def test_ids_pack_and_unpack_24_bit_threads() -> None:
    tid = schema.global_tid(4_000_123, 4_000_124)
    assert tid & schema.GLOBAL_PID_MASK == schema.global_pid(4_000_123)
    assert schema.pid_of(tid) == 4_000_123
    assert tid & 0xFFFFFF == 4_000_124
    assert tid >> 48 == 1


def test_payloads_go_to_the_column_of_their_type(tmp_path: Path) -> None:
    with open_writer(tmp_path / "t.sqlite") as writer:
        domain = writer.domain_id("stepduel")
        assert writer.domain_id("stepduel") == domain
        assert writer.domain_id("") == 0
        tid = schema.global_tid(4_000_123, 4_000_123)
        rows = [
            (10, 20, schema.NVTX_PUSH_POP, "step", tid, None, domain, 7),
            (11, None, schema.NVTX_MARK, "moved_bytes", tid, None, domain, 2.5),
            (12, None, schema.NVTX_PUSH_POP, "open", tid, None, 0, None),
        ]
        assert all(len(row) == len(RANGE_ROW) for row in rows)
        writer.add_ranges(rows)
    read = sqlite3.connect(tmp_path / "t.sqlite").execute(
        "SELECT start, end, eventType, text, domainId, int64Value, doubleValue FROM NVTX_EVENTS WHERE eventType != 75"
    )
    assert read.fetchall() == [
        (10, 20, 59, "step", domain, 7, None),
        (11, None, 34, "moved_bytes", domain, None, 2.5),
        (12, None, 59, "open", 0, None, None),
    ]


def test_gpu_tables_appear_with_their_first_row(tmp_path: Path) -> None:
    path = tmp_path / "t.sqlite"
    with open_writer(path) as writer:
        writer.add_kernels([])
        names = {row[0] for row in sqlite3.connect(path).execute("SELECT name FROM sqlite_master")}
        assert "CUPTI_ACTIVITY_KIND_KERNEL" not in names
        gemm, copy = writer.string_ids(["gemm", "copy"])
        assert writer.string_ids(["copy", "gemm", "new"]) == [copy, gemm, writer.string_id("new")]
        row = (1, 2, 0, 1, 7, 99, writer.global_pid, gemm, gemm, 32, 1, 1, 1, 128, 1, 1)
        assert len(row) == len(KERNEL_ROW)
        writer.add_kernels([row])
    found = sqlite3.connect(path).execute(
        "SELECT value, blockX, globalPid FROM CUPTI_ACTIVITY_KIND_KERNEL JOIN StringIds ON id = shortName"
    )
    assert found.fetchall() == [("gemm", 128, schema.global_pid(4_000_123))]


def test_an_existing_file_is_never_overwritten(tmp_path: Path) -> None:
    open_writer(tmp_path / "t.sqlite").close()
    with pytest.raises(FileExistsError, match="written once"):
        open_writer(tmp_path / "t.sqlite")


KILLED = """
import os, sys
from pathlib import Path
from harness.trace import schema
from harness.trace.writer import TraceWriter
writer = TraceWriter(Path(sys.argv[1]), collector="recorder", process_id=os.getpid(), process_name="python",
                     session_start_utc_ns=0, system_clock_ns=0)
for batch in range(10**9):
    rows = [(batch, batch + 1, schema.NVTX_PUSH_POP, f"r{i}", 1, None, 0, i) for i in range(100)]
    writer.add_ranges(rows)
    os.write(1, b"%d\\n" % batch)
"""


def test_a_killed_process_leaves_every_returned_batch(tmp_path: Path) -> None:
    path = tmp_path / "t.sqlite"
    with child([sys.executable, "-c", KILLED, str(path)], stdout=PIPE) as writer:
        assert writer.stdout is not None
        acknowledged = [int(writer.stdout.readline()) for _ in range(50)][-1]
        writer.kill()
        acknowledged = max([acknowledged, *(int(line) for line in writer.stdout.read().split())])
    connection = sqlite3.connect(path)
    assert connection.execute("PRAGMA integrity_check").fetchone() == ("ok",)
    counts = connection.execute("SELECT start, COUNT(*) FROM NVTX_EVENTS GROUP BY start ORDER BY start").fetchall()
    assert [start for start, _ in counts][: acknowledged + 1] == list(range(acknowledged + 1))
    assert {count for _, count in counts} == {100}


@pytest.mark.parametrize(("sees_gpu", "warned"), [(True, True), (False, False)])
def test_no_gpu_work_is_worth_a_warning_where_it_would_have_been_seen(
    tmp_path: Path, sees_gpu: bool, warned: bool
) -> None:
    path = tmp_path / "t.sqlite"
    open_writer(path, collector="strace", sees_gpu=sees_gpu).close()
    assert ("no GPU activity in the trace" in read_trace(path).warnings) is warned
    old = sqlite3.connect(path)
    old.execute("DELETE FROM META_DATA_EXPORT WHERE name = ?", (schema.META_SEES_GPU,))
    old.execute("UPDATE META_DATA_EXPORT SET value = 'recorder' WHERE name = ?", (schema.META_COLLECTOR,))
    old.commit()
    old.close()
    assert "no GPU activity in the trace" not in read_trace(path).warnings, "as files without the key had it"
