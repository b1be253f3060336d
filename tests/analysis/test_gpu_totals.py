"""Sums equal the output of NVIDIA's own `nsys stats`, to the ns."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from scene import MS, Scene

from harness.analysis.gpu_totals import api_totals, copy_totals, gpu_totals, kernel_totals
from harness.trace import schema
from harness.trace.naming import api_name
from harness.trace.reader import read_trace

SHARED = Path(__file__).resolve().parents[2] / ".." / "shared" / "nsys-exports"
STATS = sorted(SHARED.glob("*.nsys-stats.txt"))
needs_shared = pytest.mark.skipif(not STATS, reason="../shared/nsys-exports is absent")


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


@needs_shared
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


@needs_shared
def test_graph_launches_are_gpu_time() -> None:
    totals = gpu_totals(read_trace(SHARED / "cuda_graphs_2024.6.sqlite"))
    assert totals.kernel_ns == 78_270
    assert totals.graph_ns > 7_800_000_000
    assert totals.busy_ns > 7_800_000_000


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
