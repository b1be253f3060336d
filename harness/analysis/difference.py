"""Two existing traces, range by range: where the difference of their steps lies.

A part is the self time of one path: time inside it and in none of its children. The parts of a step are its duration,
whole and without overlap, so their differences add up to the difference of the step. Figures are *means* over the kept
steps of all ranks: medians would not add up. A path that one side lacks took no time there.

Without steps on both sides, each rank's whole capture is one step: parts are then the ranges of its busiest thread, and
the time in which that thread was in no range is a part of its own.

This explains and does not judge. Two captures are two samples: what differs between them can be the code, or the day.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

import numpy as np

from harness.analysis.step_finder import Steps, find_steps, whole_capture
from harness.analysis.steps import step_table
from harness.names import STEP
from harness.trace import schema
from harness.trace.model import Trace
from harness.trace.nesting import ROOT, RangeTree, range_tree

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
    dropped: int
    step_ns: float
    """Mean duration."""


@dataclass(frozen=True, kw_only=True)
class DiffPart:
    """Self time of one path, mean per step."""

    path: str
    base_calls: float
    head_calls: float
    base_ns: float
    head_ns: float

    @property
    def delta_ns(self) -> float:
        return self.head_ns - self.base_ns

    @property
    def sides(self) -> str:
        """`both`, or the side that alone has it."""
        if self.base_calls and self.head_calls:
            return "both"
        return "base" if self.base_calls else "head"


@dataclass(frozen=True, kw_only=True)
class TraceDiff:
    """The difference of two traces in parts, largest first."""

    base: DiffSide
    head: DiffSide
    parts: tuple[DiffPart, ...]
    warnings: tuple[str, ...]

    @property
    def delta_ns(self) -> float:
        """The difference of the mean steps, which is the sum of the parts' differences."""
        return self.head.step_ns - self.base.step_ns


_Totals = dict[str, tuple[int, int]]
"""path → calls and self ns over the kept steps."""


def diff_traces(base: Trace, head: Trace, *, step_name: str | None = None) -> TraceDiff:
    """Split the difference of the mean step of two traces over their range paths."""
    sides = []
    for trace in (base, head):
        tree = range_tree(trace)
        sides.append((trace, tree, find_steps(trace, tree, step_name=step_name)))
    warnings = [f"{side}: {text}" for side, trace in (("base", base), ("head", head)) for text in trace.warnings]
    stepped = all(steps.name is not None and steps.kept.any() for _, _, steps in sides)
    if not stepped:
        sides = [(trace, tree, whole_capture(trace)) for trace, tree, _ in sides]
        warnings.append(
            "no steps in both traces: each rank's whole capture is compared, which must cover the same work"
        )
    totals = [_stepped(trace, tree, steps) if stepped else _whole(trace, tree, steps) for trace, tree, steps in sides]
    names = [steps.name for _, _, steps in sides]
    if stepped and names[0] != names[1]:
        totals = [_renamed(table, str(name)) for table, name in zip(totals, names, strict=True)]
        warnings.append(f"the steps are called {names[0]} and {names[1]}: both are shown as {STEP}")
    described = [_side(trace, steps) for trace, _, steps in sides]
    return TraceDiff(
        base=described[0],
        head=described[1],
        parts=tuple(_parts(totals[0], totals[1], described[0].steps, described[1].steps)),
        warnings=tuple(warnings),
    )


def _side(trace: Trace, steps: Steps) -> DiffSide:
    kept = steps.kept
    return DiffSide(
        sources=trace.info.sources,
        ranks=len(trace.ranks),
        step=steps.name,
        steps=int(kept.sum()),
        dropped=int((~kept).sum()),
        step_ns=float(steps.duration_ns[kept].mean()) if kept.any() else 0.0,
    )


def _stepped(trace: Trace, tree: RangeTree, steps: Steps) -> _Totals:
    table = step_table(trace, tree=tree, steps=steps)
    used = steps.kept[table.step]
    return _summed(
        (table.paths.text[path], calls, self_ns)
        for path, calls, self_ns in zip(
            table.path[used].tolist(), table.calls[used].tolist(), table.self_ns[used].tolist(), strict=True
        )
    )


def _whole(trace: Trace, tree: RangeTree, steps: Steps) -> _Totals:
    ranges, nesting = trace.ranges, tree.nesting
    duration = ranges.end_ns - ranges.start_ns
    totals: list[tuple[str, int, int]] = []
    for process, whole_ns in zip(steps.global_tid.tolist(), steps.duration_ns.tolist(), strict=True):
        outermost = (nesting.parent == ROOT) & ~nesting.detached
        own = np.flatnonzero(outermost & (ranges.global_tid & schema.GLOBAL_PID_MASK == process))
        covered = 0
        if len(own):
            threads, thread = np.unique(ranges.global_tid[own], return_inverse=True)
            by_thread = np.zeros(len(threads), dtype=np.int64)
            np.add.at(by_thread, thread.reshape(-1), duration[own])
            busiest = threads[int(by_thread.argmax())]
            covered = int(by_thread.max())
            rows = np.flatnonzero((ranges.global_tid == busiest) & ~nesting.detached)
            paths = tree.path_id[rows].tolist()
            totals += [(tree.paths.text[p], 1, ns) for p, ns in zip(paths, nesting.self_ns[rows].tolist(), strict=True)]
        totals.append((OUTSIDE, 1, whole_ns - covered))
    return _summed(totals)


def _summed(rows: Iterable[tuple[str, int, int]]) -> _Totals:
    totals: _Totals = {}
    for path, calls, self_ns in rows:
        before = totals.get(path, (0, 0))
        totals[path] = (before[0] + calls, before[1] + self_ns)
    return totals


def _renamed(totals: _Totals, step: str) -> _Totals:
    """The same with the step, with which every path begins, called `step`."""
    return {STEP + path.removeprefix(step): cell for path, cell in totals.items()}


def _parts(
    base: Mapping[str, tuple[int, int]], head: Mapping[str, tuple[int, int]], base_steps: int, head_steps: int
) -> list[DiffPart]:
    parts = []
    for path in {**base, **head}:
        base_calls, base_ns = base.get(path, (0, 0))
        head_calls, head_ns = head.get(path, (0, 0))
        parts.append(
            DiffPart(
                path=path,
                base_calls=base_calls / max(base_steps, 1),
                head_calls=head_calls / max(head_steps, 1),
                base_ns=base_ns / max(base_steps, 1),
                head_ns=head_ns / max(head_steps, 1),
            )
        )
    return sorted(parts, key=lambda part: (-abs(part.delta_ns), part.path))
