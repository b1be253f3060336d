"""The finding that the rules about stalling calls share: which calls, where, and how long the GPU idled for them."""

from __future__ import annotations

from harness.analysis.capture import Capture
from harness.analysis.findings.finding import Evidence, Finding, rows_by_name, rows_by_path
from harness.analysis.stalls import stalls
from harness.trace.model import Int64Array
from harness.units import milliseconds


def build(capture: Capture, calls: Int64Array, *, rule: str, what: str, advice: str) -> list[Finding]:
    """Measure `calls` (indexes of API calls in kept steps) and describe them; nothing where the GPU lost no time."""
    found = stalls(capture, calls)
    if not len(found) or not found.total_idle_ns:
        return []
    per_step = capture.per_step(found.total_idle_ns)
    blocked = int(found.blocked_ns.sum())
    return [
        Finding(
            rule=rule,
            summary=f"{len(found)} {what}: the GPU idled {milliseconds(per_step)} ms {capture.unit} until the next "
            f"launch arrived, the host was held {milliseconds(capture.per_step(blocked))} ms {capture.unit}",
            advice=advice,
            ns_per_step=per_step,
            evidence=Evidence(
                total_ns=found.total_idle_ns,
                steps=capture.kept_count,
                ranges=rows_by_path(capture, capture.ranges_of_calls(found.calls), found.idle_ns),
                calls=rows_by_name(capture, capture.trace.api.name_id[found.calls], found.idle_ns),
                figures={"host_blocked_ns": blocked, "stalling_calls": int((found.idle_ns > 0).sum())},
            ),
        )
    ]
