"""Sums over the whole capture by kernel, API call and copy: what `nsys stats` prints, to the ns.

The reports are `cuda_gpu_kern_sum`, `cuda_api_sum`, `cuda_gpu_mem_time_sum` and `cuda_gpu_mem_size_sum`. Each column of
operations or calls is (operations,) or (calls,) long; durations are ns and are summed as they are, overlaps included.
Only `busy_ns`, which NVIDIA's reports do not have, is a union.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from harness.analysis.intervals import union
from harness.trace import schema
from harness.trace.groups import summed
from harness.trace.model import GRAPH, KERNEL, MEMCPY, MEMSET, NO_NAME, Int32Array, Int64Array, Trace
from harness.trace.naming import call_name

MEMSET_KIND = "Memset"


@dataclass(frozen=True, kw_only=True)
class NameTotal:
    """Calls of one kernel or API function. `total_ns` sums durations, overlaps as often as they occur."""

    name: str
    calls: int
    total_ns: int


@dataclass(frozen=True, kw_only=True)
class CopyTotal:
    """Copies of one direction, or memsets."""

    kind: str
    count: int
    bytes: int
    total_ns: int
    pageable_bytes: int
    """Those whose host side was pageable memory."""


@dataclass(frozen=True, kw_only=True)
class GpuTotals:
    """Time on the GPU over all processes. `busy_ns` is a union for each process; the others are sums of durations."""

    busy_ns: int
    kernel_ns: int
    copy_ns: int
    """Copies and memsets."""
    graph_ns: int


def kernel_totals(trace: Trace) -> list[NameTotal]:
    """By demangled name, most time first. Kernels inside CUDA graphs have rows only where nsys traced graph nodes."""
    operations = trace.operations
    own = operations.kind == KERNEL
    duration = operations.end_ns - operations.start_ns
    return _by_name(trace.strings, operations.name_id[own], duration[own], lambda name: name)


def api_totals(trace: Trace) -> list[NameTotal]:
    """By documented name (without the version suffix that recorded names carry), most time first."""
    return _by_name(trace.strings, trace.api.name_id, trace.api.end_ns - trace.api.start_ns, call_name)


def copy_totals(trace: Trace) -> list[CopyTotal]:
    """By direction, most time first; memsets last."""
    operations = trace.operations
    duration = operations.end_ns - operations.start_ns
    found = []
    for kind in np.unique(operations.copy_kind[operations.kind == MEMCPY]).tolist():
        own = (operations.kind == MEMCPY) & (operations.copy_kind == kind)
        to_gpu, from_gpu = kind in schema.H2D_KINDS, kind in schema.D2H_KINDS
        host_kind = operations.src_kind if to_gpu else operations.dst_kind
        pageable = own & (host_kind == schema.PAGEABLE) if to_gpu or from_gpu else np.zeros(len(own), dtype=np.bool_)
        found.append(
            CopyTotal(
                kind=schema.COPY_KINDS.get(kind, schema.COPY_KINDS[0]),
                count=int(own.sum()),
                bytes=int(operations.bytes[own].sum()),
                total_ns=int(duration[own].sum()),
                pageable_bytes=int(operations.bytes[pageable].sum()),
            )
        )
    found.sort(key=lambda total: -total.total_ns)
    own = operations.kind == MEMSET
    if own.any():
        size, time = int(operations.bytes[own].sum()), int(duration[own].sum())
        found.append(CopyTotal(kind=MEMSET_KIND, count=int(own.sum()), bytes=size, total_ns=time, pageable_bytes=0))
    return found


def gpu_totals(trace: Trace) -> GpuTotals:
    """Busy time and its parts."""
    operations = trace.operations
    duration = operations.end_ns - operations.start_ns
    busy = sum(
        union(operations.start_ns[own], operations.end_ns[own]).total_ns for own in operations.by_process.values()
    )
    return GpuTotals(
        busy_ns=busy,
        kernel_ns=int(duration[operations.kind == KERNEL].sum()),
        copy_ns=int(duration[(operations.kind == MEMCPY) | (operations.kind == MEMSET)].sum()),
        graph_ns=int(duration[operations.kind == GRAPH].sum()),
    )


def _by_name(
    strings: Sequence[str], name_ids: Int32Array, ns: Int64Array, shown: Callable[[str], str]
) -> list[NameTotal]:
    """Totals by name as it is shown; different ids can have the same one."""
    counts = np.bincount(name_ids - NO_NAME)  # (names + 1,): NO_NAME comes first
    times = summed(name_ids - NO_NAME, ns, len(counts))
    merged: dict[str, tuple[int, int]] = {}
    for at in np.flatnonzero(counts).tolist():
        name = shown(strings[at + NO_NAME]) if at + NO_NAME != NO_NAME else "?"
        calls, total = merged.get(name, (0, 0))
        merged[name] = (calls + int(counts[at]), total + int(times[at]))
    totals = [NameTotal(name=name, calls=calls, total_ns=total) for name, (calls, total) in merged.items()]
    return sorted(totals, key=lambda total: (-total.total_ns, total.name))
