"""A finding: a fact about waste, with the rows that prove it, what it costs per step, and what to try."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from harness.analysis.capture import NONE, Capture
from harness.analysis.gpu_totals import NameTotal
from harness.trace.groups import summed
from harness.trace.model import NO_NAME, BoolArray, Int32Array, Int64Array
from harness.trace.naming import call_name

MAX_ROWS = 10
"""Rows of evidence a finding shows; its totals are over all."""


@dataclass(frozen=True, kw_only=True)
class EvidenceRow(NameTotal):
    """Ranges of one path, or calls or kernels of one name, that prove a finding. Totals over the kept steps."""

    bytes: int = 0


@dataclass(frozen=True, kw_only=True)
class Evidence:
    """What a finding rests on. All figures are totals over the kept steps of all ranks."""

    total_ns: int
    """The time that the finding counts."""
    steps: int
    """Over how many steps (of one rank each); 1 for each rank where the capture has no steps."""
    bytes: int = 0
    ranges: tuple[EvidenceRow, ...] = ()
    """By range path, most time first."""
    calls: tuple[EvidenceRow, ...] = ()
    """By name of the API call, kernel or copy, most time first."""
    figures: dict[str, float] = field(default_factory=dict)
    """What else is worth knowing; the unit is in the key."""


@dataclass(frozen=True, kw_only=True)
class Finding:
    """One kind of waste."""

    rule: str
    summary: str
    """One sentence with the figures."""
    advice: str
    """What to try."""
    ns_per_step: float
    """Mean over the kept steps and ranks. Findings overlap: their times must not be added up."""
    evidence: Evidence


def rows_by_path(
    capture: Capture, ranges: Int64Array, ns: Int64Array, sizes: Int64Array | None = None
) -> tuple[EvidenceRow, ...]:
    """Group by path from the step on. `ranges` holds the range of each piece of evidence (-1: none), `ns` its time."""
    path_of, paths = capture.step_paths
    chosen = np.full(len(ranges), len(paths), dtype=np.int64)
    chosen[ranges != NONE] = path_of[ranges[ranges != NONE]]
    return _rows([*paths.text, "(outside any range)"], chosen, ns, sizes)


def rows_by_name(capture: Capture, name_ids: Int32Array, ns: Int64Array) -> tuple[EvidenceRow, ...]:
    """Group by name of a kernel or API call: `name_ids` index the trace's strings."""
    found = _rows(capture.trace.strings, name_ids, ns, None)
    return tuple(replace(row, name=call_name(row.name)) for row in found)


def _rows(
    names: Sequence[str], keys: Int32Array | Int64Array, ns: Int64Array, sizes: Int64Array | None
) -> tuple[EvidenceRow, ...]:
    """Group by key, which indexes `names`; `NO_NAME` is a group of its own."""
    if not len(keys):
        return ()
    groups = keys - NO_NAME
    counts = np.bincount(groups)
    times = summed(groups, ns, len(counts))
    total = summed(groups, sizes, len(counts)) if sizes is not None else np.zeros(len(counts), dtype=np.int64)
    unique = np.flatnonzero(counts)
    return tuple(
        EvidenceRow(
            name=names[at + NO_NAME] if at else "?",
            calls=int(counts[at]),
            total_ns=int(times[at]),
            bytes=int(total[at]),
        )
        for at in unique[np.lexsort((unique, -times[unique]))][:MAX_ROWS].tolist()
    )


def kept(capture: Capture, rows: Int64Array, chosen: BoolArray) -> Int64Array:
    """Indexes of the events that are chosen and lie in a kept step."""
    found = np.flatnonzero(chosen)
    return found[capture.kept_row(rows[found])]
