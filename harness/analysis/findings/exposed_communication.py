"""Collectives that nothing hides: while they ran, no other work of the process ran on the GPU.

The time holds both the transfer and the wait for slower ranks; `rank_straggling` tells the latter apart.
"""

from __future__ import annotations

import numpy as np

from harness.analysis.capture import Capture
from harness.analysis.findings.finding import Evidence, Finding, kept, rows_by_name, rows_by_path
from harness.trace import schema
from harness.trace.model import Int64Array
from harness.units import milliseconds, percent


def check(capture: Capture) -> list[Finding]:
    """Find exposed communication in kept steps (in the whole capture where there are none)."""
    exposed = exposed_by_row(capture)
    total = int(exposed[capture.kept].sum())
    if not total:
        return []
    operations = capture.trace.operations
    chosen = kept(capture, capture.op_row, capture.communication)
    duration = operations.end_ns[chosen] - operations.start_ns[chosen]
    per_step = capture.per_step(total)
    share = per_step / capture.mean_step_ns if capture.mean_step_ns else 0.0
    return [
        Finding(
            rule="exposed_communication",
            summary=f"{milliseconds(per_step)} ms {capture.unit} ({percent(share)}) of communication had no other "
            "GPU work beside it",
            advice="start collectives earlier and beside compute (async_op=True, FSDP2's prefetching), split an "
            "all-to-all and pipeline it, use larger buckets, or give each step more compute per byte sent",
            ns_per_step=per_step,
            evidence=Evidence(
                total_ns=total,
                steps=capture.kept_count,
                ranges=rows_by_path(capture, capture.op_range[chosen], duration),
                calls=rows_by_name(capture, operations.name_id[chosen], duration),
                figures={"communication_ns": int(duration.sum()), "exposed_share": share},
            ),
        )
    ]


def exposed_by_row(capture: Capture) -> Int64Array:
    """Per row: ns in which only collectives ran."""
    rows = capture.steps
    exposed = np.zeros(len(rows), dtype=np.int64)
    if not capture.communication.any():
        return exposed
    pids = rows.global_tid & schema.GLOBAL_PID_MASK
    for pid in capture.gpu_processes:
        own = pids == pid
        exposed[own] = capture.gpu_exposed_communication[pid].covered_in(rows.start_ns[own], rows.end_ns[own])
    return exposed
