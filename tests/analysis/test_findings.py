"""Every rule on a scene that has the waste, and on one that nearly has it."""

from __future__ import annotations

import re

import pytest
from scene import MS, US, Scene

from harness.analysis import findings
from harness.analysis.findings import RULES
from harness.analysis.findings.finding import Finding
from harness.analysis.step_finder import WARM_UP
from harness.trace import schema


def only(scene: Scene, rule: str, **capture: object) -> Finding | None:
    """The one finding of a rule, or None."""
    found = RULES[rule](scene.capture(**capture))  # type: ignore[arg-type] # passed on as given
    assert len(found) <= 1
    assert all(finding.rule == rule for finding in found)
    return found[0] if found else None


def load_scene(moved: float | None) -> Scene:
    scene = Scene()
    for step in range(2):
        base = step * 100 * MS
        scene.range("step", base, base + 90 * MS)
        scene.range("load", base + MS, base + 11 * MS)
        if moved is not None:
            scene.mark("moved_bytes", base + 10 * MS, moved)
    return scene


def test_empty_load_needs_a_mark_that_says_zero() -> None:
    finding = only(load_scene(0), "empty_load")
    assert finding is not None
    assert finding.ns_per_step == 10 * MS
    assert finding.evidence.steps == 2
    (row,) = finding.evidence.ranges
    assert (row.name, row.calls, row.total_ns) == ("step/load", 2, 20 * MS)
    assert only(load_scene(1), "empty_load") is None
    assert only(load_scene(None), "empty_load") is None  # a name proves nothing


def test_dropped_steps_are_not_counted() -> None:
    finding = only(load_scene(0), "empty_load", dropped=(0,))
    assert finding is not None
    assert finding.evidence.steps == 1
    assert finding.evidence.total_ns == 10 * MS


def collection_scene(name: str, collected: float | None, *, where: int = 1) -> Scene:
    scene = Scene()
    scene.range("step", 0, 900 * MS)
    scene.range(name, where * MS, (where + 340) * MS)
    if collected is not None:
        scene.mark("collected_objects", (where + 339) * MS, collected)
    return scene


def test_empty_collection_weighs_what_was_freed_against_the_time() -> None:
    finding = only(collection_scene("gc.collect", 12), "empty_collection")
    assert finding is not None
    assert finding.ns_per_step == 340 * MS
    assert finding.evidence.figures["collected_objects"] == 12
    assert only(collection_scene("gc.collect", 3_399), "empty_collection") is not None
    assert only(collection_scene("gc.collect", 3_400), "empty_collection") is None  # 10 objects per ms: it did its work
    assert only(collection_scene("gc.collect", None), "empty_collection") is None


@pytest.mark.parametrize("duration_ns", [2_500 * MS, 999 * MS, 123_400 * US, 50 * US])
def test_a_time_in_a_sentence_is_the_time_in_its_unit(duration_ns: int) -> None:
    scene = Scene()
    scene.range("step", 0, 10_000 * MS)
    scene.range("gc.collect", MS, MS + duration_ns)
    scene.mark("collected_objects", MS + duration_ns - 1, 0)
    finding = only(scene, "empty_collection")
    assert finding is not None
    told = re.search(r"took ([\d.,]+) (ms|s) ", finding.summary)
    assert told is not None
    assert float(told[1].replace(",", "")) * {"ms": MS, "s": 1000 * MS}[told[2]] == pytest.approx(duration_ns, rel=0.01)


def test_automatic_collections_count_inside_steps_only() -> None:
    finding = only(collection_scene("gc.auto", 50_000), "automatic_collection")
    assert finding is not None
    assert finding.ns_per_step == 340 * MS
    assert [row.name for row in finding.evidence.ranges] == ["step"]
    assert finding.evidence.figures == {"collections": 1, "collected_objects": 50_000}
    assert only(collection_scene("gc.auto", 5, where=901), "automatic_collection") is None
    assert only(collection_scene("gc.collect", 5), "automatic_collection") is None
    assert only(collection_scene("gc.auto", 5), "automatic_collection", step=None) is None


def copy_scene(size: int, host: int, kind: int = 1) -> Scene:
    scene = Scene()
    scene.range("step", 0, 100 * MS)
    scene.range("offload", 10 * MS, 60 * MS)
    call = scene.call("cudaMemcpyAsync_v3020", 11 * MS, 50 * MS)
    scene.copy(12 * MS, 52 * MS, size, kind=kind, host=host, call=call)
    return scene


@pytest.mark.parametrize("kind", [1, 2])
def test_pageable_copies(kind: int) -> None:
    finding = only(copy_scene(400_000_000, schema.PAGEABLE, kind), "pageable_copies")
    assert finding is not None
    assert finding.ns_per_step == 40 * MS
    assert finding.evidence.bytes == 400_000_000
    assert finding.evidence.ranges[0].name == "step/offload"
    assert finding.evidence.figures["gb_per_s"] == pytest.approx(10.0)
    (call,) = finding.evidence.calls
    assert (call.name, call.calls) == (f"{schema.COPY_KINDS[kind]}, pageable", 1)
    assert (call.total_ns, call.bytes) == (40 * MS, 400_000_000)
    assert only(copy_scene(400_000_000, schema.PINNED, kind), "pageable_copies") is None
    assert only(copy_scene(64 * 1024, schema.PAGEABLE, kind), "pageable_copies") is None


def stall_scene(call: str, *, launch_after: bool = True, queued_until_ms: float = 22) -> Scene:
    """A kernel until 22 ms, a call from 20 to 23 ms, the next launch at 30 ms whose kernel starts at 31 ms."""
    scene = Scene()
    scene.range("step", 0, 100 * MS)
    scene.range("work", 0, 99 * MS)
    scene.kernel("gemm", 2 * MS, int(queued_until_ms * MS), launched=MS)
    scene.call(call, 20 * MS, 23 * MS)
    if launch_after:
        scene.kernel("gemm", 31 * MS, 90 * MS, launched=30 * MS)
    return scene


@pytest.mark.parametrize(
    ("rule", "call"),
    [
        ("synchronise_in_step", "cudaDeviceSynchronize_v3020"),
        ("synchronise_in_step", "cudaStreamSynchronize_ptsz"),
        ("allocation_in_step", "cudaMalloc_v3020"),
        ("allocation_in_step", "cudaFree"),
    ],
)
def test_a_stalling_call_costs_the_gpu_idle_time_after_it(rule: str, call: str) -> None:
    finding = only(stall_scene(call), rule)
    assert finding is not None
    assert finding.ns_per_step == 2 * MS  # idle from 22 ms to 1 ms after the call returned, though work came at 31 ms
    assert finding.evidence.figures["host_blocked_ns"] == 3 * MS
    assert finding.evidence.calls[0].name == call.split("_")[0]
    assert finding.evidence.ranges[0].name == "step/work"
    # The GPU had enough queued: the call cost nothing.
    assert only(stall_scene(call, queued_until_ms=35), rule) is None


def test_the_wait_that_closes_a_step_is_no_finding() -> None:
    assert only(stall_scene("cudaDeviceSynchronize", launch_after=False), "synchronise_in_step") is None


def test_a_stall_ends_with_the_next_operation() -> None:
    scene = stall_scene("cudaDeviceSynchronize")
    scene.kernel("add", 23 * MS + 400 * US, 24 * MS, launched=23 * MS + 100 * US)
    finding = only(scene, "synchronise_in_step")
    assert finding is not None
    assert finding.ns_per_step == 1 * MS + 400 * US
    # A wait in a capture without steps counts too, an allocation there does not: a program begins with many.
    assert only(scene, "synchronise_in_step", step=None) is not None
    assert only(stall_scene("cudaMalloc"), "allocation_in_step", step=None) is None


def item_scene(size: int, *, follow: str = "cudaStreamSynchronize_v3020", kind: int = 2) -> Scene:
    scene = stall_scene("cudaEventQuery")
    call = scene.call("cudaMemcpyAsync_v3020", 24 * MS, 24 * MS + 10 * US)
    scene.copy(24 * MS + 20 * US, 24 * MS + 22 * US, size, kind=kind, host=schema.PINNED, call=call)
    scene.call(follow, 24 * MS + 11 * US, 25 * MS)
    return scene


def test_item_copies_are_a_scalar_and_a_wait() -> None:
    finding = only(item_scene(4), "item_copies")
    assert finding is not None
    assert finding.evidence.figures["stalling_calls"] == 1
    assert only(item_scene(4), "synchronise_in_step") is None  # told once
    assert only(item_scene(4096), "item_copies") is None
    assert only(item_scene(4096), "synchronise_in_step") is not None
    assert only(item_scene(4, follow="cudaEventRecord"), "item_copies") is None
    assert only(item_scene(4, kind=1), "item_copies") is None


def idle_scene(busy_ms: int) -> Scene:
    scene = Scene()
    scene.range("step", 0, 100 * MS)
    scene.range("forward", 0, 30 * MS)
    scene.range("loader", 40 * MS, 100 * MS)
    scene.kernel("gemm", 0, busy_ms * MS, launched=0)
    return scene


def test_gpu_idle_names_the_range_the_host_was_in() -> None:
    finding = only(idle_scene(20), "gpu_idle")
    assert finding is not None
    assert finding.ns_per_step == 80 * MS
    by_path = {row.name: row.total_ns for row in finding.evidence.ranges}
    assert by_path == {"step/loader": 60 * MS, "step/forward": 10 * MS, "step": 10 * MS}
    assert only(idle_scene(91), "gpu_idle") is None
    without_gpu = Scene()
    without_gpu.range("step", 0, 100 * MS)
    assert only(without_gpu, "gpu_idle") is None


def tiny_scene(count: int, *, duration: int, gap: int, step: int = 20 * MS) -> Scene:
    scene = Scene()
    scene.range("step", 0, step)
    for index in range(count):
        start = MS + index * (duration + gap)
        scene.kernel("add", start, start + duration, launched=start - 5 * US)
    return scene


def test_tiny_kernels_cost_the_gaps_before_them() -> None:
    finding = only(tiny_scene(201, duration=2 * US, gap=6 * US), "tiny_kernels")
    assert finding is not None
    assert finding.ns_per_step == 200 * 6 * US
    assert finding.evidence.figures["kernels"] == 200
    assert only(tiny_scene(201, duration=2 * US, gap=6 * US, step=70 * MS), "tiny_kernels") is None  # 1.7 %
    assert only(tiny_scene(201, duration=2 * US, gap=0), "tiny_kernels") is None  # queued ahead: no waste
    assert only(tiny_scene(201, duration=6 * US, gap=6 * US), "tiny_kernels") is None
    assert only(tiny_scene(100, duration=2 * US, gap=6 * US), "tiny_kernels") is None
    assert only(tiny_scene(201, duration=2 * US, gap=60 * US), "tiny_kernels") is None


def test_exposed_communication_is_what_no_other_work_hides() -> None:
    scene = Scene()
    scene.range("step", 0, 100 * MS)
    scene.kernel("gemm", 0, 40 * MS, launched=0)
    scene.kernel("ncclDevKernel_AllGather_RING_LL(ncclDevComm*)", 10 * MS, 60 * MS, launched=9 * MS)
    finding = only(scene, "exposed_communication")
    assert finding is not None
    assert finding.ns_per_step == 20 * MS
    assert finding.evidence.figures == {"communication_ns": 50 * MS, "exposed_share": 0.2}
    hidden = Scene()
    hidden.range("step", 0, 100 * MS)
    hidden.kernel("gemm", 0, 60 * MS, launched=0)
    hidden.kernel("ncclDevKernel_AllGather_RING_LL(ncclDevComm*)", 10 * MS, 60 * MS, launched=9 * MS)
    assert only(hidden, "exposed_communication") is None


def ranks_scene(own_ms: list[list[int]]) -> Scene:
    """Ranks × steps of own time; every rank then waits in a collective until the slowest is there."""
    scene = Scene()
    for step, times in enumerate(zip(*own_ms, strict=True)):
        base = step * 200 * MS
        for rank, own in enumerate(times):
            scene.range("step", base, base + max(times) * MS + 2 * MS, rank=rank)
            scene.kernel("gemm", base, base + own * MS, launched=base, rank=rank)
            if own < max(times):
                scene.kernel("ncclKernel", base + own * MS, base + max(times) * MS, launched=base, rank=rank)
    return scene


def test_a_straggling_rank_is_found_behind_equal_step_times() -> None:
    scene = ranks_scene([[50, 50, 50, 50], [60, 60, 60, 60], [40, 40, 40, 40]])
    finding = only(scene, "rank_straggling")
    assert finding is not None
    assert finding.ns_per_step == 10 * MS
    assert finding.evidence.figures["rank"] == 1
    assert [row.name for row in finding.evidence.calls] == ["rank 1", "rank 0", "rank 2"]
    taking_turns = ranks_scene([[60, 50, 60, 50], [50, 60, 50, 60]])
    assert only(taking_turns, "rank_straggling") is None
    assert only(ranks_scene([[50, 50, 50, 50]]), "rank_straggling") is None
    assert only(ranks_scene([[50, 50], [60, 60]]), "rank_straggling") is None  # two steps are no habit


def steps_scene(durations_ms: list[int]) -> Scene:
    scene = Scene()
    at = 0
    for duration in durations_ms:
        scene.range("step", at, at + duration * MS)
        scene.range("compile" if duration > 100 else "forward", at, at + (duration - 1) * MS)
        at += (duration + 1) * MS
    return scene


def test_outlying_steps_first_and_later() -> None:
    finding = only(steps_scene([300, 50, 50, 50, 50]), "outlying_step", dropped=(0,))
    assert finding is not None
    assert finding.evidence.total_ns == 250 * MS
    assert finding.ns_per_step == 50 * MS
    assert finding.summary.startswith("the first step")
    assert finding.evidence.ranges[0].name == "step/compile"
    assert only(steps_scene([300, 50, 50, 50, 50]), "outlying_step", dropped=(0,), reason=WARM_UP) is None
    later = only(steps_scene([50, 50, 50, 300, 50]), "outlying_step")
    assert later is not None
    assert later.summary.startswith("a later step")
    several = only(steps_scene([50, 50, 200, 50, 50, 500, 50]), "outlying_step")
    assert several is not None
    assert "up to 10.0 times as long as the others (500.0 ms instead of 50.00 ms)" in several.summary
    assert [call.name for call in several.evidence.calls] == ["rank 0 step 5", "rank 0 step 2"]
    assert only(steps_scene([74, 50, 50, 50]), "outlying_step") is None
    assert only(steps_scene([50, 30, 70, 40, 90]), "outlying_step") is None  # scattered, none far from the rest
    assert only(steps_scene([300, 50, 50]), "outlying_step", dropped=(0,)) is None  # two are too few to judge by


def test_findings_are_ranked_and_trifles_left_out() -> None:
    scene = load_scene(0)
    scene.range("gc.auto", 20 * MS, 20 * MS + 50 * US)
    found = findings.find(scene.capture())
    assert [finding.rule for finding in found] == ["empty_load"]
    scene.range("gc.auto", 30 * MS, 70 * MS)
    assert [finding.rule for finding in findings.find(scene.capture())] == ["automatic_collection", "empty_load"]


def test_no_rule_says_anything_about_an_empty_trace() -> None:
    assert findings.find(Scene().capture()) == []
    assert findings.find(Scene().capture(step=None)) == []
