"""One rank that keeps the others waiting.

In synchronous training all ranks end a step together, whichever is slow: the fast ones wait inside collectives. So each
rank's *own* time is compared, the step without its exposed communication. A rank straggles when it has the longest own
time in at least `MIN_SLOWEST_SHARE` of the steps; a place that changes hands is noise or uneven data, and no finding.
Durations only, no absolute times: clocks of two machines differ.
"""

from __future__ import annotations

import numpy as np

from harness.analysis.capture import Capture
from harness.analysis.findings.exposed_communication import exposed_by_row
from harness.analysis.findings.finding import Evidence, EvidenceRow, Finding
from harness.trace.model import FloatArray, Int64Array
from harness.units import milliseconds, percent

MIN_SLOWEST_SHARE = 0.75
MIN_STEPS = 3


def check(capture: Capture) -> list[Finding]:
    """Find the rank whose own time is longest in nearly every kept step that all ranks have."""
    if not capture.has_steps:
        return []
    ranks, own_ns = own_time(capture)
    if len(ranks) < 2 or own_ns.shape[1] < MIN_STEPS:
        return []
    slowest = np.argmax(own_ns, axis=0)
    worst = int(np.bincount(slowest, minlength=len(ranks)).argmax())
    share = float((slowest == worst).mean())
    others = np.delete(own_ns, worst, axis=0)
    # What the step would gain if this rank were as fast as the next slowest.
    excess = own_ns[worst] - others.max(axis=0)
    per_step = float(np.maximum(excess, 0).mean())
    if share < MIN_SLOWEST_SHARE or per_step <= 0:
        return []
    steps = own_ns.shape[1]
    rows = [(int(ranks[at]), own_ns[at]) for at in np.argsort(-own_ns.mean(axis=1))]
    return [
        Finding(
            rule="rank_straggling",
            summary=f"rank {int(ranks[worst])} was the slowest in {percent(share)} of {steps} steps, by "
            f"{milliseconds(per_step)} ms {capture.unit} over the next slowest",
            advice="compare that rank's ranges, clocks, temperature and data with another's: uneven batches, a slower "
            "or throttled GPU, or a neighbour on its cores",
            ns_per_step=per_step,
            evidence=Evidence(
                total_ns=int(np.maximum(excess, 0).sum()),
                steps=steps,
                calls=tuple(
                    EvidenceRow(name=f"rank {rank}", calls=steps, total_ns=int(own.sum())) for rank, own in rows
                ),
                figures={"rank": int(ranks[worst]), "slowest_share": share},
            ),
        )
    ]


def own_time(capture: Capture) -> tuple[Int64Array, FloatArray]:
    """Ranks, and their own ns (ranks × steps) in the steps that all of them kept."""
    rows = capture.steps
    own = (rows.duration_ns - exposed_by_row(capture)).astype(np.float64)
    ranks = np.unique(rows.rank[capture.kept]).astype(np.int64)
    if not len(ranks):
        return ranks, np.empty((0, 0))
    chosen = [capture.kept & (rows.rank == rank) for rank in ranks]
    common = rows.index[chosen[0]]
    for of_rank in chosen[1:]:
        common = np.intersect1d(common, rows.index[of_rank])
    table = [own[of_rank][np.isin(rows.index[of_rank], common)] for of_rank in chosen]
    return ranks, np.array(table)
