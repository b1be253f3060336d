"""Projection against a brute-force reading of its rules, and against figures from NVIDIA's tools on real exports."""

from __future__ import annotations

import contextlib
import sqlite3
from collections import defaultdict
from pathlib import Path

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from nsys_exports import every_export, real
from synthetic import any_intervals, make_ranges, make_trace, push_pop_intervals

from harness.trace import schema
from harness.trace.links import NONE, launching_calls, link
from harness.trace.model import GRAPH, KERNEL, MEMCPY, MEMSET, Trace
from harness.trace.nesting import nest, range_tree
from harness.trace.projection import COPY_CLASSES, RULES, ProjectionRule, coverage, own_gpu_ns, project
from harness.trace.reader import read_trace

A1, A2, B1 = schema.global_tid(10, 1), schema.global_tid(10, 2), schema.global_tid(20, 1)
THREADS = (A1, A2, B1)


@st.composite
def scenes(draw: st.DrawFn) -> Trace:
    """Two processes, one with two threads; correlation ids collide between the processes.

    Ranges are long beside calls, so that most calls lie in some range and many in several.
    """
    rows, threads, kinds = [], [], []
    for tid in THREADS:
        for interval in draw(push_pop_intervals(most=10)):
            rows.append((4 * interval[0], 4 * interval[1]))
            threads.append(tid)
            kinds.append(True)
        for interval in draw(any_intervals)[:3]:
            rows.append((2 * interval[0], 2 * interval[1]))
            threads.append(tid)
            kinds.append(False)
    calls, operations = [], []
    correlation = dict.fromkeys((A1 & schema.GLOBAL_PID_MASK, B1 & schema.GLOBAL_PID_MASK), 0)
    spread = draw(st.sampled_from([1, 10**9]))
    for tid, start, length, name, launched in draw(
        st.lists(
            st.tuples(
                st.sampled_from(THREADS),
                st.integers(-12, 40),
                st.integers(1, 4),
                st.sampled_from(["cudaLaunchKernel_v7000", "cudaStreamSynchronize_v3020"]),
                st.integers(0, 2),
            ),
            max_size=12,
        )
    ):
        pid = tid & schema.GLOBAL_PID_MASK
        correlation[pid] += spread
        calls.append((start, start + length, name, tid, correlation[pid]))
        for _ in range(launched):
            begin = start + draw(st.integers(0, 9))
            kind = draw(st.sampled_from([KERNEL, MEMCPY, MEMSET, GRAPH]))
            size, copy_kind = (draw(st.integers(1, 9)), draw(st.integers(0, 3))) if kind == MEMCPY else (0, -1)
            host = draw(st.sampled_from([0, 1, 4]))
            end = begin + draw(st.integers(0, 6))
            operations.append((kind, begin, end, pid, correlation[pid], size, copy_kind, host))
    if draw(st.booleans()):
        operations.append((KERNEL, 0, 5, A1 & schema.GLOBAL_PID_MASK, 77, 0, -1, 0))  # launched before the capture
    return make_trace(make_ranges(rows, threads=threads, push_pop=kinds), calls=calls, operations=operations)


def covered(intervals: list[tuple[int, int]]) -> int:
    return len({ns for start, end in intervals for ns in range(start, end)})


def brute_force(trace: Trace, rule: ProjectionRule) -> dict[str, list[int]]:
    """Every (range, operation) pair by the words of the rule."""
    ranges, api, ops = trace.ranges, trace.api, trace.operations
    calls = {
        (int(tid) & schema.GLOBAL_PID_MASK, int(corr)): row
        for row, (tid, corr) in reversed(list(enumerate(zip(api.global_tid, api.correlation_id, strict=True))))
    }
    call_of = [
        calls.get((int(pid), int(corr)), NONE) for pid, corr in zip(ops.global_pid, ops.correlation_id, strict=True)
    ]

    def contains(row: int, call: int) -> bool:
        same = ranges.global_tid[row] == api.global_tid[call]
        process = ranges.global_tid[row] & schema.GLOBAL_PID_MASK == api.global_tid[call] & schema.GLOBAL_PID_MASK
        inside = ranges.start_ns[row] <= api.start_ns[call] and api.end_ns[call] <= ranges.end_ns[row]
        return bool((same if rule == "thread" else process) and inside)

    result: dict[str, list[int]] = defaultdict(list)
    for row in range(len(ranges)):
        mine = [op for op, call in enumerate(call_of) if call != NONE and contains(row, call)]
        spans = [(int(ops.start_ns[op]), int(ops.end_ns[op])) for op in mine]
        syncs = [
            (tid, int(api.start_ns[call]), int(api.end_ns[call]))
            for call, tid in enumerate(api.global_tid)
            if "Synchronize" in trace.strings[api.name_id[call]] and contains(row, call)
        ]
        result["operations"].append(len(mine))
        result["gpu_ns"].append(covered(spans))
        result["first_ns"].append(min((start for start, _ in spans), default=0))
        result["last_ns"].append(max((end for _, end in spans), default=0))
        result["launch_delay_ns"].append(sum(int(ops.start_ns[op] - api.start_ns[call_of[op]]) for op in mine))
        copies = [op for op in mine if ops.kind[op] == MEMCPY]
        result["h2d_bytes"].append(sum(int(ops.bytes[op]) for op in copies if ops.copy_kind[op] in (1, 3)))
        result["d2h_bytes"].append(sum(int(ops.bytes[op]) for op in copies if ops.copy_kind[op] == 2))
        pinned = COPY_CLASSES.index("h2d pinned")
        chosen = [op for op in copies if ops.copy_kind[op] in (1, 3) and ops.src_kind[op] == 1]
        result[f"copy_bytes {pinned}"].append(sum(int(ops.bytes[op]) for op in chosen))
        # Calls of one thread are serial in a real trace; threads wait at the same time, and each wait counts.
        result["sync_ns"].append(
            sum(covered([(start, end) for owner, start, end in syncs if owner == tid]) for tid in THREADS)
        )
    return result


@given(scenes(), st.sampled_from(RULES))
@settings(max_examples=150)
def test_inclusive_figures_follow_the_rule(trace: Trace, rule: ProjectionRule) -> None:
    nesting = nest(trace.ranges)
    links = link(trace, nesting)
    projection = project(trace, nesting, links, rule)
    for figure, expected in brute_force(trace, rule).items():
        name, _, column = figure.partition(" ")
        values = getattr(projection, name)
        assert (values[:, int(column)] if column else values).tolist() == expected, figure


@given(scenes(), st.sampled_from(RULES))
@settings(max_examples=150)
def test_each_operation_has_one_owner_if_any(trace: Trace, rule: ProjectionRule) -> None:
    ranges, api, operations = trace.ranges, trace.api, trace.operations
    nesting = nest(ranges)
    links = link(trace, nesting)
    projection = project(trace, nesting, links, rule)
    found = 0
    for op, (call, owner) in enumerate(zip(links.call.tolist(), projection.owner.tolist(), strict=True)):
        candidates = [] if call == NONE else [
            row
            for row in range(len(ranges))
            if ranges.start_ns[row] <= api.start_ns[call]
            and api.end_ns[call] <= ranges.end_ns[row]
            and (
                ranges.global_tid[row] == api.global_tid[call]
                or (rule == "process" and (ranges.global_tid[row] ^ api.global_tid[call]) & schema.GLOBAL_PID_MASK == 0)
            )
        ]  # fmt: skip

        def preference(row: int, call: int = call) -> tuple[bool, bool, int]:
            own_thread = bool(ranges.global_tid[row] == api.global_tid[call])
            return own_thread, not nesting.detached[row], -int(ranges.end_ns[row] - ranges.start_ns[row])

        if not candidates:
            assert owner == NONE
        else:
            found += int(operations.end_ns[op] - operations.start_ns[op])
            assert preference(owner) == max(map(preference, candidates))
    total = int((operations.end_ns - operations.start_ns).sum())
    assert coverage(trace, links, rule) == (found / total if total else 0)
    for row in range(len(ranges)):
        mine = np.flatnonzero(projection.owner == row)
        spans = list(zip(operations.start_ns[mine].tolist(), operations.end_ns[mine].tolist(), strict=True))
        assert own_gpu_ns(trace, projection)[row] == covered(spans)


def kernel(start: int, end: int, tid: int, correlation: int) -> tuple[int, int, int, int, int, int, int, int]:
    return (KERNEL, start, end, tid & schema.GLOBAL_PID_MASK, correlation, 0, -1, 0)


def test_detached_ranges_hold_what_is_launched_inside_them_and_pass_nothing_on() -> None:
    """`early` and `cross` overlap `inner`; `elsewhere`, inside `late`, ends on another thread; `other` is a process."""
    outer, other, early, inner, cross, late, elsewhere = range(7)
    ranges = make_ranges(
        [(0, 100), (0, 100), (5, 20), (10, 40), (30, 70), (60, 80), (62, 78)],
        threads=[A1, B1, A1, A1, A1, A1, A1],
        push_pop=[True, True, False, True, False, True, False],
        end_threads=[A1, B1, A1, A1, A1, A1, A2],
    )
    launches = [  # start and end of the call, its thread, start and end of its kernel
        (12, 14, A1, 20, 30),
        (35, 36, A1, 25, 45),
        (50, 51, A2, 70, 76),
        (50, 51, B1, 50, 59),
        (65, 66, A1, 66, 70),
        (68, 72, A1, 80, 81),  # over the end of `cross`
        (70, 70, A1, 84, 87),  # at the end of `cross`
        (90, 91, A1, 95, 96),
    ]
    trace = make_trace(
        ranges,
        calls=[(start, end, "cudaLaunchKernel", tid, at) for at, (start, end, tid, _, _) in enumerate(launches)],
        operations=[kernel(start, end, tid, at) for at, (_, _, tid, start, end) in enumerate(launches)],
    )
    nesting = nest(ranges)
    assert np.flatnonzero(nesting.detached).tolist() == [early, cross, elsewhere]
    assert nesting.parent.tolist() == [-1, -1, outer, outer, outer, outer, late]
    links = link(trace, nesting)
    by_thread, by_process = (project(trace, nesting, links, rule) for rule in RULES)
    assert by_thread.operations.tolist() == [6, 1, 1, 2, 3, 3, 3]
    assert by_process.operations.tolist() == [7, 1, 1, 2, 4, 3, 3]
    assert by_thread.gpu_ns.tolist() == [34, 9, 10, 25, 27, 8, 8]
    assert by_process.gpu_ns.tolist() == [40, 9, 10, 25, 33, 8, 8]
    # Kernels in order of their starts. The one from the thread without ranges is the placed range's, if anybody's.
    assert by_thread.owner.tolist() == [inner, inner, other, late, NONE, late, late, outer]
    assert by_process.owner.tolist() == [inner, inner, other, late, outer, late, late, outer]


def test_figures_are_carried_up_every_level_of_the_tree() -> None:
    """Four levels, `a/b/c/d`, and a branch `a/e`. Work of `c` and `d` overlaps, of `b` and `e` it does not."""
    ranges = make_ranges([(0, 100), (10, 60), (20, 50), (25, 45), (70, 90)], threads=[A1] * 5)
    copy = (MEMCPY, 30, 50, A1 & schema.GLOBAL_PID_MASK, 0, 7, 1, schema.PINNED)
    launch, wait = "cudaLaunchKernel", "cudaStreamSynchronize"
    trace = make_trace(
        ranges,
        calls=[
            (30, 31, "cudaMemcpyAsync", A1, 0),  # in d
            (40, 44, wait, A1, 10),
            (46, 47, launch, A1, 1),  # in c
            (48, 49, wait, A1, 11),
            (52, 53, launch, A1, 2),  # in b
            (75, 76, launch, A1, 3),  # in e
        ],
        operations=[copy, kernel(47, 55, A1, 1), kernel(58, 59, A1, 2), kernel(80, 90, A1, 3)],
    )
    nesting = nest(ranges)
    found = project(trace, nesting, link(trace, nesting), "thread")
    assert nesting.parent.tolist() == [-1, 0, 1, 2, 0]
    assert found.operations.tolist() == [4, 3, 2, 1, 1]
    assert found.gpu_ns.tolist() == [36, 26, 25, 20, 10]
    assert found.first_ns.tolist() == [30, 30, 30, 30, 80]
    assert found.last_ns.tolist() == [90, 59, 55, 50, 90]
    assert found.launch_delay_ns.tolist() == [12, 7, 1, 0, 5]
    assert found.h2d_bytes.tolist() == [7, 7, 7, 7, 0]
    assert found.copy_ns[:, COPY_CLASSES.index("h2d pinned")].tolist() == [20, 20, 20, 20, 0]
    assert found.sync_ns.tolist() == [5, 5, 5, 4, 0]
    assert own_gpu_ns(trace, found).tolist() == [0, 1, 8, 20, 10]


def launches_by_sql(export: Path) -> np.ndarray:
    """(thread, start and end of the call; start and end of the operation) of every operation with a launch."""
    with contextlib.closing(sqlite3.connect(f"file:{export}?mode=ro&immutable=1", uri=True)) as connection:
        there = {name for (name,) in connection.execute("SELECT name FROM sqlite_master")}
        operations = " UNION ALL ".join(
            f"SELECT start, end, correlationId, globalPid FROM {table}"
            for kind in ("KERNEL", "MEMCPY", "MEMSET", "GRAPH_TRACE")
            if (table := f"CUPTI_ACTIVITY_KIND_{kind}") in there
        )
        if not operations:
            return np.empty((0, 5), dtype=np.int64)
        # Joined on process and correlation id, never on the id alone; backtrace rows (67) are no calls.
        rows = connection.execute(
            "WITH calls AS MATERIALIZED (SELECT globalTid, start, end, correlationId, globalTid & ~0xFFFFFF AS pid"
            " FROM CUPTI_ACTIVITY_KIND_RUNTIME WHERE eventClass != 67)"
            f" SELECT globalTid, calls.start, calls.end, op.start, op.end FROM ({operations}) AS op JOIN calls"
            " ON pid = op.globalPid AND calls.correlationId = op.correlationId"
        ).fetchall()
    return np.array(rows, dtype=np.int64).reshape(-1, 5)


@every_export
def test_exports_are_projected_as_nvidias_rule_says(export: Path) -> None:
    """The rule of `nsys stats -r nvtx_gpu_proj_trace`, each range against every launch; and its wider form."""
    trace = read_trace(export)
    launches = launches_by_sql(export)
    assert int((launching_calls(trace) != NONE).sum()) == len(launches)
    nesting = nest(trace.ranges)
    links = link(trace, nesting)
    tid, start, end, gpu_start, gpu_end = launches.T
    for rule in RULES:
        found = project(trace, nesting, links, rule)
        mask = -1 if rule == "thread" else schema.GLOBAL_PID_MASK
        for row in range(len(trace.ranges)):
            inside = (tid & mask == trace.ranges.global_tid[row] & mask) & (start >= trace.ranges.start_ns[row])
            inside &= end <= trace.ranges.end_ns[row]
            count = int(inside.sum())
            assert found.operations[row] == count
            assert found.first_ns[row] == (gpu_start[inside].min() if count else 0)
            assert found.last_ns[row] == (gpu_end[inside].max() if count else 0)


def test_the_backward_pass_is_found_by_process() -> None:
    trace = read_trace(real("pytorch_steps_2025.1"))
    tree = range_tree(trace)
    backward = [row for row, path in enumerate(tree.path_id) if tree.paths.name[path] == "Backward"]
    links = link(trace, tree.nesting)
    by_thread, by_process = (project(trace, tree.nesting, links, rule) for rule in RULES)
    assert by_thread.operations[backward].tolist() == [279, 57, 57, 57, 57]
    assert by_process.operations[backward].tolist() == [1726, 1504, 1504, 1504, 1504]
    assert sum(by_thread.operations[backward]) == 507
    assert sum(by_process.operations[backward]) == 7_742
    last = backward[-1]
    assert round((trace.ranges.end_ns - trace.ranges.start_ns)[last] / 1e6) == 79
    assert round(by_process.projected_ns[last] / 1e6) == round(by_thread.projected_ns[last] / 1e6) == 155
    assert coverage(trace, links, "process") == 1.0
    assert coverage(trace, links, "thread") < 0.7


def test_correlation_ids_are_joined_within_a_process() -> None:
    trace = read_trace(real("torchrun_2rank_base_2026.2"))
    kernels = trace.operations.kind == KERNEL
    assert int((launching_calls(trace)[kernels] != NONE).sum()) == 3_986


def test_graph_launches_are_operations() -> None:
    operations = read_trace(real("cuda_graphs_2024.6")).operations
    duration_ns = operations.end_ns - operations.start_ns
    assert int(duration_ns[operations.kind == KERNEL].sum()) == 78_270
    assert int(duration_ns[operations.kind == GRAPH].sum()) == 7_811_141_695


def test_waits_of_two_threads_count_each_even_beside_other_calls() -> None:
    """Found by hypothesis: calls that overlap others of their thread were united over threads."""
    one, other = THREADS[0], THREADS[1]
    calls = [
        (0, 1, name, tid, correlation)
        for correlation, (name, tid) in enumerate(
            (name, tid) for name in ("cudaLaunchKernel_v7000", "cudaStreamSynchronize_v3020") for tid in (one, other)
        )
    ]
    trace = make_trace(make_ranges([(0, 2)], threads=[one]), calls=calls, operations=[])
    nesting = nest(trace.ranges)
    assert one & schema.GLOBAL_PID_MASK == other & schema.GLOBAL_PID_MASK
    assert project(trace, nesting, link(trace, nesting), "process").sync_ns.tolist() == [2]
    assert project(trace, nesting, link(trace, nesting), "thread").sync_ns.tolist() == [1]
