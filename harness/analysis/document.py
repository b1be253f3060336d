"""The JSON documents of `stepduel analyze` and `stepduel diff`."""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from harness.analysis.analyze import TraceAnalysis
from harness.analysis.difference import NO_VERDICT, DiffSide, TraceDiff
from harness.analysis.range_totals import PathTotal, bandwidth

ANALYZE_SCHEMA: Final = "stepduel/analyze/1"
DIFF_SCHEMA: Final = "stepduel/diff/1"


def analyze_document(found: TraceAnalysis) -> dict[str, Any]:
    """`ranges` are sums over the whole capture, `per_step` medians over the kept steps, which are those in `steps`."""
    trace, steps = found.trace, found.steps
    has_gpu = len(trace.operations) > 0
    return {
        "schema": ANALYZE_SCHEMA,
        "trace": {
            "nsys_version": trace.info.nsys_version,
            "collector": trace.info.collector,
            "ranks": len(trace.ranks),
            "duration_ns": trace.last_ns - trace.first_ns,
        },
        "rule": found.rule,
        "step": steps.name,
        "steps": [_step(found, row) for row in np.flatnonzero(steps.kept).tolist()],
        "dropped_steps": [
            {"rank": int(steps.rank[row]), "index": int(steps.index[row]), "reason": reason}
            for row, reason in enumerate(steps.dropped)
            if reason is not None
        ],
        "by_rank": [
            {"rank": r.rank, "steps": r.steps, "median_ms": r.median_ns / 1e6, "gpu_busy_ms": r.gpu_busy_ns / 1e6}
            for r in found.ranks
        ],
        "slowest_rank": None if found.slowest_rank is None else found.slowest_rank.rank,
        "ranges": [_range(total) for total in found.ranges],
        "per_step": [
            {
                "path": p.path,
                "calls_per_step": p.calls_per_step,
                "median_ms": p.median_ms,
                "p90_ms": p.p90_ms,
                "self_median_ms": p.self_median_ms,
                "gpu_median_ms": p.gpu_median_ms,
            }
            for p in found.per_step
        ],
        "kernels": [{"name": k.name, "calls": k.calls, "total_ns": k.total_ns} for k in found.kernels],
        "api": [{"name": a.name, "calls": a.calls, "total_ns": a.total_ns} for a in found.api],
        "copies": [
            {
                "kind": c.kind,
                "count": c.count,
                "bytes": c.bytes,
                "total_ns": c.total_ns,
                "pageable_bytes": c.pageable_bytes,
            }
            for c in found.copies
        ],
        "gpu": {
            "busy_ns": found.gpu.busy_ns,
            "kernel_ns": found.gpu.kernel_ns,
            "copy_ns": found.gpu.copy_ns,
            "graph_ns": found.gpu.graph_ns,
        },
        "coverage": {rule: share if has_gpu else None for rule, share in found.coverage.items()},
        "findings": [
            {
                "rule": f.rule,
                "ns_per_step": f.ns_per_step,
                "summary": f.summary,
                "try": f.advice,
                "evidence": f.evidence.document(),
            }
            for f in found.findings
        ],
        "warnings": list(found.warnings),
    }


def _step(found: TraceAnalysis, row: int) -> dict[str, Any]:
    """One kept step. Where no GPU work ran in it, the GPU's idle time and coverage mean nothing and are null."""
    steps, gpu = found.steps, found.step_gpu
    coverage = float(gpu.coverage[row])
    return {
        "rank": int(steps.rank[row]),
        "index": int(steps.index[row]),
        "start_ns": int(steps.start_ns[row]),
        "duration_ns": int(steps.duration_ns[row]),
        "gpu_busy_ns": int(gpu.busy_ns[row]),
        "gpu_idle_ns": int(gpu.idle_ns[row]) if gpu.busy_ns[row] else None,
        "idle_in": gpu.idle_in[row],
        "communication_exposed_ns": int(gpu.communication_exposed_ns[row]),
        "communication_overlapped_ns": int(gpu.communication_overlapped_ns[row]),
        "coverage": None if np.isnan(coverage) else coverage,
    }


def _range(total: PathTotal) -> dict[str, Any]:
    """`launch_delay_ns` is a sum over the `gpu_ops`; a bandwidth (10^9 bytes a second) is null where nothing moved."""
    return {
        "path": total.path,
        "name": total.name,
        "calls": total.calls,
        "total_ns": total.total_ns,
        "self_ns": total.self_ns,
        "median_ns": total.median_ns,
        "gpu_ns": total.gpu_ns,
        "gpu_ops": total.gpu_ops,
        "projected_ns": total.projected_ns,
        "launch_delay_ns": total.launch_delay_ns,
        "h2d_bytes": total.h2d_bytes,
        "d2h_bytes": total.d2h_bytes,
        "h2d_gb_per_s": total.gb_per_s("h2d"),
        "d2h_gb_per_s": total.gb_per_s("d2h"),
        "copies": [
            {
                "direction": copy.direction,
                "memory": copy.memory,
                "bytes": copy.bytes,
                "total_ns": copy.total_ns,
                "gb_per_s": bandwidth([copy]),
            }
            for copy in total.copies
        ],
        "sync_ns": total.sync_ns,
    }


def diff_document(found: TraceDiff) -> dict[str, Any]:
    """Figures in `ranges` are self times, mean per step: their deltas add up to that of the step."""
    return {
        "schema": DIFF_SCHEMA,
        "base": _side(found.base),
        "head": _side(found.head),
        "step": {
            "base_ms": found.base.step_ns / 1e6,
            "head_ms": found.head.step_ns / 1e6,
            "delta_ms": found.delta_ns / 1e6,
        },
        "ranges": [
            {
                "path": part.path,
                "sides": part.sides,
                "base_calls": part.base_calls,
                "head_calls": part.head_calls,
                "base_ms": part.base_ns / 1e6,
                "head_ms": part.head_ns / 1e6,
                "delta_ms": part.delta_ns / 1e6,
                "base_gpu_ms": part.base_gpu_ns / 1e6,
                "head_gpu_ms": part.head_gpu_ns / 1e6,
            }
            for part in found.parts
        ],
        "verdict": None,
        "note": NO_VERDICT,
        "warnings": list(found.warnings),
    }


def _side(side: DiffSide) -> dict[str, Any]:
    return {
        "trace": list(side.sources),
        "ranks": side.ranks,
        "step": side.step,
        "steps": side.steps,
        "dropped_steps": side.dropped,
    }
