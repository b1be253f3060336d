"""Waiting for the GPU in the middle of a step.

The wait that closes a step is not counted: nothing is launched after it. Neither are the waits of `.item()`, which are
a finding of their own.
"""

from __future__ import annotations

from harness.analysis.capture import Capture
from harness.analysis.findings import stall_finding
from harness.analysis.findings.finding import Finding, kept
from harness.analysis.findings.item_copies import item_waits
from harness.analysis.stalls import calls_named, ends_its_step

SYNCHRONISING = {
    "cudaDeviceSynchronize", "cudaStreamSynchronize", "cudaEventSynchronize",
    "cuCtxSynchronize", "cuStreamSynchronize", "cuEventSynchronize",
}  # fmt: skip


def check(capture: Capture) -> list[Finding]:
    """Find synchronising calls after which a kept step (or a capture without steps) still launches work."""
    calls = kept(capture, capture.api_row, calls_named(capture, SYNCHRONISING) & ~item_waits(capture))
    return stall_finding.build(
        capture,
        calls[~ends_its_step(capture, calls)],
        rule="synchronise_in_step",
        what="synchronising calls with work after them",
        advice="remove the synchronisation, or move it to the end of the step: events and wait_stream order streams "
        "without stopping the host, and a copy to the GPU waits unless its source is pinned and it is non_blocking",
    )
