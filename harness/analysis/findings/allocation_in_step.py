"""Allocating or freeing GPU or pinned memory inside a step: the driver stops the device to do it.

In a steady step PyTorch's allocator serves everything from its cache; a cudaMalloc there means that the cache was
emptied or is too fragmented, and a cudaFree that it gave memory back because it ran short.
"""

from __future__ import annotations

from harness.analysis.capture import Capture
from harness.analysis.findings import stall_finding
from harness.analysis.findings.finding import Finding, kept
from harness.analysis.stalls import calls_named

ALLOCATING = {
    "cudaMalloc", "cudaFree", "cudaHostAlloc", "cudaMallocHost", "cudaFreeHost", "cudaHostRegister",
    "cudaHostUnregister", "cudaMallocManaged", "cuMemAlloc", "cuMemFree", "cuMemHostAlloc", "cuMemFreeHost",
    "cuMemCreate", "cuMemMap", "cuMemUnmap", "cuMemRelease", "cuMemSetAccess", "cuMemAllocHost",
}  # fmt: skip


def check(capture: Capture) -> list[Finding]:
    """Find allocations by the driver in kept steps."""
    if not capture.has_steps:
        return []
    return stall_finding.build(
        capture,
        kept(capture, capture.api_row, calls_named(capture, ALLOCATING)),
        rule="allocation_in_step",
        what="driver allocations or frees inside steps",
        advice="let the caching allocator keep its memory: no torch.cuda.empty_cache() in the loop, "
        "PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True against fragmentation, pinned buffers allocated once",
    )
