"""An explicit garbage collection that freed (nearly) nothing.

A full collection walks every tracked object, at some 50 to 100 ns each. One that frees fewer than `MIN_OBJECTS_PER_MS`
objects per ms therefore freed less than about one in a thousand of those it looked at. Proof is a `collected_objects`
mark in the range.
"""

from __future__ import annotations

import numpy as np

from harness.analysis.capture import Capture
from harness.analysis.findings.finding import Evidence, Finding, kept, rows_by_path
from harness.names import COLLECTED_OBJECTS, GC_AUTO
from harness.units import milliseconds

MIN_OBJECTS_PER_MS = 10


def check(capture: Capture) -> list[Finding]:
    """Find explicit collections that freed less than they cost."""
    ranges = capture.trace.ranges
    count, collected = capture.mark_payloads(COLLECTED_OBJECTS)
    duration = ranges.end_ns - ranges.start_ns
    vain = (count > 0) & ~capture.named(GC_AUTO) & (collected * 1_000_000 < MIN_OBJECTS_PER_MS * duration)
    vain |= (count > 0) & ~capture.named(GC_AUTO) & (collected == 0)
    chosen = kept(capture, capture.range_row, vain)
    if not len(chosen):
        return []
    total = int(duration[chosen].sum())
    freed = int(np.sum(collected[chosen]))
    per_step = capture.per_step(total)
    return [
        Finding(
            rule="empty_collection",
            summary=f"{len(chosen)} garbage collections freed {freed:,} objects in all and took "
            f"{milliseconds(per_step)} ms {capture.unit}",
            advice="collect only after something large was released, or not in every step; gc.freeze() after building "
            "the model takes its objects out of later collections",
            ns_per_step=per_step,
            evidence=Evidence(
                total_ns=total,
                steps=capture.kept_count,
                ranges=rows_by_path(capture, chosen, duration[chosen]),
                figures={"collected_objects": freed},
            ),
        )
    ]
