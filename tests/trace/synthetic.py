"""Small traces in memory for tests, and strategies that draw them."""

from __future__ import annotations

import numpy as np
from hypothesis import strategies as st

from harness.trace.model import NvtxRanges

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
