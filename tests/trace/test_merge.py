"""Merging the ranks' files of one launch."""

from __future__ import annotations

import contextlib
import resource
import sqlite3
import sys
from pathlib import Path

import pytest
from child_process import PIPE, child

from harness.errors import LaunchError
from harness.trace import schema
from harness.trace.merge import merge_launch
from harness.trace.model import NO_NAME
from harness.trace.reader import read_trace
from harness.trace.writer import TraceWriter


def files_in(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def write_rank(folder: Path, rank: int, *, clock_ns: int = 0, kernel: str = "gemm") -> None:
    pid = 7_000 + rank
    tid = schema.global_tid(pid, pid)
    with TraceWriter(
        folder / f"rank{rank}.sqlite",
        collector="recorder",
        process_id=pid,
        process_name="python",
        session_start_utc_ns=10**18 + clock_ns,
        system_clock_ns=clock_ns,
        rank=rank,
    ) as writer:
        # The string ids of the ranks must differ, or a merge without mapping would pass.
        launch, gemm = writer.string_ids(["cudaLaunchKernel", kernel][:: 1 if rank == 0 else -1])[
            :: 1 if rank == 0 else -1
        ]
        domain = writer.domain_id("stepduel")
        writer.add_ranges([(100, 200, schema.NVTX_PUSH_POP, f"step of {rank}", tid, None, domain, None)])
        writer.add_api_calls([(110, 120, schema.CLASS_RUNTIME_API, tid, 1, launch)])
        writer.add_kernels([(130, 150, rank, 1, 7, 1, writer.global_pid, gemm, gemm, 0, 1, 1, 1, 1, 1, 1)])
        if rank:
            writer.add_memcpys([(160, 170, rank, 1, 7, 2, writer.global_pid, 64, 1, 0, 2)])


def test_ranks_become_one_trace_on_one_axis(tmp_path: Path) -> None:
    write_rank(tmp_path, 0)
    write_rank(tmp_path, 1, clock_ns=5_000, kernel="gemm of rank 1")
    trace = read_trace(merge_launch(tmp_path, 2, tmp_path / "out" / "trace.sqlite"))
    strings = [*trace.strings, ""]
    assert [
        (strings[name], start) for name, start in zip(trace.ranges.name_id, trace.ranges.start_ns, strict=True)
    ] == [
        ("step of 0", 100),
        ("step of 1", 5_100),
    ]
    assert {strings[i] for i in trace.ranges.domain_id} == {"stepduel"}
    operations = trace.operations
    assert [strings[i] for i in operations.name_id] == ["gemm", "gemm of rank 1", strings[NO_NAME]]
    assert operations.start_ns.tolist() == [130, 5_130, 5_160]
    assert trace.rank_of(operations.global_pid).tolist() == [0, 1, 1]
    assert {strings[i] for i in trace.api.name_id} == {"cudaLaunchKernel"}
    assert trace.ranks == (0, 1)
    assert trace.info.session_start_utc_ns == 10**18
    assert trace.warnings == ()
    assert files_in(tmp_path / "out") == ["trace.sqlite"]


def test_the_reader_lines_up_unmerged_files_the_same_way(tmp_path: Path) -> None:
    write_rank(tmp_path, 0)
    write_rank(tmp_path, 1, clock_ns=5_000)
    merged = read_trace(merge_launch(tmp_path, 2, tmp_path / "trace.sqlite"))
    apart = read_trace(tmp_path / "rank0.sqlite", tmp_path / "rank1.sqlite")
    assert merged.ranges.start_ns.tolist() == apart.ranges.start_ns.tolist()
    assert merged.operations.end_ns.tolist() == apart.operations.end_ns.tolist()
    assert merged.ranks == apart.ranks == (0, 1)


def test_missing_and_broken_ranks_are_reported(tmp_path: Path) -> None:
    write_rank(tmp_path, 1)
    (tmp_path / "rank2.sqlite").write_bytes(b"not a database, but long enough to be looked at" * 10)
    (tmp_path / "rank3.sqlite").write_bytes(b"")
    trace = read_trace(merge_launch(tmp_path, 4, tmp_path / "trace.sqlite"))
    assert trace.warnings == tuple(f"rank {rank} left no readable trace" for rank in (0, 2, 3))
    assert trace.ranks == (1,)


def test_without_any_rank_there_is_no_trace(tmp_path: Path) -> None:
    with pytest.raises(LaunchError, match="no rank left a readable trace"):
        merge_launch(tmp_path, 2, tmp_path / "trace.sqlite")
    assert files_in(tmp_path) == []


DIES_WITHIN_A_COMMIT = """
import os, sqlite3, sys
connection = sqlite3.connect(sys.argv[1], isolation_level=None)
connection.execute("PRAGMA cache_size = 1")
connection.execute("BEGIN")
connection.execute("UPDATE NVTX_EVENTS SET start = start + 1000000")
connection.executemany("INSERT INTO StringIds VALUES (?, ?)", ((i, "x" * 500) for i in range(1000, 3000)))
print(os.path.getsize(sys.argv[1] + "-journal"), flush=True)
sys.stdin.read()
"""


@pytest.mark.parametrize("merged", [True, False])
def test_a_half_written_transaction_is_rolled_back(tmp_path: Path, merged: bool) -> None:
    write_rank(tmp_path, 0)
    path = tmp_path / "rank0.sqlite"
    with child([sys.executable, "-c", DIES_WITHIN_A_COMMIT, str(path)], stdin=PIPE, stdout=PIPE) as writer:
        assert writer.stdout is not None
        assert int(writer.stdout.readline()) > 0
        writer.kill()
    before = files_in(tmp_path)
    assert "rank0.sqlite-journal" in before
    trace = read_trace(merge_launch(tmp_path, 1, tmp_path / "trace.sqlite") if merged else path)
    assert trace.ranges.start_ns.tolist() == [100]
    if not merged:
        assert files_in(tmp_path) == before


def test_an_older_trace_of_that_name_is_replaced_whole(tmp_path: Path) -> None:
    write_rank(tmp_path, 0)
    destination = tmp_path / "trace.sqlite"
    with contextlib.closing(sqlite3.connect(destination)) as old:
        old.execute("CREATE TABLE old (x)")
    merge_launch(tmp_path, 1, destination)
    with contextlib.closing(sqlite3.connect(destination)) as new:
        assert new.execute("SELECT COUNT(*) FROM sqlite_master WHERE name = 'old'").fetchone() == (0,)


def test_a_full_disk_is_one_line_and_keeps_the_ranks_files(tmp_path: Path) -> None:
    write_rank(tmp_path, 0)
    write_rank(tmp_path, 1)
    before = files_in(tmp_path)
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (8192, limits[1]))  # no file may grow beyond two pages
    try:
        with pytest.raises(LaunchError, match=r"cannot write the trace .*trace\.sqlite: .*: make room") as caught:
            merge_launch(tmp_path, 2, tmp_path / "trace.sqlite")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert "\n" not in str(caught.value)
    assert files_in(tmp_path) == before
    assert read_trace(merge_launch(tmp_path, 2, tmp_path / "trace.sqlite")).ranges.start_ns.size == 2


def test_a_destination_below_a_file_is_one_line(tmp_path: Path) -> None:
    write_rank(tmp_path, 0)
    (tmp_path / "traces").write_text("")
    with pytest.raises(LaunchError, match="cannot write the trace"):
        merge_launch(tmp_path, 1, tmp_path / "traces" / "trace.sqlite")
