"""Traces and stored results as pandas DataFrames, for notebooks and scripts: `harness.load_trace` and its like.

The columns of a frame are the fields of the row it is made of, in their order and with their units in the name, so a
field that a row gets is a column the same day. `int` and `float` fields are `int64` and `float64`; what may be missing
is `Int64` or NaN; texts are `string`. docs/python.md lists them all, and a test holds the list.
"""

from __future__ import annotations

import types
import typing
from collections.abc import Iterable
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, Final

import pandas as pd

from harness import documents
from harness.analysis.analyze import analyze
from harness.analysis.findings.finding import Finding
from harness.analysis.gpu_totals import CopyTotal, NameTotal
from harness.analysis.path_summary import PathSummary
from harness.analysis.range_part import JudgedPart
from harness.analysis.range_totals import PathTotal
from harness.analysis.step_rows import DroppedStep, StepRow
from harness.analysis.steps import step_table
from harness.comparison import Pair, compare_stored
from harness.measured import RangeRecord
from harness.metrics import METRICS
from harness.store import DuelRangeRecord, DuelRecord, Duels, DuelStepRecord, RunRecord, StepRecord, open_results
from harness.trace.projection import ProjectionRule
from harness.trace.reader import read_trace
from harness.verdict import Verdict

_DTYPES: Final = {bool: "bool", int: "int64", float: "float64", str: "string"}


@dataclass(frozen=True, kw_only=True, eq=False)
class TraceFrames:
    """What `stepduel analyze` says of a trace. Figures are over the kept steps, except in `totals`."""

    steps: pd.DataFrame
    """The kept steps of each rank, with what the GPU did in them."""
    dropped_steps: pd.DataFrame
    """The steps that are left out, with the reason."""
    ranges: pd.DataFrame
    """All calls of a range path within one kept step of one rank, without GPU work."""
    per_step: pd.DataFrame
    """A typical step by range path, in tree order: medians over the kept steps of all ranks."""
    totals: pd.DataFrame
    """Sums over the whole capture by range path, in tree order, with its GPU work."""
    kernels: pd.DataFrame
    """Sums by kernel, most time first."""
    api: pd.DataFrame
    """Sums by CUDA API call, most time first."""
    copies: pd.DataFrame
    """Sums by direction of copy."""
    findings: pd.DataFrame
    """Waste, the costliest first; costs overlap."""


@dataclass(frozen=True, kw_only=True, eq=False)
class RunFrames:
    """A stored run of `stepduel bench`."""

    run: RunRecord
    steps: pd.DataFrame
    """Every step of every rank, those of the warm-up with `measured` false."""
    ranges: pd.DataFrame
    """All calls of a range path within one step of one rank."""


@dataclass(frozen=True, kw_only=True, eq=False)
class DuelFrames:
    """A stored duel of `stepduel compare`, its verdict computed again from the stored rows."""

    duel: DuelRecord
    verdict: Verdict
    pairs: pd.DataFrame
    """The launch pairs."""
    steps: pd.DataFrame
    """Every step of every rank of both sides."""
    ranges: pd.DataFrame
    """All calls of a range path within one measured step of a side, of the step's slowest rank."""
    attribution: pd.DataFrame
    """The difference of the mean step in parts that add up, by range path, largest first."""


def load_trace(
    *paths: str | Path, step: str | None = None, rule: ProjectionRule = "process", warmup_steps: int = 0
) -> TraceFrames:
    """Read one or several SQLite exports as one trace. Options are those of `stepduel analyze`.

    Raises TraceError for what is no export, or where no range is called `step`.
    """
    trace = read_trace(*paths, streams=False)
    found = analyze(trace, step_name=step, rule=rule, warmup_steps=warmup_steps)
    kept = {(row.rank, row.index) for row in found.kept_steps}
    ranges = [row for row in step_table(trace, steps=found.steps).rows() if (row.rank, row.sequence) in kept]
    return TraceFrames(
        steps=_frame(StepRow, found.kept_steps),
        dropped_steps=_frame(DroppedStep, found.dropped_steps),
        ranges=_frame(RangeRecord, ranges),
        per_step=_frame(PathSummary, found.per_step),
        totals=_frame(PathTotal, found.ranges),
        kernels=_frame(NameTotal, found.kernels),
        api=_frame(NameTotal, found.api),
        copies=_frame(CopyTotal, found.copies),
        findings=_frame(Finding, found.findings),
    )


def load_run(reports: str | Path = "reports", run_id: str | None = None) -> RunFrames:
    """Read a run from the results database in `reports`: the newest, or that of `run_id`. UsageError without one."""
    with open_results(Path(reports)) as store:
        run = store.run(run_id) if run_id is not None else store.newest_run()
        return RunFrames(
            run=run,
            steps=_frame(StepRecord, store.steps(run.id)),
            ranges=_frame(RangeRecord, store.ranges(run.id)),
        )


def load_duel(reports: str | Path = "reports", duel_id: str | None = None) -> DuelFrames:
    """Read a duel from the results database in `reports`: the newest, or that of `duel_id`. UsageError without one."""
    with open_results(Path(reports)) as store:
        duels = Duels(store)
        duel = duels.duel(duel_id) if duel_id is not None else duels.newest()
        comparison = compare_stored(duels, duel.id)
        parts = _frame(JudgedPart, comparison.ranges)
        bounds = [part.ci_ns or (float("nan"), float("nan")) for part in comparison.ranges]
        for at, column in enumerate(("ci_low_ns", "ci_high_ns")):
            parts[column] = pd.Series([bound[at] for bound in bounds], dtype="float64")
        return DuelFrames(
            duel=duel,
            verdict=comparison.verdict,
            pairs=_frame(Pair, comparison.pairs),
            steps=_frame(DuelStepRecord, duels.steps(duel.id)),
            ranges=_frame(DuelRangeRecord, duels.slowest_ranges(duel.id)),
            attribution=parts,
        )


def _frame(kind: type[Any], rows: Iterable[Any]) -> pd.DataFrame:
    """One column a figure or text of `kind`, and of a step one a metric; other mappings and tuples are left out."""
    held = list(rows)
    columns = {name: dtype for name in documents.names(kind) if (dtype := _dtype(_hint(kind, name))) is not None}
    values = {name: pd.Series([getattr(row, name) for row in held], dtype=dtype) for name, dtype in columns.items()}
    if issubclass(kind, StepRecord):
        for name in METRICS:
            values[name] = pd.Series([row.figures.get(name) for row in held], dtype="float64")
    return pd.DataFrame(values)


def _hint(kind: type[Any], name: str) -> Any:
    if name in {field.name for field in fields(kind)}:
        return typing.get_type_hints(kind)[name]
    return typing.get_type_hints(getattr(kind, name).fget)["return"]


def _dtype(hint: Any) -> str | None:
    """The dtype of a field's values; None where they are no single figure or text."""
    if typing.get_origin(hint) is typing.Literal:
        return "string"
    if typing.get_origin(hint) in (types.UnionType, typing.Union):
        (alone,) = [argument for argument in typing.get_args(hint) if argument is not type(None)]
        return "Int64" if alone is int else "boolean" if alone is bool else _dtype(alone)
    return _DTYPES.get(hint)
