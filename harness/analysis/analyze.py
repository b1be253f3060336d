"""Everything `stepduel analyze` says of a trace, in one structure.

Two views of the ranges: the whole capture (sums), and a typical step (medians over the kept steps). Which GPU work
counts for a range is a matter of the rule (`harness.trace.projection`); both rules' coverage is always given.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from harness.analysis import findings
from harness.analysis.capture import NONE, Capture, step_names_folded
from harness.analysis.findings.finding import Finding
from harness.analysis.gpu_totals import (
    CopyTotal,
    GpuTotals,
    NameTotal,
    api_totals,
    copy_totals,
    gpu_totals,
    kernel_totals,
)
from harness.analysis.path_summary import PathSummary
from harness.analysis.range_totals import PathTotal, path_totals, per_step
from harness.analysis.step_finder import Steps, find_steps
from harness.analysis.step_gpu import StepGpu, step_gpu
from harness.analysis.step_rows import DroppedStep, StepRow, dropped_steps, kept_steps
from harness.trace.links import link
from harness.trace.model import Int64Array, Trace
from harness.trace.nesting import range_tree
from harness.trace.projection import RULES, ProjectionRule, coverage, project
from harness.units import percent


@dataclass(frozen=True, kw_only=True)
class RankSummary:
    """Kept steps of one rank."""

    rank: int
    steps: int
    mean_ns: float
    """Time paid: the total over the number of steps."""
    median_ns: float
    gpu_busy_ns: float
    """Median."""


@dataclass(frozen=True, kw_only=True, eq=False)
class TraceAnalysis:
    """What a trace says."""

    NOT_IN_DOCUMENT: ClassVar = {
        "trace": "its events are `stepduel export`'s; the document describes it",
        "steps": "arrays: the document has a row for each step, and the steps' name",
        "step_gpu": "arrays: in the rows of the steps",
    }
    ALSO_IN_DOCUMENT: ClassVar = ("dropped_steps", "slowest_rank", "step_mean_ns", "step_median_ns")

    trace: Trace
    steps: Steps
    step_gpu: StepGpu
    rule: ProjectionRule
    ranges: tuple[PathTotal, ...]
    """The whole capture, in tree order."""
    per_step: tuple[PathSummary, ...]
    """A typical step, in tree order; of whole captures where there are no steps."""
    ranks: tuple[RankSummary, ...]
    kernels: tuple[NameTotal, ...]
    api: tuple[NameTotal, ...]
    copies: tuple[CopyTotal, ...]
    gpu: GpuTotals
    coverage: dict[str, float | None]
    """By rule: share of the GPU time that found a range; None where there was no GPU work."""
    findings: tuple[Finding, ...]
    warnings: tuple[str, ...]

    @property
    def kept_steps(self) -> list[StepRow]:
        """The steps that all figures are over."""
        return kept_steps(self.steps, self.step_gpu)

    @property
    def dropped_steps(self) -> list[DroppedStep]:
        """The steps that are left out, with the reason."""
        return dropped_steps(self.steps)

    @property
    def slowest_rank(self) -> RankSummary | None:
        """The rank with the longest mean step; None with fewer than two ranks."""
        return max(self.ranks, key=lambda rank: rank.mean_ns) if len(self.ranks) > 1 else None

    @property
    def step_mean_ns(self) -> float | None:
        """Mean kept step of the slowest rank; None where there are no steps."""
        return max((rank.mean_ns for rank in self.ranks), default=None) if self.steps.name else None

    @property
    def step_median_ns(self) -> float | None:
        """Its median kept step."""
        return max(self.ranks, key=lambda rank: rank.mean_ns).median_ns if self.ranks and self.steps.name else None


def analyze(
    trace: Trace, *, step_name: str | None = None, rule: ProjectionRule = "process", warmup_steps: int = 0
) -> TraceAnalysis:
    """Analyse `trace`. `step_name` names the range that is a step; found by itself without. Steps below `warmup_steps`
    are left out (in our worker's traces by their number in the launch).

    Raises TraceError, with the nearest name, where no range is called `step_name`.
    """
    tree = range_tree(trace)
    steps = find_steps(trace, tree, step_name=step_name, warmup_steps=warmup_steps)
    tree = step_names_folded(tree, steps)
    links = link(trace, tree.nesting)
    projection = project(trace, tree.nesting, links, rule)
    capture = Capture(trace=trace, tree=tree, steps=steps, op_call=links.call, op_range=projection.owner)
    in_steps = step_gpu(capture)
    totals = gpu_totals(trace)
    return TraceAnalysis(
        trace=trace,
        steps=steps,
        step_gpu=in_steps,
        rule=rule,
        ranges=tuple(path_totals(trace, tree, projection)),
        per_step=tuple(per_step(capture, projection)),
        ranks=tuple(_ranks(steps, in_steps.busy_ns)),
        kernels=tuple(kernel_totals(trace)),
        api=tuple(api_totals(trace)),
        copies=tuple(copy_totals(trace)),
        gpu=totals,
        coverage={name: coverage(trace, links, name) if len(trace.operations) else None for name in RULES},
        findings=tuple(findings.find(capture)),
        warnings=(
            *trace.warnings,
            *_step_warnings(trace, steps),
            *_capture_warnings(trace, totals, links.call),
        ),
    )


def _ranks(steps: Steps, busy: Int64Array) -> list[RankSummary]:
    summaries = []
    for rank in np.unique(steps.rank).tolist():
        own = steps.kept & (steps.rank == rank)
        if own.any():
            summaries.append(
                RankSummary(
                    rank=rank,
                    steps=int(own.sum()),
                    mean_ns=float(np.mean(steps.duration_ns[own])),
                    median_ns=float(np.median(steps.duration_ns[own])),
                    gpu_busy_ns=float(np.median(busy[own])),
                )
            )
    return summaries


def _step_warnings(trace: Trace, steps: Steps) -> list[str]:
    if steps.name is None and not len(trace.ranges):
        return []  # said already: there are no ranges at all
    if steps.name is None:
        return ["no range repeats like a step: figures are for the whole capture (--step NAME chooses a range)"]
    if not steps.kept.any():
        return [f"all {len(steps)} steps were left out: there is no typical step to show"]
    return []


def _capture_warnings(trace: Trace, totals: GpuTotals, op_call: Int64Array) -> list[str]:
    """What the way of capturing hides or distorts."""
    warnings = []
    in_graphs = totals.graph_ns / (totals.graph_ns + totals.kernel_ns + totals.copy_ns) if totals.graph_ns else 0.0
    if in_graphs >= 0.01:
        warnings.append(
            f"{percent(in_graphs)} of the GPU time is in CUDA graph launches, whose kernels have no rows of their own: "
            "capture with --cuda-graph-trace=node to see them"
        )
    unlaunched = int((op_call == NONE).sum())
    if unlaunched > 0.01 * len(op_call):
        warnings.append(
            f"{unlaunched:,} of {len(op_call):,} GPU operations have no launch in the trace and belong to no range: "
            "synchronise before the capture begins"
        )
    if any(", op_id = " in text for text in trace.strings):
        warnings.append(
            "the ranges come from torch.autograd.profiler.emit_nvtx, which slows the host much: waits of the GPU for "
            "launches are partly its doing"
        )
    return warnings
