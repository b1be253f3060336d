"""`.item()`, `float(tensor)`, `if tensor:`: a scalar is copied to the host and the host waits for it.

Recognised by its rows: a copy of at most `MAX_BYTES` from the device, and a stream synchronisation as the same thread's
next call (a synchronous cudaMemcpy needs none). The wait that closes a step is not counted.
"""

from __future__ import annotations

import numpy as np

from harness.analysis.capture import NONE, Capture
from harness.analysis.findings import stall_finding
from harness.analysis.findings.finding import Finding, kept
from harness.analysis.stalls import calls_named, ends_its_step
from harness.trace import schema
from harness.trace.model import MEMCPY, BoolArray

MAX_BYTES = 16
"""A complex128, the largest scalar that PyTorch has."""


def item_waits(capture: Capture) -> BoolArray:
    """Per API call: whether it is the one in which the host waits for a scalar."""
    operations, api = capture.trace.operations, capture.trace.api
    found = np.zeros(len(api), dtype=np.bool_)
    scalar = (operations.kind == MEMCPY) & np.isin(operations.copy_kind, schema.D2H_KINDS[:1])
    scalar &= (operations.bytes <= MAX_BYTES) & (capture.op_call != NONE)
    copies = np.unique(capture.op_call[scalar]).astype(np.int64)
    if not len(copies):
        return found
    waits_itself = calls_named(capture, {"cudaMemcpy", "cuMemcpyDtoH"})
    found[copies[waits_itself[copies]]] = True
    # The next call of the same thread: all calls by thread, then by time.
    order = np.lexsort((api.start_ns, api.global_tid))
    next_call = np.full(len(api), NONE, dtype=np.int64)
    same_thread = api.global_tid[order[1:]] == api.global_tid[order[:-1]]
    next_call[order[:-1][same_thread]] = order[1:][same_thread]
    follower = next_call[copies]
    synchronises = calls_named(capture, {"cudaStreamSynchronize", "cuStreamSynchronize"})
    followed = follower != NONE
    waits = follower[followed]
    found[waits[synchronises[waits]]] = True
    return found


def check(capture: Capture) -> list[Finding]:
    """Find waits for scalars in the middle of kept steps (or of a capture without steps)."""
    calls = kept(capture, capture.api_row, item_waits(capture))
    return stall_finding.build(
        capture,
        calls[~ends_its_step(capture, calls)],
        rule="item_copies",
        what="scalars read back with work after them (.item() and the like)",
        advice="keep the value on the GPU (torch.where instead of if, detach() instead of item() for logging) and read "
        "it back once, after the step's work is launched",
    )
