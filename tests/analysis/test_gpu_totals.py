"""Sums equal the output of NVIDIA's own `nsys stats`, to the ns, and what its rules say in plain SQL."""

from __future__ import annotations

import contextlib
import re
import sqlite3
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from nsys_exports import REAL_FOLDER, every_export, real
from scene import MS, Scene

from harness.analysis.gpu_totals import MEMSET_KIND, api_totals, copy_totals, gpu_totals, kernel_totals
from harness.trace import schema
from harness.trace.model import MEMSET
from harness.trace.naming import api_name
from harness.trace.reader import read_trace

STATS = sorted(REAL_FOLDER.glob("*.nsys-stats.txt"))


def nvidia_rows(text: str, report: str) -> list[tuple[str, int, int]]:
    """(name, calls, total ns) of one table that `nsys stats` printed; long names are cut with an ellipsis."""
    section = re.split(rf"\*\* .*\({report}\):", text)[1]
    rows = []
    for line in section.splitlines()[1:]:
        if match := re.match(r"\s+[\d.]+ +(\d+) +(\d+) +(?:[\d.]+ +){5}(\S.*?)\s*$", line):
            rows.append((match.group(3), int(match.group(2)), int(match.group(1))))
        elif rows:
            break
    return rows


@pytest.mark.skipif(not STATS, reason="../shared/nsys-exports is absent")
@pytest.mark.parametrize("stats", STATS, ids=lambda path: path.stem)
def test_kernels_and_api_calls_equal_nvidias_output(stats: Path) -> None:
    text = stats.read_text()
    trace = read_trace(stats.with_name(stats.name.replace(".nsys-stats.txt", ".sqlite")))
    kernels = nvidia_rows(text, "cuda_gpu_kern_sum")
    ours = kernel_totals(trace)
    assert len(kernels) == len(ours) > 1
    assert sorted((calls, total) for _, calls, total in kernels) == sorted((k.calls, k.total_ns) for k in ours)
    # NVIDIA writes `<unnamed>` for what is recorded as `(anonymous namespace)`, and cuts names to the column.
    whole = {(k.calls, k.total_ns): k.name.replace("(anonymous namespace)", "<unnamed>") for k in ours}
    for name, calls, total in kernels:
        assert whole[calls, total].startswith(name.rstrip("…"))
    api = nvidia_rows(text, "cuda_api_sum")
    assert api
    assert [(api_name(name), calls, total) for name, calls, total in api] == [
        (call.name, call.calls, call.total_ns) for call in api_totals(trace)
    ]


def sums(export: Path, table: str, columns: str, where: str = "1") -> list[tuple[Any, ...]]:
    """`SELECT columns, COUNT(*), SUM(duration)`, by the columns; nothing where there is no such table."""
    with contextlib.closing(sqlite3.connect(f"file:{export}?mode=ro&immutable=1", uri=True)) as connection:
        if not connection.execute("SELECT 1 FROM sqlite_master WHERE name = ?", (table,)).fetchall():
            return []
        sql = f"SELECT {columns}, COUNT(*), SUM(end - start) FROM {table} WHERE {where} GROUP BY {columns}"
        return connection.execute(sql).fetchall()


@every_export
def test_totals_are_what_plain_sql_says(export: Path) -> None:
    """As `cuda_gpu_kern_sum`, `cuda_api_sum` and `cuda_gpu_mem_time_sum` add up."""
    trace = read_trace(export)
    name = "(SELECT value FROM StringIds WHERE id = {})"
    kernels = sums(export, "CUPTI_ACTIVITY_KIND_KERNEL", name.format("demangledName"))
    assert {(one.name, one.calls, one.total_ns) for one in kernel_totals(trace)} == set(kernels)
    calls, times = Counter[str](), Counter[str]()
    for recorded, count, time in sums(export, "CUPTI_ACTIVITY_KIND_RUNTIME", name.format("nameId"), "eventClass != 67"):
        documented = re.sub(r"^(cu\w+?)((_v\d+)|_ptsz|_ptds)+$", r"\1", recorded)
        calls[documented] += count
        times[documented] += time
    assert {one.name: (one.calls, one.total_ns) for one in api_totals(trace)} == {
        api: (calls[api], times[api]) for api in calls
    }
    copies = sums(export, "CUPTI_ACTIVITY_KIND_MEMCPY", "copyKind")
    found = {one.kind: (one.count, one.total_ns) for one in copy_totals(trace) if one.kind != MEMSET_KIND}
    assert found == {schema.COPY_KINDS[kind]: (count, time) for kind, count, time in copies}
    graphs = sums(export, "CUPTI_ACTIVITY_KIND_GRAPH_TRACE", "1")
    assert gpu_totals(trace).graph_ns == sum(time for *_, time in graphs)


def test_graph_launches_are_gpu_time() -> None:
    totals = gpu_totals(read_trace(real("cuda_graphs_2024.6")))
    assert totals.kernel_ns == 78_270
    assert totals.graph_ns > 7_800_000_000
    assert totals.busy_ns > 7_800_000_000


def test_memory_that_is_set_comes_last_and_is_never_pageable() -> None:
    scene = Scene()
    scene._operation(MEMSET, 0, 30 * MS, "", 0, -1, 512)
    scene._operation(MEMSET, 40 * MS, 41 * MS, "", 0, -1, 8)
    scene.copy(50 * MS, 51 * MS, 64, host=schema.PAGEABLE)
    assert [(c.kind, c.count, c.bytes, c.total_ns, c.pageable_bytes) for c in copy_totals(scene.trace())] == [
        ("Host-to-Device", 1, 64, MS, 64),
        (MEMSET_KIND, 2, 520, 31 * MS, 0),
    ]


def test_copies_by_direction_and_busy_time_as_a_union() -> None:
    scene = Scene()
    scene.copy(0, 10 * MS, 1_000, host=schema.PAGEABLE)
    scene.copy(5 * MS, 20 * MS, 3_000, host=schema.PINNED)
    scene.copy(30 * MS, 32 * MS, 7, kind=2, host=schema.PAGEABLE)
    scene.kernel("gemm", 15 * MS, 25 * MS)
    scene.kernel("gemm", 15 * MS, 25 * MS, rank=1)
    trace = scene.trace()
    assert [(c.kind, c.count, c.bytes, c.total_ns, c.pageable_bytes) for c in copy_totals(trace)] == [
        ("Host-to-Device", 2, 4_000, 25 * MS, 1_000),
        ("Device-to-Host", 1, 7, 2 * MS, 7),
    ]
    totals = gpu_totals(trace)
    assert totals.busy_ns == 27 * MS + 10 * MS  # a union on each GPU
    assert totals.kernel_ns == 20 * MS
    assert totals.copy_ns == 27 * MS
