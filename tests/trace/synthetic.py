"""Small traces in memory for tests, and strategies that draw them."""

from __future__ import annotations

import numpy as np
from hypothesis import strategies as st

from harness.trace import schema
from harness.trace.model import (
    NO_NAME,
    ApiCalls,
    GpuOperations,
    Int64Array,
    NvtxMarks,
    NvtxRanges,
    Process,
    Synchronizations,
    Trace,
    TraceInfo,
)

Interval = tuple[int, int]


def make_ranges(
    rows: list[tuple[int, int]],
    *,
    threads: list[int] | None = None,
    names: list[int] | None = None,
    push_pop: list[bool] | None = None,
    end_threads: list[int] | None = None,
) -> NvtxRanges:
    """Ranges from (start, end) pairs, in the order the model promises."""
    count = len(rows)
    start = np.array([row[0] for row in rows], dtype=np.int64)
    end = np.array([row[1] for row in rows], dtype=np.int64)
    tid = np.array(threads if threads is not None else [1] * count, dtype=np.int64)
    order = np.lexsort((-end, start))
    return NvtxRanges(
        start_ns=start[order],
        end_ns=end[order],
        closed=np.ones(count, dtype=np.bool_),
        name_id=np.array(names if names is not None else [0] * count, dtype=np.int32)[order],
        domain_id=np.full(count, -1, dtype=np.int32),
        push_pop=np.array(push_pop if push_pop is not None else [True] * count, dtype=np.bool_)[order],
        global_tid=tid[order],
        end_global_tid=(np.array(end_threads, dtype=np.int64) if end_threads is not None else tid)[order],
        payload=np.full(count, np.nan),
    )


@st.composite
def push_pop_intervals(draw: st.DrawFn, *, most: int = 24) -> list[Interval]:
    """Ranges as one thread's stack makes them: ties, empty ranges and equal ranges included."""
    time = draw(st.integers(-5, 5))
    stack: list[int] = []
    rows: list[Interval] = []
    for push, gap in draw(st.lists(st.tuples(st.booleans(), st.integers(0, 3)), max_size=most)):
        time += gap
        if push or not stack:
            stack.append(time)
        else:
            rows.append((stack.pop(), time))
    rows.extend((start, time) for start in reversed(stack))
    return rows


any_intervals = st.lists(
    st.tuples(st.integers(-10, 20), st.integers(0, 15)).map(lambda pair: (pair[0], pair[0] + pair[1])), max_size=14
)


def make_trace(
    ranges: NvtxRanges,
    *,
    calls: list[tuple[int, int, str, int, int]],
    operations: list[tuple[int, int, int, int, int, int, int, int]],
) -> Trace:
    """A trace of `ranges`, of calls (start, end, name, thread, correlation), and of operations (kind, start, end,
    process, correlation, bytes, copy kind, kind of the host memory)."""
    calls = sorted(calls)
    operations = sorted(operations, key=lambda row: row[1])
    names = sorted({call[2] for call in calls})

    def column(index: int) -> Int64Array:
        return np.array([row[index] for row in operations], dtype=np.int64)

    memory = [(row[7] if row[6] in (1, 3) else 2, row[7] if row[6] == 2 else 2) for row in operations]
    pids = {int(tid) & schema.GLOBAL_PID_MASK for tid in ranges.global_tid} | {row[3] for row in operations}
    nothing = np.empty(0, dtype=np.int64)
    return Trace(
        strings=names,
        ranges=ranges,
        marks=NvtxMarks(
            time_ns=nothing,
            name_id=nothing.astype(np.int32),
            global_tid=nothing,
            payload=np.empty(0),
        ),
        operations=GpuOperations(
            kind=column(0).astype(np.int8),
            start_ns=column(1),
            end_ns=column(2),
            name_id=np.full(len(operations), NO_NAME, dtype=np.int32),
            global_pid=column(3),
            correlation_id=column(4),
            device_id=np.zeros(len(operations), dtype=np.int32),
            stream_id=np.zeros(len(operations), dtype=np.int64),
            bytes=column(5),
            copy_kind=column(6).astype(np.int8),
            src_kind=np.array([source for source, _ in memory], dtype=np.int8),
            dst_kind=np.array([target for _, target in memory], dtype=np.int8),
        ),
        api=ApiCalls(
            start_ns=np.array([call[0] for call in calls], dtype=np.int64),
            end_ns=np.array([call[1] for call in calls], dtype=np.int64),
            name_id=np.array([names.index(call[2]) for call in calls], dtype=np.int32),
            global_tid=np.array([call[3] for call in calls], dtype=np.int64),
            correlation_id=np.array([call[4] for call in calls], dtype=np.int64),
        ),
        syncs=Synchronizations(
            start_ns=nothing,
            end_ns=nothing,
            sync_type=nothing.astype(np.int8),
            global_pid=nothing,
            correlation_id=nothing,
        ),
        processes=tuple(
            Process(global_pid=pid, pid=schema.pid_of(pid), name="", rank=rank, source=0)
            for rank, pid in enumerate(sorted(pids))
        ),
        info=TraceInfo(
            sources=("synthetic",),
            collector="nsys",
            nsys_version=None,
            schema_version=None,
            session_start_utc_ns=None,
            host_count=1,
        ),
        warnings=(),
    )
