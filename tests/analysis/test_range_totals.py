"""Copies and launch delays of each range, on a scene whose figures are worked out by hand."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from nsys_exports import every_stepped
from scene import MS, US, Scene

from harness.analysis.analyze import TraceAnalysis, analyze
from harness.analysis.document import analyze_document
from harness.analysis.range_totals import innermost_copies
from harness.trace import schema
from harness.trace.reader import read_trace

TO_DEVICE, TO_HOST = 1, 2


def offloading() -> TraceAnalysis:
    """In `load` 6 MB pageable and 20 MB pinned to the device; `save` holds 4 MB pageable to the host; `step` alone 1 MB
    to the device."""
    scene = Scene()
    scene.range("step", 0, 100 * MS)
    scene.range("load", 10 * MS, 40 * MS)
    scene.range("save", 50 * MS, 80 * MS)
    for launched, start, end, size, kind, host in (
        (1, 2, 3, 1_000_000, TO_DEVICE, schema.PINNED),
        (11, 12, 14, 4_000_000, TO_DEVICE, schema.PAGEABLE),
        (15, 17, 18, 2_000_000, TO_DEVICE, schema.PAGEABLE),
        (20, 20, 21, 20_000_000, TO_DEVICE, schema.PINNED),
        (51, 60, 64, 4_000_000, TO_HOST, schema.PAGEABLE),
    ):
        call = scene.call("cudaMemcpyAsync", launched * MS, launched * MS + 10 * US)
        scene.copy(start * MS, end * MS, size, kind=kind, host=host, call=call)
    return analyze(scene.trace())


def by_path(found: TraceAnalysis) -> dict[str, dict[str, Any]]:
    return {row["path"]: row for row in analyze_document(found)["ranges"]}


def test_copies_by_direction_and_memory() -> None:
    ranges = by_path(offloading())
    assert ranges["step/load"]["copies"] == [
        {"direction": "h2d", "memory": "pageable", "bytes": 6_000_000, "total_ns": 3 * MS, "gb_per_s": 2.0},
        {"direction": "h2d", "memory": "pinned", "bytes": 20_000_000, "total_ns": 1 * MS, "gb_per_s": 20.0},
    ]
    assert ranges["step/load"]["h2d_gb_per_s"] == pytest.approx(26 / 4)
    assert ranges["step/load"]["d2h_gb_per_s"] is None
    assert ranges["step/save"]["d2h_gb_per_s"] == 1
    assert ranges["step/save"]["h2d_gb_per_s"] is None
    assert ranges["step"]["h2d_gb_per_s"] == pytest.approx(27 / 5)
    assert [(copy["direction"], copy["memory"], copy["bytes"]) for copy in ranges["step"]["copies"]] == [
        ("h2d", "pageable", 6_000_000),
        ("h2d", "pinned", 21_000_000),
        ("d2h", "pageable", 4_000_000),
    ]


def test_launch_delay_is_summed_over_operations() -> None:
    ranges = by_path(offloading())
    assert ranges["step/load"]["launch_delay_ns"] == (1 + 2 + 0) * MS
    assert ranges["step/save"]["launch_delay_ns"] == 9 * MS
    assert ranges["step"]["launch_delay_ns"] == (1 + 3 + 9) * MS


def test_copies_are_told_of_the_range_that_made_them() -> None:
    told = [
        (total.path, copy.direction, copy.memory, copy.bytes) for total, copy in innermost_copies(offloading().ranges)
    ]
    assert told == [
        ("step", "h2d", "pinned", 21_000_000),  # one of which it made itself
        ("step/load", "h2d", "pinned", 20_000_000),
        ("step/load", "h2d", "pageable", 6_000_000),
        ("step/save", "d2h", "pageable", 4_000_000),
    ]


@every_stepped
def test_copies_of_an_export_are_those_of_the_whole_capture(export: Path) -> None:
    found = analyze(read_trace(export))
    outermost = [copy for total in found.ranges if total.depth == 0 for copy in total.copies]
    directions = {"Host-to-Device": "h2d", "Device-to-Device": "device"}
    wholes = [total for total in found.copies if total.kind in directions]
    assert wholes
    for whole in wholes:
        own = [copy for copy in outermost if copy.direction == directions[whole.kind]]
        assert sum(copy.bytes for copy in own) == whole.bytes
        assert sum(copy.total_ns for copy in own) == whole.total_ns
        assert sum(copy.bytes for copy in own if copy.memory == "pageable") == whole.pageable_bytes
