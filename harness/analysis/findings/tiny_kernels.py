"""Many kernels so short that the GPU waits for each launch: the step is bound by the host's launching.

Short kernels alone are no waste: with launches queued ahead they run back to back. What costs is the gap before each
while the GPU waits. Only gaps of up to `MAX_GAP_NS` count: in a longer one the host was doing something else.
"""

from __future__ import annotations

import numpy as np

from harness.analysis.capture import Capture
from harness.analysis.findings.finding import Evidence, Finding, kept, rows_by_name, rows_by_path
from harness.trace.model import KERNEL, Int64Array
from harness.units import milliseconds

TINY_NS = 5_000
MAX_GAP_NS = 50_000
MIN_PER_STEP = 100
MIN_SHARE = 0.02
"""Of the step, in the gaps: below it other things come first."""


def check(capture: Capture) -> list[Finding]:
    """Find tiny kernels that the GPU had to wait for, in kept steps (in the whole capture where there are none)."""
    operations = capture.trace.operations
    duration = operations.end_ns - operations.start_ns
    gap = gap_before(capture)
    tiny = (operations.kind == KERNEL) & (duration < TINY_NS) & (gap > 0) & (gap <= MAX_GAP_NS)
    chosen = kept(capture, capture.op_row, tiny)
    if len(chosen) < MIN_PER_STEP * max(capture.kept_count, 1):
        return []
    total = int(gap[chosen].sum())
    per_step = capture.per_step(total)
    if per_step < MIN_SHARE * capture.mean_step_ns:
        return []
    return [
        Finding(
            rule="tiny_kernels",
            summary=f"{capture.per_step(len(chosen)):,.0f} kernels {capture.unit} ran under {TINY_NS // 1000} µs after "
            f"the GPU had waited for their launch, {milliseconds(per_step)} ms {capture.unit} in the gaps",
            advice="launch fewer and larger kernels: torch.compile, CUDA graphs, fused or foreach optimizers, batched "
            "small operations",
            ns_per_step=per_step,
            evidence=Evidence(
                total_ns=total,
                steps=capture.kept_count,
                ranges=rows_by_path(capture, capture.op_range[chosen], gap[chosen]),
                calls=rows_by_name(capture, operations.name_id[chosen], gap[chosen]),
                figures={"kernels": len(chosen), "kernel_ns": int(duration[chosen].sum())},
            ),
        )
    ]


def gap_before(capture: Capture) -> Int64Array:
    """Per GPU operation: how long nothing of its process had run when it started; 0 for a process's first."""
    operations = capture.trace.operations
    gap = np.zeros(len(operations), dtype=np.int64)
    for own in operations.by_process.values():  # ordered by start
        free_from = np.maximum.accumulate(operations.end_ns[own])[:-1]
        gap[own[1:]] = np.maximum(operations.start_ns[own[1:]] - free_from, 0)
    return gap
