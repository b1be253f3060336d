"""Two existing traces, range by range: where the difference of their steps lies.

A part is the self time of one path: time inside it and in none of its children. The parts of a step are its duration,
whole and without overlap, so their differences add up to the difference of the step. Figures are *means* over the kept
steps of all ranks: medians would not add up. A path that one side lacks took no time there.

Without steps on both sides, each rank's whole capture is one step: parts are then the ranges of its busiest thread, and
the time in which that thread was in no range is a part of its own.

This explains and does not judge. Two captures are two samples: what differs between them can be the code, or the day.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Final

import numpy as np

from harness.analysis.capture import Capture, step_names_folded
from harness.analysis.range_part import RangePart
from harness.analysis.range_totals import step_of_ranges
from harness.analysis.step_finder import Steps, find_steps, whole_capture
from harness.names import STEP
from harness.trace.links import link
from harness.trace.model import Trace
from harness.trace.nesting import RangeTree, range_tree
from harness.trace.paths import ROOT
from harness.trace.projection import ProjectionRule, own_gpu_ns, project

NO_VERDICT: Final = (
    "two single captures cannot carry a verdict: this says where they differ, not which code is faster; "
    "`stepduel compare` runs both in turn and judges"
)
OUTSIDE: Final = "(outside any range)"


@dataclass(frozen=True, kw_only=True)
class DiffSide:
    """One of the two traces."""

    sources: tuple[str, ...]
    ranks: int
    step: str | None
    """Name of its steps; None where whole captures are compared."""
    steps: int
    """Kept steps, each counted for every rank."""
    dropped_steps: int
    step_ns: float
    """Mean duration."""


@dataclass(frozen=True, kw_only=True)
class DiffPart(RangePart):
    """Self time of one path, with its calls and what it launched on the GPU, mean per step."""

    base_calls: float
    head_calls: float
    base_gpu_ns: float
    """GPU time of what was launched in it and in none of its children. Not additive: GPU work overlaps."""
    head_gpu_ns: float


@dataclass(frozen=True, kw_only=True)
class TraceDiff:
    """The difference of two traces in parts, those of `ranges`, largest first."""

    ALSO_IN_DOCUMENT: ClassVar = ("delta_ns",)

    base: DiffSide
    head: DiffSide
    ranges: tuple[DiffPart, ...]
    warnings: tuple[str, ...]

    @property
    def delta_ns(self) -> float:
        """The difference of the mean steps, which is the sum of the parts' differences."""
        return self.head.step_ns - self.base.step_ns


@dataclass(frozen=True)
class _Cell:
    """Sums of one path over the kept steps."""

    calls: int = 0
    self_ns: int = 0
    gpu_ns: int = 0

    def __add__(self, other: _Cell) -> _Cell:
        return _Cell(self.calls + other.calls, self.self_ns + other.self_ns, self.gpu_ns + other.gpu_ns)


_Totals = dict[str, _Cell]


def diff_traces(
    base: Trace, head: Trace, *, step_name: str | None = None, rule: ProjectionRule = "process", warmup_steps: int = 0
) -> TraceDiff:
    """Split the difference of the mean step of two traces over their range paths. Options as in `analyze`."""
    sides = []
    for trace in (base, head):
        tree = range_tree(trace)
        sides.append((trace, tree, find_steps(trace, tree, step_name=step_name, warmup_steps=warmup_steps)))
    warnings = [f"{side}: {text}" for side, trace in (("base", base), ("head", head)) for text in trace.warnings]
    stepped = all(steps.name is not None and steps.kept.any() for _, _, steps in sides)
    if not stepped:
        sides = [(trace, tree, whole_capture(trace)) for trace, tree, _ in sides]
        warnings.append(
            "no steps in both traces: each rank's whole capture is compared, which must cover the same work"
        )
    totals = [_totals(trace, tree, steps, rule) for trace, tree, steps in sides]
    names = [steps.name for _, _, steps in sides]
    if stepped and names[0] != names[1]:
        totals = [_renamed(table, str(name)) for table, name in zip(totals, names, strict=True)]
        warnings.append(f"the steps are called {names[0]} and {names[1]}: both are shown as {STEP}")
    described = [_side(trace, steps) for trace, _, steps in sides]
    return TraceDiff(
        base=described[0],
        head=described[1],
        ranges=tuple(_parts(totals[0], totals[1], described[0].steps, described[1].steps)),
        warnings=tuple(warnings),
    )


def _side(trace: Trace, steps: Steps) -> DiffSide:
    kept = steps.kept
    return DiffSide(
        sources=trace.info.sources,
        ranks=len(trace.ranks),
        step=steps.name,
        steps=int(kept.sum()),
        dropped_steps=int((~kept).sum()),
        step_ns=float(steps.duration_ns[kept].mean()) if kept.any() else 0.0,
    )


def _totals(trace: Trace, tree: RangeTree, steps: Steps, rule: ProjectionRule) -> _Totals:
    """Sums by path over the kept steps; in whole captures of the busiest thread, with what it spent outside ranges."""
    tree = step_names_folded(tree, steps)
    links = link(trace, tree.nesting)
    projection = project(trace, tree.nesting, links, rule)
    capture = Capture(trace=trace, tree=tree, steps=steps, op_call=links.call, op_range=projection.owner)
    chosen = capture.kept_row(step_of_ranges(capture)) & ~tree.nesting.detached
    totals: _Totals = {}
    if not capture.has_steps:
        rows = np.flatnonzero(chosen)
        chosen[rows] = trace.ranges.global_tid[rows] == capture.row_threads[capture.range_row[rows]]
        outermost = chosen & (tree.nesting.parent == ROOT)
        covered = int((trace.ranges.end_ns - trace.ranges.start_ns)[outermost].sum())
        totals[OUTSIDE] = _Cell(calls=len(steps), self_ns=int(steps.duration_ns.sum()) - covered)
    path_of, paths = capture.step_paths
    rows = np.flatnonzero(chosen)
    columns = (path_of[rows], tree.nesting.self_ns[rows], own_gpu_ns(trace, projection)[rows])
    for path, self_ns, gpu_ns in zip(*(column.tolist() for column in columns), strict=True):
        totals[paths.text[path]] = totals.get(paths.text[path], _Cell()) + _Cell(1, self_ns, gpu_ns)
    return totals


def _renamed(totals: _Totals, step: str) -> _Totals:
    """The same with the step, with which every path begins, called `step`."""
    return {STEP + path.removeprefix(step): cell for path, cell in totals.items()}


def _parts(base: _Totals, head: _Totals, base_steps: int, head_steps: int) -> list[DiffPart]:
    per_base, per_head = max(base_steps, 1), max(head_steps, 1)
    parts = []
    for path in {**base, **head}:
        of_base, of_head = base.get(path, _Cell()), head.get(path, _Cell())
        parts.append(
            DiffPart(
                path=path,
                sides="both" if of_base.calls and of_head.calls else "base" if of_base.calls else "head",
                base_calls=of_base.calls / per_base,
                head_calls=of_head.calls / per_head,
                base_ns=of_base.self_ns / per_base,
                head_ns=of_head.self_ns / per_head,
                base_gpu_ns=of_base.gpu_ns / per_base,
                head_gpu_ns=of_head.gpu_ns / per_head,
            )
        )
    return sorted(parts, key=lambda part: (-abs(part.delta_ns), part.path))
