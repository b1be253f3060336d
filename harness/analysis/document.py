"""The JSON documents of `stepduel analyze` and `stepduel diff`."""

from __future__ import annotations

from typing import Any, Final

from harness.analysis.analyze import TraceAnalysis
from harness.analysis.difference import NO_VERDICT, TraceDiff
from harness.documents import document, plain

ANALYZE_SCHEMA: Final = "stepduel/analyze/2"
DIFF_SCHEMA: Final = "stepduel/diff/2"


def analyze_document(found: TraceAnalysis) -> dict[str, Any]:
    """`ranges` are sums over the whole capture, `per_step` medians over the kept steps, which are those in `steps`."""
    trace = found.trace
    return {
        **document(ANALYZE_SCHEMA, found),
        "trace": {
            **plain(trace.info),
            "ranks": len(trace.ranks),
            "duration_ns": trace.last_ns - trace.first_ns,
        },
        "step": found.steps.name,
        "steps": plain(found.kept_steps),
    }


def diff_document(found: TraceDiff) -> dict[str, Any]:
    """Figures in `ranges` are self times, mean per step: their deltas add up to that of the step."""
    return {**document(DIFF_SCHEMA, found), "verdict": None, "note": NO_VERDICT}
