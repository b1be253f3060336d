"""Makes series of what was measured: one for each key, since results of different keys are not comparable. Pure.

The key is the scenario's hash, the overrides, the machine, the collector and the harness version, and whether the time
is from a run or a duel: a side of a duel shares its machine with the other side, a run has it alone.

A point is one run, or one side of a duel: the mean step, which is the total that users pay over steps, and beside it
the typical step, the median over launches of the median step; both on the slowest rank. Changes of level are looked for
in both, since the mean sees what comes at every Nth step and the median is quieter. Points of a series stand in the
order of their commits where the repository knows them all, otherwise in the order they were measured.
"""

from __future__ import annotations

import itertools
import json
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from statistics import fmean, median
from typing import Any, ClassVar, Final, Literal

import numpy as np

from harness.scenario import measured
from harness.stats.changepoints import MIN_POINTS, ChangePoint, change_points
from harness.stats.estimands import PairDifference, pair_differences
from harness.stats.paired import StepPairs, UnusableError
from harness.stats.variance_prior import Suspicion, confirmed, suspicion
from harness.store.timeline import Kind, MeasuredRecord

RUNNING: Final = "running"

Mark = Literal["", "suspicious", "confirmed", "refuted"]
"""A point above the prediction bound: alone, with a re-run of the same code that agrees, or with one that does not."""


@dataclass(frozen=True, kw_only=True, order=True)
class Key:
    """What two step times must agree in to be comparable."""

    kind: Kind
    machine: str
    collector: str
    interleave: str
    harness_version: str
    scenario_hash: str
    overrides: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class Point:
    """One measurement of one body of code."""

    id: str
    side: str
    started_at: str
    subject: str
    revision: str | None
    dirty: bool | None
    code: str
    """Equal for equal code: the revision, and what was uncommitted."""
    step_ns: float
    """Mean: total over steps."""
    median_ns: float
    launches: int
    steps: int
    mark: Mark = ""


@dataclass(frozen=True, kw_only=True)
class Level:
    """A stretch of points without a change, by their indexes."""

    first: int
    last: int
    mean_ns: float
    median_ns: float
    """Of the medians of its points: the typical step."""


@dataclass(frozen=True, kw_only=True)
class LevelChange(ChangePoint):
    """A change of level: `ratio` and `p` are of the mean step, or of the typical step where the mean shows none."""

    typical: bool


@dataclass(frozen=True, kw_only=True)
class Series:
    """Comparable points, oldest first."""

    ALSO_IN_DOCUMENT: ClassVar = ("levels", "creep", "typical_creep")

    key: Key
    cpu_model: str
    scenario_keys: Mapping[str, str]
    """Of the scenario, what differs from the newest series: dotted key to its value here. Empty for the same hash."""
    points: tuple[Point, ...]
    by_commit: bool
    """Whether the order is that of the commits; that of the measurements otherwise."""
    changes: tuple[LevelChange, ...]
    baseline_ns: float | None
    """Mean step of the pinned baseline in this series (median of its points); None where it was not measured here."""
    baseline_median_ns: float | None

    @property
    def levels(self) -> list[Level]:
        """The stretches between changes."""
        edges = [0, *(change.index for change in self.changes), len(self.points)]
        return [
            Level(
                first=a,
                last=b - 1,
                mean_ns=fmean(point.step_ns for point in self.points[a:b]),
                median_ns=fmean(point.median_ns for point in self.points[a:b]),
            )
            for a, b in itertools.pairwise(edges)
        ]

    @property
    def creep(self) -> float | None:
        """The last level over the pinned baseline, head/base; None without one."""
        return None if self.baseline_ns is None else self.levels[-1].mean_ns / self.baseline_ns

    @property
    def typical_creep(self) -> float | None:
        """The same of the typical step."""
        return None if self.baseline_median_ns is None else self.levels[-1].median_ns / self.baseline_median_ns


@dataclass(frozen=True, kw_only=True)
class DuelPoint:
    """What a duel of two bodies of code found. Ratios are head/base, means over its launch pairs; not a verdict."""

    id: str
    started_at: str
    base: str
    head: str
    ratio: float | None
    """Of the total, as the verdict has it (`stats.estimands`); None where that cannot be judged."""
    typical_ratio: float | None
    pairs: int
    status: str
    """A duel that is `running` is shown with the launch pairs it has so far, and is no point of a series yet."""


@dataclass(frozen=True, kw_only=True)
class ScenarioHistory:
    """Everything stored about a scenario. `failed` are the runs and duels without a measured step.

    `running` are the duels under way, or whose process was killed: they may get more launch pairs (`--resume`).
    """

    scenario: str
    series: tuple[Series, ...]
    duels: tuple[DuelPoint, ...]
    """Duels of two bodies of code, newest first."""
    failed: tuple[MeasuredRecord, ...]
    running: tuple[str, ...]
    baseline: str | None
    notes: tuple[str, ...]


def code_label(subject: str, revision: str | None, dirty: bool | None, overrides: Sequence[str] = ()) -> str:
    """Return what a person would call a body of code: its short hash, what was changed, and its overrides."""
    name = subject if revision is None else revision[:10] + (" with changes" if dirty else "")
    return " ".join([name, *overrides])


def scenario_history(
    scenario: str,
    measured: Sequence[MeasuredRecord],
    *,
    order: Mapping[str, int] | None = None,
    baseline: str | None = None,
) -> ScenarioHistory:
    """Return the series of a scenario, the most recently measured first.

    `order` gives the place of each revision in history; `baseline` is the pinned revision.
    """
    grouped: dict[Key, list[MeasuredRecord]] = {}
    for record in measured:
        if record.launches_ns and record.status != RUNNING:
            grouped.setdefault(_key(record), []).append(record)
    newest = sorted(grouped.items(), key=lambda item: (item[1][-1].started_at, item[0]), reverse=True)
    notes: list[str] = []
    reference = newest[0][1][-1].scenario_document if newest else {}
    series = tuple(_series(key, records, order or {}, baseline, reference) for key, records in newest)
    if baseline is not None and not any(one.baseline_ns is not None for one in series):
        short = baseline[:12]
        notes.append(f"the pinned baseline {short} was never measured: stepduel compare {scenario} {short}")
    return ScenarioHistory(
        scenario=scenario,
        series=series,
        duels=tuple(_duels(measured)),
        failed=tuple(record for record in measured if not record.launches_ns and record.status != RUNNING),
        running=tuple(dict.fromkeys(record.id for record in measured if record.status == RUNNING)),
        baseline=baseline,
        notes=tuple(notes),
    )


def _duels(measured: Sequence[MeasuredRecord]) -> Iterator[DuelPoint]:
    heads = {record.id: record for record in measured if record.side == "head"}
    bases = [record for record in measured if record.side == "base"]
    for base in sorted(bases, key=lambda record: (record.started_at, record.id), reverse=True):
        head = heads[base.id]
        differences = _differences(base, head)
        yield DuelPoint(
            id=base.id,
            started_at=base.started_at,
            base=code_label(base.subject, base.revision, base.dirty, base.overrides),
            head=code_label(head.subject, head.revision, head.dirty, head.overrides),
            ratio=math.exp(fmean(one.total for one in differences)) if differences else None,
            typical_ratio=math.exp(fmean(one.typical for one in differences)) if differences else None,
            pairs=len(base.launches_ns),
            status=base.status,
        )


def _differences(base: MeasuredRecord, head: MeasuredRecord) -> list[PairDifference]:
    pairs = [
        StepPairs(base_ns=np.array([base_ns], float).T, head_ns=np.array([head_ns], float).T)
        for base_ns, head_ns in zip(base.launches_ns, head.launches_ns, strict=True)
    ]
    try:
        return pair_differences(pairs)
    except UnusableError:
        return []


def _key(record: MeasuredRecord) -> Key:
    return Key(
        kind=record.kind,
        machine=record.machine,
        collector=record.collector,
        interleave=record.interleave,
        harness_version=record.harness_version,
        scenario_hash=record.scenario_hash,
        overrides=record.overrides,
    )


def _series(
    key: Key,
    records: Sequence[MeasuredRecord],
    order: Mapping[str, int],
    baseline: str | None,
    reference: Mapping[str, Any],
) -> Series:
    by_commit = all(record.revision in order for record in records)
    points = [_point(record) for record in records]
    if by_commit:
        points.sort(key=lambda point: (order[point.revision or ""], bool(point.dirty), point.started_at))
    pinned = [point for point in points if baseline is not None and baseline == point.revision and not point.dirty]
    return Series(
        key=key,
        cpu_model=records[-1].cpu_model,
        scenario_keys=_differing(records[-1].scenario_document, reference),
        points=tuple(replace(point, mark=_mark(points, index)) for index, point in enumerate(points)),
        by_commit=by_commit,
        changes=tuple(_changes(points)),
        baseline_ns=median(point.step_ns for point in pinned) if pinned else None,
        baseline_median_ns=median(point.median_ns for point in pinned) if pinned else None,
    )


def _changes(points: Sequence[Point]) -> list[LevelChange]:
    """Those of the mean step, and those of the typical step that are none of the mean's (docs/decisions.md)."""
    paid, typical = (change_points(values) for values in zip(*((p.step_ns, p.median_ns) for p in points), strict=True))
    found = [LevelChange(**asdict(change), typical=False) for change in paid]
    for change in typical:
        if all(abs(change.index - other.index) >= MIN_POINTS for other in paid):
            found.append(LevelChange(**asdict(change), typical=True))
    return sorted(found, key=lambda change: change.index)


def _differing(document: Mapping[str, Any], reference: Mapping[str, Any]) -> dict[str, str]:
    """Return the keys of a scenario that shape what is measured and differ from those of `reference`, with values."""
    own, other = (dict(_flat(measured(one))) for one in (document, reference))
    keys = sorted(key for key in {*own, *other} if own.get(key) != other.get(key))
    return {key: own.get(key, "not set") for key in keys}


def _flat(document: Mapping[str, Any], above: str = "") -> Iterator[tuple[str, str]]:
    """Yield dotted keys and values."""
    for key, value in document.items():
        dotted = f"{above}.{key}" if above else key
        if isinstance(value, Mapping):
            yield from _flat(value, dotted)
        else:
            yield dotted, json.dumps(value, sort_keys=True)


def _point(record: MeasuredRecord) -> Point:
    # What a dirty run's changes were is not stored, so it is code of its own.
    changes = record.changes or (record.id if record.dirty or record.revision is None else "")
    return Point(
        id=record.id,
        side=record.side,
        started_at=record.started_at,
        subject=record.subject,
        revision=record.revision,
        dirty=record.dirty,
        code=f"{record.revision} {changes}",
        step_ns=fmean(itertools.chain.from_iterable(record.launches_ns)),
        median_ns=median(median(launch) for launch in record.launches_ns),
        launches=len(record.launches_ns),
        steps=sum(map(len, record.launches_ns)),
    )


def _mark(points: Sequence[Point], index: int) -> Mark:
    """Hold a point against those before it, and if it is odd, against the next measurement of the same code."""
    point = points[index]
    earlier = [other.step_ns for other in points[:index] if other.code != point.code]
    if suspicion(point.step_ns, earlier) is not Suspicion.SUSPICIOUS:
        return ""
    again = next((other for other in points if other.code == point.code and other is not point), None)
    if again is None:
        return "suspicious"
    agrees = confirmed(point.step_ns, again.step_ns, earlier) is Suspicion.SUSPICIOUS
    return "confirmed" if agrees else "refuted"
