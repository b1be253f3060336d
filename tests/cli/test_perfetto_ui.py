"""What `stepduel export --to perfetto` writes, as Perfetto's own trace processor understands it: all of it."""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Iterator
from pathlib import Path

import pytest
from nsys_exports import EVERY
from perfetto_ui import ABSENT, PRESENT, PerfettoUi
from trace_files import MS, training

from harness.cli.__main__ import run
from harness.trace.links import NONE, launching_calls
from harness.trace.model import Trace
from harness.trace.nesting import nest
from harness.trace.reader import read_trace

pytestmark = pytest.mark.skipif(not PRESENT, reason=ABSENT)

SHOWN = ("2021.3", "2026.2", "torchrun_2rank_base_2026.2", "pytorch_steps_2025.1", "start_end_ranges_2022.4")
THREADS = (
    "slice JOIN thread_track ON slice.track_id = thread_track.id JOIN thread USING (utid) JOIN process USING (upid)"
)


def opened(trace: Path, folder: Path) -> PerfettoUi:
    assert run(["export", str(trace), "--to", "perfetto", "-o", str(folder / "t.json")]) == 0
    return PerfettoUi(folder / "t.json", folder / "profile")


def complaints(ui: PerfettoUi) -> list[list[object]]:
    """What its importer found wrong or had to drop."""
    return ui.rows(
        "SELECT name, value FROM stats WHERE severity IN ('error', 'data_loss') AND value > 0", name="", value=0
    )


def slices(trace: Trace) -> Iterator[tuple[str, int]]:
    """Every slice that a viewer has to show: its name and duration. Marks are slices of no length."""
    yield from ((trace.strings[name_id], 0) for name_id in trace.marks.name_id.tolist())
    for names, columns in (
        (trace.ranges.name_id, trace.ranges),
        (trace.api.name_id, trace.api),
        (trace.operations.name_id, trace.operations),
    ):
        durations = columns.end_ns - columns.start_ns
        for name_id, duration_ns in zip(names.tolist(), durations.tolist(), strict=True):
            name = trace.strings[name_id] if name_id >= 0 else ""
            # This viewer shows JSON's escapes of what is no ASCII as they are.
            yield name if name.isascii() else json.dumps(name)[1:-1], duration_ns


def test_ranks_are_processes_and_launches_point_to_kernels(tmp_path: Path) -> None:
    with opened(training(tmp_path / "t.sqlite", ranks=2), tmp_path) as ui:
        assert complaints(ui) == []
        processes = ui.rows("SELECT pid, name FROM process WHERE pid > 0 ORDER BY pid", pid=0, name="")
        assert processes == [[100, "rank 0"], [101, "rank 1"]]
        tracks = ui.rows(
            f"SELECT process.name AS rank, thread.name AS thread, COUNT(*) AS n, MAX(depth) AS depth FROM {THREADS} "
            "GROUP BY utid ORDER BY 1, 2",
            rank="", thread="", n=0, depth=0,
        )  # fmt: skip
        assert tracks[:4] == [
            ["rank 0", "CUDA calls of thread 100", 5, 0],
            ["rank 0", "CUDA calls of thread 1100", 5, 0],
            ["rank 0", "GPU 0 stream 7", 10, 0],
            ["rank 0", "main thread", 15, 1],
        ]
        assert [track[2:] for track in tracks[4:]] == [track[2:] for track in tracks[:4]]
        forward = ui.rows("SELECT ts, dur FROM slice WHERE name = 'forward' ORDER BY ts LIMIT 1", ts=0, dur=0)
        assert forward == [[1_000 * MS, 40 * MS]]
        flows = ui.rows(
            "SELECT a.name AS call, b.name AS operation, COUNT(*) AS n FROM flow JOIN slice a ON a.id = slice_out "
            "JOIN slice b ON b.id = slice_in GROUP BY 1, 2",
            call="", operation="", n=0,
        )  # fmt: skip
        assert flows == [["cudaLaunchKernel_v7000", "gemm<float>(float *, int)", 20]]


@pytest.mark.slow
@pytest.mark.parametrize("source", [path for path in EVERY if path.stem in SHOWN], ids=lambda path: path.stem)
def test_every_slice_of_an_export_arrives_to_the_ns(source: Path, tmp_path: Path) -> None:
    trace = read_trace(source)
    expected: dict[str, Counter[int]] = defaultdict(Counter)
    for text, duration_ns in slices(trace):
        expected[text][duration_ns] += 1
    nesting = nest(trace.ranges)
    with opened(source, tmp_path) as ui:
        assert complaints(ui) == []
        found: dict[str, Counter[int]] = defaultdict(Counter)
        # Copies, memsets and graph launches have no name of their own in the trace.
        sql = "SELECT IIF(category IN ('memcpy', 'memset', 'graph'), '', name) AS name, dur, COUNT(*) AS n FROM slice"
        for text, duration_ns, count in ui.rows(f"{sql} GROUP BY 1, 2", name="", dur=0, n=0):
            found[text][duration_ns] += count
        assert found == expected
        depths = ui.rows(
            f"SELECT depth, COUNT(*) AS n FROM {THREADS} WHERE category NOT IN ('cuda_api', 'kernel', 'memcpy', "
            "'memset', 'graph', 'mark') GROUP BY 1",
            depth=0, n=0,
        )  # fmt: skip
        assert dict(depths) == Counter(nesting.depth[~nesting.detached].tolist())
        flows = ui.rows("SELECT COUNT(*) AS n FROM flow JOIN slice ON slice.id = slice_in", n=0)
        assert flows == [[int((launching_calls(trace) != NONE).sum())]]
        ranks = ui.rows("SELECT name FROM process WHERE name LIKE 'rank %' ORDER BY name", name="")
        assert ranks == [[f"rank {rank}"] for rank in trace.ranks]
