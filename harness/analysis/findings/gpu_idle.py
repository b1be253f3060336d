"""The GPU has nothing to do while the host is in a range.

Idle time inside kept steps, given to the tightest range in which the step's own thread was. In a capture without steps
it is the time from the first to the last GPU operation, and the thread that spends most time in ranges. Reported from
`MIN_IDLE_SHARE` of the step on: some idle time at a step's edges is everybody's.
"""

from __future__ import annotations

import numpy as np

from harness.analysis.capture import NONE, Capture
from harness.analysis.findings.finding import Evidence, Finding, kept, milliseconds, rows_by_path
from harness.trace import schema
from harness.trace.model import Int64Array

MIN_IDLE_SHARE = 0.1


def check(capture: Capture) -> list[Finding]:
    """Find where the host was while the GPU idled."""
    if not len(capture.trace.ranges):
        return []
    idle = idle_by_range(capture)
    total = int(idle.sum())
    per_step = capture.per_step(total)
    if total == 0 or per_step < MIN_IDLE_SHARE * capture.mean_step_ns:
        return []
    chosen = np.flatnonzero(idle > 0)
    rows = rows_by_path(capture, chosen, idle[chosen])
    share = per_step / capture.mean_step_ns
    return [
        Finding(
            rule="gpu_idle",
            summary=f"the GPU idled {milliseconds(per_step)} {capture.unit} ({share:.0%}) while the host was in "
            f"ranges, the largest part, {milliseconds(capture.per_step(rows[0].ns))}, in {rows[0].name}",
            advice="launch this range's work earlier, overlap it with GPU work (another stream, a prefetching loader), "
            "or take it out of the step",
            ns_per_step=per_step,
            evidence=Evidence(ns=total, steps=capture.kept_count, ranges=rows, figures={"idle_share": share}),
        )
    ]


def idle_by_range(capture: Capture) -> Int64Array:
    """Per range: GPU idle ns while it was the tightest range of its step's thread. Other threads' ranges have 0."""
    ranges = capture.trace.ranges
    idle = np.zeros(len(ranges), dtype=np.int64)
    own = capture.kept_row(capture.range_row)
    own[own] = ranges.global_tid[own] == capture.row_threads[capture.range_row[own]]
    pids = ranges.global_tid & schema.GLOBAL_PID_MASK
    for pid, gaps in capture.gpu_idle.items():
        mine = kept(capture, capture.range_row, own & (pids == pid))
        idle[mine] = gaps.covered_in(ranges.start_ns[mine], ranges.end_ns[mine])
    children = np.flatnonzero(own & (capture.parent != NONE))
    inclusive = idle[children]
    parents = capture.parent[children]
    inside = own[parents]
    np.subtract.at(idle, parents[inside], inclusive[inside])
    return np.maximum(idle, 0)
