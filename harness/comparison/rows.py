"""What a report shows beside the comparison: every step, a median step of each side as a tree, and findings.

Steps and trees come from the results database. Findings and GPU figures come from the trace of one launch a side, where
it is still there; a report without them says so.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from harness import names
from harness.analysis.analyze import TraceAnalysis, analyze
from harness.comparison.result import Comparison
from harness.measured import TreeRange
from harness.store import SIDES, DuelRangeRecord, Duels, DuelStepRecord, SideName
from harness.trace.reader import read_trace

_ORDER: Final = (
    names.TRAIN_MODE_ENTER,
    names.EVAL_MODE_ENTER,
    names.TRAIN_BATCH,
    names.FORWARD_BACKWARD,
    names.FORWARD,
    names.OPTIMIZER_STEP,
    names.TRAIN_MODE_EXIT,
    names.EVAL_MODE_EXIT,
)
"""The order in which the worker's own ranges follow each other. The database keeps no start times."""


@dataclass(frozen=True, kw_only=True)
class StepTree:
    """The ranges of one step of one rank, depth first. `sequence` counts from the first warm-up step."""

    pair: int
    sequence: int
    rank: int
    ranges: tuple[TreeRange, ...]


@dataclass(frozen=True, kw_only=True)
class DuelRows:
    """The rows behind a comparison that its report draws."""

    steps: tuple[DuelStepRecord, ...]
    """Every step of every rank, warm-up included, by pair, step, side and rank."""
    trees: Mapping[SideName, StepTree]
    """A median step of each side, of its slowest rank; empty where nothing was traced."""
    analyses: Mapping[SideName, TraceAnalysis]
    """What a trace of each side says; only of sides whose trace was found."""
    traces: Mapping[SideName, str]
    """The trace that was analysed, as a path relative to the reports folder."""


def duel_rows(duels: Duels, comparison: Comparison, reports: Path) -> DuelRows:
    """Return what the database and the traces below `reports` hold about a comparison's duel."""
    steps = tuple(duels.steps(comparison.duel.id))
    traces = {side: found for side in SIDES if (found := _trace(comparison, reports, side)) is not None}
    warmup_steps = comparison.duel.warmup_steps
    analyses = {side: analyze(read_trace(path), warmup_steps=warmup_steps) for side, path in traces.items()}
    order = [item.path for analysis in analyses.values() for item in analysis.per_step]
    medians = {side: median_step(steps, side) for side in SIDES}
    trees = {
        side: tree_of(duels.step_ranges(comparison.duel.id, chosen), chosen, order)
        for side, chosen in medians.items()
        if chosen is not None
    }
    return DuelRows(
        steps=steps,
        trees={side: tree for side, tree in trees.items() if tree.ranges},
        analyses=analyses,
        traces={side: str(path.relative_to(reports)) for side, path in traces.items()},
    )


def median_step(steps: Iterable[DuelStepRecord], side: SideName) -> DuelStepRecord | None:
    """Return the measured step in the middle of a side's, each taken from its slowest rank; None without any."""
    slowest: dict[tuple[int, int], DuelStepRecord] = {}
    for step in steps:
        if step.side == side and step.measured:
            best = slowest.setdefault((step.pair, step.sequence), step)
            if step.duration_ns > best.duration_ns:
                slowest[step.pair, step.sequence] = step
    ordered = sorted(slowest.values(), key=lambda step: (step.duration_ns, step.pair, step.sequence))
    return ordered[(len(ordered) - 1) // 2] if ordered else None


def tree_of(ranges: Iterable[DuelRangeRecord], step: DuelStepRecord, order: Sequence[str] = ()) -> StepTree:
    """Return the ranges of `step`, depth first. Siblings follow `order`, then the worker's order, then the alphabet."""
    own = {record.path: record for record in ranges}
    place = {path: index for index, path in enumerate(dict.fromkeys(order))}
    children: dict[str | None, list[str]] = {}
    for path in own:
        children.setdefault(_parent(path, own), []).append(path)
    for siblings in children.values():
        siblings.sort(key=lambda path: (place.get(path, len(place)), _contract_place(path), path))
    return StepTree(pair=step.pair, sequence=step.sequence, rank=step.rank, ranges=tuple(_depth_first(own, children)))


def _depth_first(
    own: Mapping[str, DuelRangeRecord], children: Mapping[str | None, Sequence[str]]
) -> Iterator[TreeRange]:
    """Without recursion: a trace can be nested deeper than Python's stack."""
    waiting: list[tuple[str, str | None, int]] = [(path, None, 0) for path in reversed(children.get(None, []))]
    while waiting:
        path, parent, depth = waiting.pop()
        yield TreeRange(
            path=path,
            name=path if parent is None else path[len(parent) + len(names.PATH_SEPARATOR) :],
            depth=depth,
            total_ns=own[path].total_ns,
            self_ns=own[path].self_ns,
            calls=own[path].calls,
        )
        waiting.extend((child, path, depth + 1) for child in reversed(children.get(path, [])))


def _contract_place(path: str) -> int:
    name = path.rpartition(names.PATH_SEPARATOR)[2]
    return _ORDER.index(name) if name in _ORDER else len(_ORDER)


def _parent(path: str, known: Mapping[str, object]) -> str | None:
    """The longest other path that `path` continues: names may hold the separator themselves."""
    cut = path.rfind(names.PATH_SEPARATOR)
    while cut > 0:
        if path[:cut] in known:
            return path[:cut]
        cut = path.rfind(names.PATH_SEPARATOR, 0, cut)
    return None


def _trace(comparison: Comparison, reports: Path, side: SideName) -> Path | None:
    """The trace of a side that explains most: of the launch pair made for it, else of the first pair that kept one."""
    duel = comparison.duel
    named = (duel.explanation or {}).get(f"{side}_trace")
    candidates = [] if named is None else [reports / str(named)]
    if duel.logs is not None:
        folders = [reports / duel.logs / f"pair{pair.number:02d}" / side for pair in comparison.pairs]
        candidates += [folder / "trace.sqlite" for folder in folders]
    return next((path for path in candidates if path.is_file()), None)
