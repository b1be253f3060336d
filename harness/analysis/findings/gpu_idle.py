"""The GPU has nothing to do while the host is in a range.

Idle time inside kept steps, given to the tightest range in which the step's own thread was. In a capture without steps
it is the time from the first to the last GPU operation, and the thread that spends most time in ranges. Reported from
`MIN_IDLE_SHARE` of the step on: some idle time at a step's edges is everybody's.
"""

from __future__ import annotations

import numpy as np

from harness.analysis.capture import Capture
from harness.analysis.findings.finding import Evidence, Finding, rows_by_path
from harness.units import milliseconds, percent

MIN_IDLE_SHARE = 0.1


def check(capture: Capture) -> list[Finding]:
    """Find where the host was while the GPU idled."""
    if not len(capture.trace.ranges):
        return []
    idle = capture.idle_by_range
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
            summary=f"the GPU idled {milliseconds(per_step)} ms {capture.unit} ({percent(share)}) while the host was "
            f"in ranges, the largest part, {milliseconds(capture.per_step(rows[0].total_ns))} ms, in {rows[0].name}",
            advice="launch this range's work earlier, overlap it with GPU work (another stream, a prefetching loader), "
            "or take it out of the step",
            ns_per_step=per_step,
            evidence=Evidence(total_ns=total, steps=capture.kept_count, ranges=rows, figures={"idle_share": share}),
        )
    ]
