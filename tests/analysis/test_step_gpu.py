"""What the GPU did in each step, on a scene whose figures are worked out by hand."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from nsys_exports import every_stepped
from scene import MS, Scene

from harness.analysis.analyze import analyze
from harness.analysis.document import analyze_document
from harness.trace.reader import read_trace


def three_steps() -> Scene:
    scene = Scene()
    for base in (0, 200, 400):
        scene.range("step", base * MS, (base + 100) * MS)
    scene.range("forward", 0, 40 * MS)
    scene.range("load", 50 * MS, 90 * MS)
    scene.kernel("gemm", 5 * MS, 25 * MS, launched=1 * MS)
    scene.kernel("ncclDevKernel_AllGather_RING_LL", 20 * MS, 35 * MS, launched=2 * MS)
    scene.kernel("gemm", 93 * MS, 99 * MS, launched=92 * MS)
    scene.kernel("gemm", 210 * MS, 240 * MS, launched=201 * MS)
    scene.kernel("gemm", 250 * MS, 260 * MS)  # its launch is not in the trace
    return scene


def figures(step: dict[str, Any]) -> tuple[float | None, ...]:
    """In ms: busy, idle, exposed and overlapped communication."""
    keys = ("gpu_busy_ns", "gpu_idle_ns", "communication_exposed_ns", "communication_overlapped_ns")
    return tuple(None if step[key] is None else step[key] / MS for key in keys)


def test_busy_idle_communication_and_coverage_of_each_step() -> None:
    steps = analyze_document(analyze(three_steps().trace(), step_name="step"))["steps"]
    # Busy 5-35 and 93-99. The all-gather has the gemm beside it from 20 to 25. Idle: 40 ms in load, 10 in forward.
    assert figures(steps[0]) == (36, 64, 10, 5)
    assert (steps[0]["idle_in"], steps[0]["coverage"]) == ("step/load", 1)
    assert figures(steps[1]) == (40, 60, 0, 0)
    assert (steps[1]["idle_in"], steps[1]["coverage"]) == ("step", 0.75)
    assert figures(steps[2]) == (0, None, 0, 0)
    assert (steps[2]["idle_in"], steps[2]["coverage"]) == (None, None)


def test_idle_time_outside_ranges_is_given_to_none() -> None:
    scene = Scene()
    scene.range("load", 10 * MS, 20 * MS)
    scene.kernel("gemm", 12 * MS, 14 * MS, launched=11 * MS)
    scene.kernel("gemm", 50 * MS, 60 * MS, launched=49 * MS)
    (step,) = analyze_document(analyze(scene.trace()))["steps"]
    # Between the first and the last operation: 6 ms in load, 30 ms in nothing.
    assert figures(step) == (12, 36, 0, 0)
    assert step["idle_in"] is None
    scene.range("wait", 20 * MS, 51 * MS)
    (step,) = analyze_document(analyze(scene.trace()))["steps"]
    assert step["idle_in"] == "wait"


@every_stepped
def test_busy_and_idle_make_up_the_steps_of_an_export(export: Path) -> None:
    found = analyze_document(analyze(read_trace(export)))
    steps = found["steps"]
    assert len(steps) == 4
    for step in steps:
        assert step["gpu_busy_ns"] + step["gpu_idle_ns"] == step["duration_ns"]
        assert step["coverage"] == 1
        assert step["idle_in"].startswith(found["step"])
