"""Copies between the GPU and pageable host memory.

The driver stages them through a buffer of its own: they run at a fraction of the link, the calling thread waits, and
nothing overlaps. Copies of up to 64 KiB are left out: from the host they are staged without waiting, and their time is
latency, not bandwidth.
"""

from __future__ import annotations

import numpy as np

from harness.analysis.capture import Capture
from harness.analysis.findings.finding import (
    Evidence,
    EvidenceRow,
    Finding,
    kept,
    rows_by_path,
)
from harness.trace import schema
from harness.trace.model import MEMCPY, BoolArray
from harness.units import bytes_text, milliseconds

MIN_BYTES = 64 * 1024 + 1


def check(capture: Capture) -> list[Finding]:
    """Find large copies from or to pageable memory in kept steps (in the whole capture where there are no steps)."""
    operations = capture.trace.operations
    pageable = _side(capture, schema.PAGEABLE) & (operations.bytes >= MIN_BYTES)
    chosen = kept(capture, capture.op_row, pageable)
    if not len(chosen):
        return []
    duration = operations.end_ns[chosen] - operations.start_ns[chosen]
    total, size = int(duration.sum()), int(operations.bytes[chosen].sum())
    per_step = capture.per_step(total)
    kinds = [(kind, operations.copy_kind[chosen] == kind) for kind in np.unique(operations.copy_kind[chosen]).tolist()]
    bandwidth = size / total if total else 0.0
    return [
        Finding(
            rule="pageable_copies",
            summary=f"{len(chosen)} copies moved {bytes_text(capture.per_step(size))} {capture.unit} through pageable "
            f"memory at {bandwidth:.1f} GB/s, {milliseconds(per_step)} ms {capture.unit}",
            advice="keep the host side in pinned memory (pin_memory=True) and copy with non_blocking=True on a stream "
            "of its own",
            ns_per_step=per_step,
            evidence=Evidence(
                total_ns=total,
                steps=capture.kept_count,
                bytes=size,
                ranges=rows_by_path(capture, capture.op_range[chosen], duration, operations.bytes[chosen]),
                calls=tuple(
                    EvidenceRow(
                        name=f"{schema.COPY_KINDS[kind]}, pageable",
                        calls=int(of_kind.sum()),
                        total_ns=int(duration[of_kind].sum()),
                        bytes=int(operations.bytes[chosen][of_kind].sum()),
                    )
                    for kind, of_kind in kinds
                ),
                figures={"gb_per_s": bandwidth, **_pinned_bandwidth(capture)},
            ),
        )
    ]


def _side(capture: Capture, memory_kind: int) -> BoolArray:
    """Per operation: a copy to or from the GPU whose host side is of that kind."""
    operations = capture.trace.operations
    to_gpu = np.isin(operations.copy_kind, schema.H2D_KINDS[:2]) & (operations.src_kind == memory_kind)
    from_gpu = np.isin(operations.copy_kind, schema.D2H_KINDS[:2]) & (operations.dst_kind == memory_kind)
    found: BoolArray = (operations.kind == MEMCPY) & (to_gpu | from_gpu)
    return found


def _pinned_bandwidth(capture: Capture) -> dict[str, float]:
    """What copies of such sizes from pinned memory reach in this very trace, if it has any: the only fair yardstick."""
    operations = capture.trace.operations
    pinned = _side(capture, schema.PINNED) & (operations.bytes >= MIN_BYTES)
    time = int((operations.end_ns[pinned] - operations.start_ns[pinned]).sum())
    return {"pinned_gb_per_s": float(operations.bytes[pinned].sum()) / time} if time else {}
