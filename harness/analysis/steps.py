"""The step table: for each rank, step and range path its calls, time and payloads; and what a typical step looks like.

The ranges of a step are those below its range, on its thread. The self times of one step add up to its duration
exactly, in ns (`harness.trace.nesting` says why). Payloads are marks (`harness.names`), added to the tightest
range around them. Paths begin at the step: `step/train_mode_enter/gc.collect`.

A cell is a (step, path) that occurs. Its number is found by numbering the distinct values of step × paths + path, and
every column of the table is then a sum by cell.

In comments, `ranges` is the number of all ranges, `rows` that of those within steps, and `cells` that of cells.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from harness import names
from harness.analysis.path_summary import PathSummary, path_summaries
from harness.analysis.step_finder import Steps, find_steps
from harness.measured import RangeRecord
from harness.trace.groups import summed
from harness.trace.model import FloatArray, Int64Array, Trace
from harness.trace.nesting import RangeTree, inherited, innermost, range_tree
from harness.trace.paths import ROOT, PathTable, path_table


@dataclass(frozen=True, kw_only=True, eq=False)
class StepTable:
    """The cells of the table, ordered by step (as in `steps`) and path (parents first)."""

    steps: Steps
    paths: PathTable
    step: Int64Array
    """Per cell: index into `steps`."""
    path: Int64Array
    """Per cell: index into `paths`."""
    calls: Int64Array
    total_ns: Int64Array
    self_ns: Int64Array
    moved_bytes: FloatArray
    """Per cell: sum of the marks' payloads; NaN where there was none."""
    collected_objects: FloatArray
    grown_bytes: FloatArray

    def rows(self) -> Iterator[RangeRecord]:
        """The cells as objects, dropped steps included."""
        for cell in range(len(self.step)):
            step = int(self.step[cell])
            yield RangeRecord(
                rank=int(self.steps.rank[step]),
                sequence=int(self.steps.index[step]),
                path=self.paths.text[int(self.path[cell])],
                calls=int(self.calls[cell]),
                total_ns=int(self.total_ns[cell]),
                self_ns=int(self.self_ns[cell]),
                moved_bytes=_whole(self.moved_bytes[cell]),
                collected_objects=_whole(self.collected_objects[cell]),
                grown_bytes=_whole(self.grown_bytes[cell]),
            )


def step_table(
    trace: Trace,
    *,
    step_name: str | None = None,
    warmup_steps: int = 0,
    tree: RangeTree | None = None,
    steps: Steps | None = None,
) -> StepTable:
    """Make the step table of `trace`. `tree` and `steps` spare finding them again; see `find_steps` for the options."""
    tree = tree if tree is not None else range_tree(trace)
    if steps is None:
        steps = find_steps(trace, tree, step_name=step_name, warmup_steps=warmup_steps)
    step_of = _step_of_ranges(trace, tree, steps)
    rows = np.flatnonzero(step_of != ROOT)  # (rows,) range
    path_of, paths = _paths_from_step(tree, steps, rows)
    # (cells,) number of the (step, path); (rows,) its cell
    cells, cell = np.unique(step_of[rows] * max(len(paths), 1) + path_of, return_inverse=True)
    duration_ns = (trace.ranges.end_ns - trace.ranges.start_ns)[rows]
    placed = ~tree.nesting.detached[rows]  # a detached range's time is its parent's too, and counts once
    cell_of_range = np.full(len(trace.ranges), ROOT, dtype=np.int64)
    cell_of_range[rows] = cell
    return StepTable(
        steps=steps,
        paths=paths,
        step=cells // max(len(paths), 1),
        path=cells % max(len(paths), 1),
        calls=np.bincount(cell, minlength=len(cells)),
        total_ns=summed(cell[placed], duration_ns[placed], len(cells)),
        self_ns=summed(cell, tree.nesting.self_ns[rows], len(cells)),
        moved_bytes=_payload_sums(trace, tree, names.MOVED_BYTES, cell_of_range, len(cells)),
        collected_objects=_payload_sums(trace, tree, names.COLLECTED_OBJECTS, cell_of_range, len(cells)),
        grown_bytes=_payload_sums(trace, tree, names.GROWN_BYTES, cell_of_range, len(cells)),
    )


def summarise(table: StepTable) -> list[PathSummary]:
    """A typical step, path by path in tree order: over the kept steps, each taken from its slowest rank.

    A path that a step lacks counts as zero there.
    """
    chosen = _slowest(table.steps)
    count = len(chosen)
    if not count:
        return []
    position = np.full(len(table.steps), ROOT, dtype=np.int64)
    position[chosen] = np.arange(count)
    used = np.flatnonzero(position[table.step] != ROOT)
    step, path = position[table.step[used]], table.path[used]
    # (figure, path, kept step): calls, ns, ns, bytes
    figures = np.zeros((4, len(table.paths), count))
    figures[3] = np.nan  # a step that said nothing is not one that moved nothing
    for layer, column in enumerate((table.calls, table.total_ns, table.self_ns, table.moved_bytes)):
        figures[layer, path, step] = column[used]
    calls, total_ns, self_ns, moved_bytes = figures
    whole_ns = float(table.steps.duration_ns[chosen].sum())
    order = table.paths.tree_order(np.arange(len(table.paths)))
    return path_summaries(table.paths, order, calls, total_ns, self_ns, moved_bytes=moved_bytes, whole_ns=whole_ns)


def _slowest(steps: Steps) -> Int64Array:
    """For each step index that is kept, the element of the rank that took longest (the lowest rank of equals)."""
    slowest: dict[int, int] = {}
    duration_ns = steps.duration_ns
    for element in np.flatnonzero(steps.kept).tolist():
        best = slowest.setdefault(int(steps.index[element]), element)
        if duration_ns[element] > duration_ns[best]:
            slowest[int(steps.index[element])] = element
    return np.array([slowest[index] for index in sorted(slowest)], dtype=np.int64)


def _step_of_ranges(trace: Trace, tree: RangeTree, steps: Steps) -> Int64Array:
    """The step that each range belongs to; ROOT for none. In a whole capture all ranges of the process do."""
    step_of = np.full(len(trace.ranges), ROOT, dtype=np.int64)
    if steps.name is None:
        rank_of = trace.rank_of(trace.ranges.global_tid)
        for element, rank in enumerate(steps.rank.tolist()):
            step_of[rank_of == rank] = element
        return step_of
    step_of[steps.range_row] = np.arange(len(steps))
    return inherited(tree.nesting, step_of)


def _paths_from_step(tree: RangeTree, steps: Steps, rows: Int64Array) -> tuple[Int64Array, PathTable]:
    """Paths of `rows` (ascending) from their step on, the step itself with its numbers folded."""
    index: dict[str, int] = {}
    name_of_path = np.array([index.setdefault(name, len(index)) for name in tree.paths.name], dtype=np.int32)
    name_rows = name_of_path[tree.path_id]
    parent = tree.nesting.parent.copy()
    if steps.name is not None:
        name_rows[steps.range_row] = index.setdefault(steps.name, len(index))
        parent[steps.range_row] = ROOT
    # Within the chosen rows: parents of chosen rows are chosen, up to the step.
    local = np.full(len(parent), ROOT, dtype=np.int64)  # (ranges,) position in `rows`
    local[rows] = np.arange(len(rows))
    above = parent[rows]
    path_of, paths = path_table(np.where(above == ROOT, ROOT, local[above]), name_rows[rows], tuple(index))
    return path_of.astype(np.int64), paths


def _payload_sums(trace: Trace, tree: RangeTree, mark: str, cell_of_range: Int64Array, cells: int) -> FloatArray:
    sums = np.full(cells, np.nan)
    wanted = {index for index, text in enumerate(trace.strings) if text == mark}
    marks = np.flatnonzero(np.isin(trace.marks.name_id, list(wanted)) & ~np.isnan(trace.marks.payload))
    # (marks,) the tightest range around each
    holder = innermost(trace.ranges, tree.nesting, trace.marks.global_tid[marks], trace.marks.time_ns[marks])
    inside = holder != ROOT
    cell = np.where(inside, cell_of_range[holder], ROOT)
    marks, cell = marks[cell != ROOT], cell[cell != ROOT]
    sums[cell] = 0.0
    np.add.at(sums, cell, trace.marks.payload[marks])
    return sums


def _whole(value: float) -> int | None:
    return None if np.isnan(value) else int(value)
