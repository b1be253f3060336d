"""A load or offload that moved nothing: the walk over an engine's modules and state is paid for no byte.

Proof is a `moved_bytes` mark of 0 inside the range; a range without the mark proves nothing, however it is called.
"""

from __future__ import annotations

from harness.analysis.capture import Capture
from harness.analysis.findings.finding import Evidence, Finding, kept, rows_by_path
from harness.names import MOVED_BYTES
from harness.units import milliseconds


def check(capture: Capture) -> list[Finding]:
    """Find ranges whose marks say that no byte was moved."""
    count, moved = capture.mark_payloads(MOVED_BYTES)
    empty = kept(capture, capture.range_row, (count > 0) & (moved == 0))
    if not len(empty):
        return []
    ranges = capture.trace.ranges
    duration = ranges.end_ns[empty] - ranges.start_ns[empty]
    total = int(duration.sum())
    rows = rows_by_path(capture, empty, duration)
    per_step = capture.per_step(total)
    return [
        Finding(
            rule="empty_load",
            summary=f"{len(empty)} loads or offloads moved no byte and took {milliseconds(per_step)} ms {capture.unit}",
            advice="skip the call when its state already lies where it is wanted: check that offloading is enabled "
            "before walking modules, parameters or optimizer state",
            ns_per_step=per_step,
            evidence=Evidence(total_ns=total, steps=capture.kept_count, bytes=0, ranges=rows),
        )
    ]
