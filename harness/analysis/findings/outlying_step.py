"""A step far from the rest: a first step that still warms up, or a later one that compiled something again.

The median of the kept steps of the same rank is what a step should take. Truncated steps and those
declared to be warm-up are left out.
"""

from __future__ import annotations

import numpy as np

from harness.analysis.capture import Capture
from harness.analysis.findings.finding import Evidence, EvidenceRow, Finding, rows_by_path
from harness.trace.model import BoolArray, FloatArray, Int64Array
from harness.units import milliseconds

FACTOR = 1.5
"""How many medians a step must take,"""
MIN_DEVIATIONS = 8
"""and how many median absolute deviations it must lie above the median: short steps scatter by themselves."""
MIN_STEPS = 3
"""Fewer kept steps than that say nothing about what is usual."""


def check(capture: Capture) -> list[Finding]:
    """Find steps that took `FACTOR` times their rank's median."""
    if not capture.has_steps:
        return []
    rows = capture.steps
    excess, deviation = excess_ns(capture)
    outlying = (excess > (FACTOR - 1) * (rows.duration_ns - excess)) & (excess > MIN_DEVIATIONS * deviation)
    if not outlying.any():
        return []
    first = _first_of_rank(capture)
    findings = []
    for is_first, what, advice in (
        (True, "the first step", "leave the warm-up out of the figures (--warmup-steps), or begin to capture after it"),
        (
            False,
            "a later step",
            "look for recompilation (TORCH_LOGS=recompiles), a new batch shape, allocator growth or a checkpoint in "
            "that step",
        ),
    ):
        chosen = np.flatnonzero(outlying & (first == is_first))
        if len(chosen):
            findings.append(_finding(capture, chosen, excess, what, advice))
    return findings


def excess_ns(capture: Capture) -> tuple[FloatArray, FloatArray]:
    """Per row: ns above the median of its rank's kept steps, and their median absolute deviation.

    0 for truncated and warm-up steps, and for ranks with too few steps.
    """
    rows = capture.steps
    excess, deviation = np.zeros(len(rows)), np.zeros(len(rows))
    for rank in np.unique(rows.rank):
        usual = rows.duration_ns[capture.kept & (rows.rank == rank)]
        if len(usual) >= MIN_STEPS:
            own = (rows.rank == rank) & capture.judged
            excess[own] = rows.duration_ns[own] - np.median(usual)
            deviation[own] = np.median(np.abs(usual - np.median(usual)))
    return excess, deviation


def _first_of_rank(capture: Capture) -> BoolArray:
    first: BoolArray = capture.steps.index == 0
    return first


def _finding(capture: Capture, chosen: Int64Array, excess: FloatArray, what: str, advice: str) -> Finding:
    rows = capture.steps
    total = int(excess[chosen].sum())
    worst = int(chosen[np.argmax(excess[chosen])])
    usual = rows.duration_ns[worst] - excess[worst]
    per_step = total / max(int(capture.judged.sum()), 1)
    return Finding(
        rule="outlying_step",
        summary=f"{what} took up to {rows.duration_ns[worst] / usual:.1f} times as long as the others "
        f"({milliseconds(int(rows.duration_ns[worst]))} ms instead of {milliseconds(float(usual))} ms), "
        f"{milliseconds(per_step)} ms per captured step",
        advice=advice,
        ns_per_step=per_step,
        evidence=Evidence(
            total_ns=total,
            steps=int(capture.judged.sum()),
            ranges=_grown_ranges(capture, worst),
            calls=tuple(
                EvidenceRow(
                    name=f"rank {rows.rank[row]} step {rows.index[row]}", calls=1, total_ns=int(rows.duration_ns[row])
                )
                for row in chosen[np.argsort(-excess[chosen])][:10]
            ),
            figures={"median_ns": float(usual)},
        ),
    )


def _grown_ranges(capture: Capture, row: int) -> tuple[EvidenceRow, ...]:
    """Self time by path within the worst step: what it did there."""
    inside = np.flatnonzero(capture.range_row == row)
    return rows_by_path(capture, inside, capture.self_ns[inside])
