"""Finds the steps of a trace: a range by name, our worker's own, or the repeated outermost range of a foreign trace.

A foreign trace says nowhere what its step is. Candidates are names (numbers folded) that repeat on one thread, in
groups of (name, thread) of which only the outermost calls count. The best is the first of: named like a step, numbered,
repeating; among equals the one least deep, then the one with most time. The order and the thresholds are ours.

In comments, `ranges` is the number of ranges, `rows` that of candidates, `groups` that of (name, thread)s.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import Final

import numpy as np

from harness import names
from harness.errors import TraceError, closest
from harness.trace import naming, schema
from harness.trace.groups import folded, summed
from harness.trace.model import NO_NAME, NO_RANK, BoolArray, Int32Array, Int64Array, Trace
from harness.trace.nesting import RangeTree, inherited
from harness.trace.paths import ROOT

WARM_UP: Final = "warm-up"
TRUNCATED: Final = "truncated"
"""The trace holds no end of the step: the capture or the process ended first."""
INCOMPLETE: Final = "incomplete"
"""Another rank's step of this index is missing or truncated."""
OUTLYING_FIRST: Final = "outlying first step"

_FIRST_STEP_FACTOR: Final = 2.0
"""A first step longer than this many median steps is left out: it compiles, allocates and fills caches."""
_LEAST_SHARE: Final = 0.01
"""Of its thread's time, below which a range is no step whatever it is called: `GetInputMemoryBatch`."""
_STEP_WORD: Final = re.compile(r"(?<![a-z])(?:step|iter|iteration|batch)(?![a-z])")
_NOT_A_STEP: Final = re.compile(r"optim|zero_grad|norm")


@dataclass(frozen=True, kw_only=True, eq=False)
class Steps:
    """One element a rank and step, ordered by rank, then by time."""

    name: str | None
    """Name of the step's range with numbers folded (`training_step_*`); None when each rank's capture is one step."""
    rank: Int32Array
    index: Int64Array
    """Position among the steps of its rank, from 0, dropped ones counted; in our worker's traces its number in the
    launch, however late the trace begins."""
    start_ns: Int64Array
    end_ns: Int64Array
    global_tid: Int64Array
    """The thread that ran it; for a whole capture, the process."""
    range_row: Int64Array
    """Row of its range; ROOT for a whole capture."""
    dropped: tuple[str | None, ...]
    """Why a step is left out of the figures; None for one that is kept."""

    def __len__(self) -> int:
        return len(self.rank)

    @property
    def duration_ns(self) -> Int64Array:
        return self.end_ns - self.start_ns

    @property
    def kept(self) -> BoolArray:
        return np.array([reason is None for reason in self.dropped], dtype=np.bool_)


def find_steps(trace: Trace, tree: RangeTree, *, step_name: str | None = None, warmup_steps: int = 0) -> Steps:
    """The steps of `trace`, with those to leave out marked.

    With `step_name`, the ranges of that name (numbers folded; TraceError, with the nearest name, when there is none).
    Without, our worker's `step` ranges, or else the outermost range that repeats and looks like a step: it is named
    like one, or its names differ by a number, or its repetitions fill half of its thread's time. Where nothing does,
    the whole capture of each rank is one step.

    Steps whose index is below `warmup_steps` are dropped. Steps that have no end, steps that some rank lacks and, in
    traces that are not our worker's, a first step far longer than the others are dropped too.
    """
    folded_rows, folded_names = _folded_names(tree)
    own = _own_steps(trace)
    if step_name is not None:
        chosen = _named(folded_rows, folded_names, step_name)
        name = naming.folded(step_name)
    elif bool(own.any()):
        chosen, name = own, names.STEP
    else:
        found = _repeated(trace, tree, folded_rows, folded_names)
        if found is None:
            return whole_capture(trace)
        chosen, name = folded_rows == found, folded_names[found]
    steps = _in_order(trace, tree, chosen, name)
    if step_name is None and bool(own.any()):
        steps = _numbered_by_launch(trace, steps)
    return _with_reasons(trace, steps, warmup_steps, foreign=not bool(own.any()))


def worker_steps(trace: Trace, tree: RangeTree, *, warmup_steps: int = 0) -> Steps:
    """The steps of our own worker's trace, those below `warmup_steps` dropped.

    Raises TraceError when the worker recorded no step.
    """
    steps = find_steps(trace, tree, warmup_steps=warmup_steps)
    if steps.name != names.STEP:
        raise TraceError(f"{', '.join(trace.info.sources)}: no {names.STEP!r} range was recorded")
    return steps


def whole_capture(trace: Trace) -> Steps:
    """Each rank's whole capture as one step: from the first to the last of its events."""
    spans: list[tuple[int, int, int, int]] = []
    for process in trace.processes:
        if process.rank == NO_RANK:
            continue
        starts, ends = [], []
        for owner, start, end in (
            (trace.ranges.global_tid, trace.ranges.start_ns, trace.ranges.end_ns),
            (trace.api.global_tid, trace.api.start_ns, trace.api.end_ns),
            (trace.operations.global_pid, trace.operations.start_ns, trace.operations.end_ns),
        ):
            mine = np.flatnonzero(owner & schema.GLOBAL_PID_MASK == process.global_pid)
            if len(mine):
                starts.append(int(start[mine[0]]))
                ends.append(int(end[mine].max()))
        if starts:
            spans.append((process.rank, min(starts), max(ends), process.global_pid))
    columns = np.array(spans, dtype=np.int64).reshape(len(spans), 4)  # (ranks, 4): rank, ns, ns, process
    return Steps(
        name=None,
        rank=columns[:, 0].astype(np.int32),
        index=np.zeros(len(spans), dtype=np.int64),
        start_ns=columns[:, 1],
        end_ns=columns[:, 2],
        global_tid=columns[:, 3],
        range_row=np.full(len(spans), ROOT, dtype=np.int64),
        dropped=(None,) * len(spans),
    )


def _folded_names(tree: RangeTree) -> tuple[Int32Array, tuple[str, ...]]:
    index: dict[str, int] = {}
    of_path = [index.setdefault(naming.folded(name), len(index)) for name in tree.paths.name]
    return np.array(of_path, dtype=np.int32)[tree.path_id], tuple(index)


def _own_steps(trace: Trace) -> BoolArray:
    ranges = trace.ranges
    wanted = [index for index, text in enumerate(trace.strings) if text in (names.STEP, names.NVTX_DOMAIN)]
    by_text = {trace.strings[index]: index for index in wanted}
    step, domain = by_text.get(names.STEP, NO_NAME), by_text.get(names.NVTX_DOMAIN, NO_NAME)
    if NO_NAME in (step, domain):
        return np.zeros(len(ranges), dtype=np.bool_)
    own: BoolArray = (ranges.name_id == step) & (ranges.domain_id == domain)
    return own


def _named(folded_rows: Int32Array, folded_names: tuple[str, ...], step_name: str) -> BoolArray:
    wanted = naming.folded(naming.range_name(step_name))
    if wanted not in folded_names:
        raise TraceError(f"no range is called {step_name!r} in this trace.{closest(wanted, folded_names)}")
    chosen: BoolArray = folded_rows == folded_names.index(wanted)
    return chosen


def _repeated(trace: Trace, tree: RangeTree, folded_rows: Int32Array, folded_names: tuple[str, ...]) -> int | None:
    """The folded name that repeats on a thread and looks most like a step; None when none does."""
    ranges, nesting = trace.ranges, tree.nesting
    rows = np.flatnonzero((trace.rank_of(ranges.global_tid) != NO_RANK) & ~nesting.detached)
    if not len(rows):
        return None
    threads, thread = np.unique(ranges.global_tid[rows], return_inverse=True)
    # (groups,) name × threads + thread; (rows,) its group
    keys, group = np.unique(folded_rows[rows] * len(threads) + thread, return_inverse=True)
    depth = folded(np.minimum, group, nesting.depth[rows].astype(np.int64), len(keys), np.iinfo(np.int32).max)
    # Of each name on each thread, only its outermost calls: a step inside a step is none.
    outer = nesting.depth[rows] == depth[group]
    rows, thread, group = rows[outer], thread[outer], group[outer]
    duration_ns = (ranges.end_ns - ranges.start_ns)[rows]  # (rows,), from here on the outermost calls alone
    total_ns = summed(group, duration_ns, len(keys))
    first_ns = folded(np.minimum, thread, ranges.start_ns[rows], len(threads), np.iinfo(np.int64).max)
    last_ns = folded(np.maximum, thread, ranges.end_ns[rows], len(threads), np.iinfo(np.int64).min)
    best: tuple[int, int, int, int] | None = None
    for one in np.flatnonzero(np.bincount(group, minlength=len(keys)) >= 2).tolist():
        name, owner = divmod(int(keys[one]), len(threads))
        extent_ns = int(last_ns[owner] - first_ns[owner])
        if total_ns[one] < _LEAST_SHARE * extent_ns:
            continue
        likeness = _named_like_a_step(folded_names[name])
        if likeness is None and 2 * total_ns[one] >= extent_ns:
            calls = group == one
            likeness = _repeats_like_a_step(duration_ns[calls], numbered=len(set(tree.path_id[rows[calls]])) > 1)
        if likeness is not None:
            candidate = (likeness, int(depth[one]), -int(total_ns[one]), name)
            best = candidate if best is None else min(best, candidate)
    return None if best is None else best[-1]


def _named_like_a_step(folded_name: str) -> int | None:
    """0 when the name says that it is a step; None when it does not."""
    spelt_apart = re.sub(r"(?<=[a-z])(?=[A-Z])", "_", folded_name).lower()
    return 0 if _STEP_WORD.search(spelt_apart) and not _NOT_A_STEP.search(spelt_apart) else None


def _repeats_like_a_step(duration_ns: Int64Array, *, numbered: bool) -> int | None:
    """1 or 2 when a range that fills its thread may be a step; None when a few of its calls make up its time."""
    if 2 * np.median(duration_ns) < duration_ns.mean():
        return None
    return 1 if numbered else 2


def _in_order(trace: Trace, tree: RangeTree, chosen: BoolArray, name: str) -> Steps:
    """The outermost chosen ranges of the one thread of each rank that has most of them."""
    ranges, parent = trace.ranges, tree.nesting.parent
    # (ranges,) the tightest chosen range, the range itself included; ROOT for none
    around = inherited(tree.nesting, np.where(chosen, np.arange(len(ranges)), ROOT))
    inside = (parent != ROOT) & (around[parent] != ROOT)
    rank_of = trace.rank_of(ranges.global_tid)
    rows = np.flatnonzero(chosen & ~inside & ~tree.nesting.detached & (rank_of != NO_RANK))
    kept: list[Int64Array] = []
    for rank in np.unique(rank_of[rows]).tolist():
        own = rows[rank_of[rows] == rank]
        _, thread, counts = np.unique(ranges.global_tid[own], return_inverse=True, return_counts=True)
        kept.append(own[thread == int(np.argmax(counts))])
    ordered = np.concatenate(kept) if kept else np.empty(0, dtype=np.int64)
    return Steps(
        name=name,
        rank=rank_of[ordered],
        index=np.concatenate([np.arange(len(own)) for own in kept]) if kept else np.empty(0, dtype=np.int64),
        start_ns=ranges.start_ns[ordered],
        end_ns=ranges.end_ns[ordered],
        global_tid=ranges.global_tid[ordered],
        range_row=ordered,
        dropped=(None,) * len(ordered),
    )


def _numbered_by_launch(trace: Trace, steps: Steps) -> Steps:
    """The worker gives each step's range its number in the launch as payload; without, steps keep their positions."""
    number = trace.ranges.payload[steps.range_row]
    return replace(steps, index=number.astype(np.int64)) if bool(np.isfinite(number).all()) else steps


def _with_reasons(trace: Trace, steps: Steps, warmup_steps: int, *, foreign: bool) -> Steps:
    closed = trace.ranges.closed[steps.range_row]
    ranks = len(np.unique(steps.rank))
    _, number = np.unique(steps.index, return_inverse=True)  # (steps,) the same for all ranks' steps of an index
    whole = np.bincount(number[closed], minlength=len(steps))
    reasons: list[str | None] = []
    for index, ended, ended_on in zip(steps.index.tolist(), closed.tolist(), whole[number].tolist(), strict=True):
        if not ended:
            reasons.append(TRUNCATED)
        elif index < warmup_steps:
            reasons.append(WARM_UP)
        elif ended_on < ranks:
            reasons.append(INCOMPLETE)
        else:
            reasons.append(None)
    steps = replace(steps, dropped=tuple(reasons))
    if foreign and warmup_steps == 0 and _first_outlies(steps):
        reasons = [
            OUTLYING_FIRST if reason is None and index == 0 else reason
            for reason, index in zip(reasons, steps.index.tolist(), strict=True)
        ]
        steps = replace(steps, dropped=tuple(reasons))
    return steps


def _first_outlies(steps: Steps) -> bool:
    """Whether the first step, on any rank, is far longer than the median of at least two others."""
    kept, duration_ns = steps.kept, steps.duration_ns
    for rank in np.unique(steps.rank).tolist():
        own = kept & (steps.rank == rank)
        first, others = duration_ns[own & (steps.index == 0)], duration_ns[own & (steps.index > 0)]
        if len(first) and len(others) >= 2 and first[0] > _FIRST_STEP_FACTOR * np.median(others):
            return True
    return False
