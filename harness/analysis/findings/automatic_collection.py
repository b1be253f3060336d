"""Collections that the interpreter started by itself inside a step: pauses at points nobody chose."""

from __future__ import annotations

from harness.analysis.capture import Capture
from harness.analysis.findings.finding import Evidence, Finding, kept, rows_by_path
from harness.names import COLLECTED_OBJECTS, GC_AUTO
from harness.units import milliseconds


def check(capture: Capture) -> list[Finding]:
    """Find automatic collections inside kept steps."""
    if not capture.has_steps:
        return []
    ranges = capture.trace.ranges
    chosen = kept(capture, capture.range_row, capture.named(GC_AUTO))
    if not len(chosen):
        return []
    duration = ranges.end_ns[chosen] - ranges.start_ns[chosen]
    total = int(duration.sum())
    _, collected = capture.mark_payloads(COLLECTED_OBJECTS)
    per_step = capture.per_step(total)
    # By what was interrupted: the collection itself has the same name everywhere.
    around = capture.parent[chosen]
    return [
        Finding(
            rule="automatic_collection",
            summary=f"the interpreter collected garbage by itself {len(chosen)} times inside steps, "
            f"{milliseconds(per_step)} ms {capture.unit}",
            advice="gc.freeze() after building the model and gc.disable() in the loop, with gc.collect() every few "
            "hundred steps at a point of your choice (at the same step on every rank)",
            ns_per_step=per_step,
            evidence=Evidence(
                total_ns=total,
                steps=capture.kept_count,
                ranges=rows_by_path(capture, around, duration),
                figures={"collections": len(chosen), "collected_objects": int(collected[chosen].sum())},
            ),
        )
    ]
