"""Ranges by path: sums over the whole capture, and a typical step.

The whole capture is a sum by path. A typical step is a table of paths × kept steps, filled by sums and then reduced
along the steps: a step that lacks a path is a zero in its row, and not a gap.

In comments, `ranges` is the number of ranges, `paths` that of paths and `steps` that of kept steps of all ranks.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from harness.analysis.capture import NONE, Capture
from harness.analysis.path_summary import PathSummary, path_summaries
from harness.measured import TreeRange
from harness.trace.groups import folded, summed
from harness.trace.model import FloatArray, Int32Array, Int64Array, Trace
from harness.trace.nesting import RangeTree, inherited
from harness.trace.projection import COPY_CLASSES, Projection


@dataclass(frozen=True, kw_only=True)
class CopyShare:
    """Copies of one direction and kind of host memory that belong to a path."""

    ALSO_IN_DOCUMENT: ClassVar = ("gb_per_s",)

    direction: str
    """`h2d`, `d2h`, `device` (within or between devices) or `other`."""
    memory: str | None
    """Of the host: `pageable`, `pinned` or `other`; None where the host has no part in it."""
    bytes: int
    total_ns: int
    """Sum of their durations."""

    @property
    def gb_per_s(self) -> float | None:
        """Bandwidth; None where they took no time."""
        return bandwidth([self])


@dataclass(frozen=True, kw_only=True)
class PathTotal(TreeRange):
    """All ranges of one path over the whole capture. GPU figures are sums over the calls, inclusive."""

    ALSO_IN_DOCUMENT: ClassVar = ("h2d_gb_per_s", "d2h_gb_per_s")

    calls: int
    total_ns: int
    self_ns: int
    median_ns: float
    """Of one call."""
    gpu_ns: int
    """Union within each call."""
    gpu_ops: int
    h2d_bytes: int
    d2h_bytes: int
    sync_ns: int
    """Time in synchronising API calls."""
    projected_ns: int
    """First start to last end of each call's GPU work, as NVIDIA projects a range."""
    launch_delay_ns: int
    """From the start of the launching call to the start of the operation, summed over the operations."""
    copies: tuple[CopyShare, ...]

    @property
    def h2d_gb_per_s(self) -> float | None:
        """Bandwidth of its copies to the device; None where there were none."""
        return bandwidth([copy for copy in self.copies if copy.direction == "h2d"])

    @property
    def d2h_gb_per_s(self) -> float | None:
        """The same of its copies to the host."""
        return bandwidth([copy for copy in self.copies if copy.direction == "d2h"])


def path_totals(trace: Trace, tree: RangeTree, projection: Projection) -> list[PathTotal]:
    """Sum all ranges by path, in tree order."""
    count = len(tree.paths)
    duration = trace.ranges.end_ns - trace.ranges.start_ns
    columns = [  # (paths,) each: ns, operations or bytes
        summed(tree.path_id, values, count)
        for values in (
            duration,
            tree.nesting.self_ns,
            projection.gpu_ns,
            projection.operations,
            projection.h2d_bytes,
            projection.d2h_bytes,
            projection.sync_ns,
            projection.projected_ns,
            projection.launch_delay_ns,
        )
    ]
    copies = _copies(tree, projection)
    calls = np.bincount(tree.path_id, minlength=count)
    medians = _medians(tree.path_id, duration, count)
    depth = tree.paths.depth
    totals = []
    for path in tree.paths.tree_order(-columns[0]):
        total, self_ns, gpu, ops, h2d, d2h, sync, projected, delay = (int(column[path]) for column in columns)
        totals.append(
            PathTotal(
                path=tree.paths.text[path],
                name=tree.paths.name[path],
                depth=depth[path],
                calls=int(calls[path]),
                total_ns=total,
                self_ns=self_ns,
                median_ns=float(medians[path]),
                gpu_ns=gpu,
                gpu_ops=ops,
                h2d_bytes=h2d,
                d2h_bytes=d2h,
                sync_ns=sync,
                projected_ns=projected,
                launch_delay_ns=delay,
                copies=copies.get(path, ()),
            )
        )
    return totals


def bandwidth(copies: Sequence[CopyShare]) -> float | None:
    """GB/s (10^9 bytes) of some copies together; None where they took no time."""
    time_ns = sum(copy.total_ns for copy in copies)
    return sum(copy.bytes for copy in copies) / time_ns if time_ns else None


def innermost_copies(ranges: Sequence[PathTotal]) -> list[tuple[PathTotal, CopyShare]]:
    """Copies by path, most bytes first, without those of a path that the paths directly below it account for.

    `ranges` are in tree order.
    """
    around: list[PathTotal] = []
    below: Counter[tuple[str, str, str | None]] = Counter()
    for total in ranges:
        del around[total.depth :]
        if around:
            below.update({(around[-1].path, copy.direction, copy.memory): copy.bytes for copy in total.copies})
        around.append(total)
    told = [
        (total, copy)
        for total in ranges
        for copy in total.copies
        if copy.bytes > below[total.path, copy.direction, copy.memory]
    ]
    return sorted(told, key=lambda pair: -pair[1].bytes)


def per_step(capture: Capture, projection: Projection) -> list[PathSummary]:
    """A typical step, siblings by first start: ranges of the step's thread, from its own range on.

    Without steps each rank's whole capture is one, with the ranges of all its threads.
    """
    if not capture.kept_count:
        return []
    trace, steps, nesting = capture.trace, capture.steps, capture.tree.nesting
    step_of = step_of_ranges(capture)
    rows = np.flatnonzero(capture.kept_row(step_of))
    path_of, paths = capture.step_paths
    path = path_of[rows]
    row_step = step_of[rows]
    column = (np.cumsum(capture.kept) - 1)[row_step]  # (ranges of kept steps,) position of its step among the kept
    duration = (trace.ranges.end_ns - trace.ranges.start_ns)[rows]
    shape = (len(paths), capture.kept_count)
    calls, total, self_ns, gpu = (  # (paths, steps) each; ns but for the calls
        _table(path, column, values, shape)
        for values in (np.ones(len(rows)), duration, nesting.self_ns[rows], projection.gpu_ns[rows])
    )
    from_step_ns = trace.ranges.start_ns[rows] - steps.start_ns[row_step]
    first = folded(np.minimum, path, from_step_ns, len(paths), np.iinfo(np.int64).max)
    return path_summaries(paths, paths.tree_order(first), calls, total, self_ns, gpu_ns=gpu)


def step_of_ranges(capture: Capture) -> Int64Array:
    """Per range: the step whose range it is or lies below; NONE for none."""
    if not capture.has_steps:
        return capture.range_row
    step_of = np.full(len(capture.trace.ranges), NONE, dtype=np.int64)
    step_of[capture.steps.range_row] = np.arange(len(capture.steps))
    return inherited(capture.tree.nesting, step_of)


def _copies(tree: RangeTree, projection: Projection) -> dict[int, tuple[CopyShare, ...]]:
    """By path, where there are any."""
    found: dict[int, tuple[CopyShare, ...]] = {}
    count = len(tree.paths)
    for at, copy_class in enumerate(COPY_CLASSES):
        if not projection.copy_bytes[:, at].any():
            continue
        size = summed(tree.path_id, projection.copy_bytes[:, at], count)
        time = summed(tree.path_id, projection.copy_ns[:, at], count)
        direction, _, memory = copy_class.partition(" ")
        for path in np.flatnonzero(size).tolist():
            share = CopyShare(
                direction=direction, memory=memory or None, bytes=int(size[path]), total_ns=int(time[path])
            )
            found[path] = (*found.get(path, ()), share)
    return found


def _table(path: Int32Array, column: Int64Array, values: FloatArray | Int64Array, shape: tuple[int, int]) -> FloatArray:
    cell = path.astype(np.int64) * shape[1] + column
    sums: FloatArray = np.bincount(cell, weights=values, minlength=shape[0] * shape[1]).astype(np.float64, copy=False)
    return sums.reshape(shape)


def _medians(groups: Int32Array, values: Int64Array, count: int) -> FloatArray:
    """The median of each group's values; 0 for an empty one."""
    order = np.lexsort((values, groups))
    ordered = values[order]  # (values,) each group's side by side, ascending
    sizes = np.bincount(groups, minlength=count)  # (count,), as what follows
    first = np.cumsum(sizes) - sizes
    medians = np.zeros(count)
    filled = sizes > 0
    low, high = first + (sizes - 1) // 2, first + sizes // 2
    medians[filled] = (ordered[low[filled]] + ordered[high[filled]]) / 2
    return medians
