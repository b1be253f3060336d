"""What the results database holds of one scenario over time: step times of every run and of both sides of duels."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import groupby
from operator import itemgetter
from typing import Any, Literal

from harness.store.database import Store

Kind = Literal["run", "duel"]

# The slowest rank of a step is its time. A launch is one of a run, or one of a side of a duel's launch pair.
_RUN_STEPS = """
    select run_id as id, '' as side, 0 as launch, sequence, max(duration_ns) as duration_ns
    from steps join runs on runs.id = run_id where scenario = ? and measured
    group by run_id, sequence order by run_id, sequence"""
_DUEL_STEPS = """
    select duel_id as id, side, pair as launch, sequence, max(duration_ns) as duration_ns
    from duel_steps join duels on duels.id = duel_id where scenario = ? and kind != 'overhead' and measured
    group by duel_id, side, pair, sequence order by duel_id, side, pair, sequence"""
_RUNS = """
    select runs.*, machine, cpu_model from runs join environments on environments.id = environment_id
    where scenario = ? order by started_at, runs.id"""
_DUELS = """
    select duels.*, machine, cpu_model from duels join environments on environments.id = environment_id
    where scenario = ? and kind != 'overhead' order by started_at, duels.id"""


@dataclass(frozen=True, kw_only=True)
class MeasuredRecord:
    """One run, or one side of a duel, with the times of its measured steps in ns, launch by launch."""

    id: str
    kind: Kind
    side: str
    """`base` or `head` of a duel; empty for a run."""
    started_at: str
    subject: str
    revision: str | None
    dirty: bool | None
    changes: str | None
    """Hash over what was uncommitted; None where it is not known or nothing was."""
    overrides: tuple[str, ...]
    scenario_hash: str
    scenario_document: Mapping[str, Any]
    """The resolved scenario that the hash is of."""
    machine: str
    cpu_model: str
    collector: str
    interleave: str
    """`steps` or `blocks` for a duel; empty for a run."""
    harness_version: str
    status: str
    reason: str | None
    launches_ns: tuple[tuple[int, ...], ...]


class History:
    """Reads an open `Store`."""

    def __init__(self, store: Store) -> None:
        self.db = store.db

    def scenarios(self) -> list[str]:
        """Return the scenarios that anything is stored of, by name."""
        query = "select scenario from runs union select scenario from duels order by 1"
        return [row["scenario"] for row in self.db.query(query)]

    def measured(self, scenario: str) -> list[MeasuredRecord]:
        """Return every run and both sides of every duel of a scenario, oldest first; those of the same code once."""
        runs = _launches(self.db.query(_RUN_STEPS, [scenario]))
        duels = _launches(self.db.query(_DUEL_STEPS, [scenario]))
        found = [_run(row, runs.get((row["id"], ""), ())) for row in self.db.query(_RUNS, [scenario])]
        for row in self.db.query(_DUELS, [scenario]):
            # Both sides of a same-code duel are one measurement of that code, taken twice at once.
            for side in ("head",) if row["kind"] == "aa" else ("base", "head"):
                found.append(_side(row, side, duels.get((row["id"], side), ())))
        return sorted(found, key=lambda record: (record.started_at, record.id, record.side))


def _launches(rows: Iterator[dict[str, Any]]) -> dict[tuple[str, str], tuple[tuple[int, ...], ...]]:
    found: dict[tuple[str, str], list[tuple[int, ...]]] = {}
    for key, own in groupby(rows, key=itemgetter("id", "side", "launch")):
        found.setdefault((key[0], key[1]), []).append(tuple(row["duration_ns"] for row in own))
    return {key: tuple(launches) for key, launches in found.items()}


def _run(row: dict[str, Any], launches_ns: tuple[tuple[int, ...], ...]) -> MeasuredRecord:
    return MeasuredRecord(
        id=row["id"],
        kind="run",
        side="",
        started_at=row["started_at"],
        subject=row["subject"],
        revision=row["revision"],
        dirty=None if row["dirty"] is None else bool(row["dirty"]),
        changes=None,
        overrides=(),
        scenario_hash=row["scenario_hash"],
        scenario_document=json.loads(row["scenario_document"]),
        machine=row["machine"],
        cpu_model=row["cpu_model"],
        collector=row["collector"],
        interleave="",
        harness_version=row["harness_version"],
        status=row["status"],
        reason=row["reason"],
        launches_ns=launches_ns,
    )


def _side(row: dict[str, Any], side: str, launches_ns: tuple[tuple[int, ...], ...]) -> MeasuredRecord:
    subject = json.loads(row[side])
    return MeasuredRecord(
        id=row["id"],
        kind="duel",
        side=side,
        started_at=row["started_at"],
        subject=subject["subject"],
        revision=subject["revision"],
        dirty=subject["dirty"],
        changes=subject.get("changes"),
        overrides=tuple(subject.get("overrides", ())),
        scenario_hash=row["scenario_hash"],
        scenario_document=json.loads(row["scenario_document"]),
        machine=row["machine"],
        cpu_model=row["cpu_model"],
        collector=subject.get("collector", row["collector"]),
        interleave=row["interleave"],
        harness_version=row["harness_version"],
        status=row["status"],
        reason=row["reason"],
        launches_ns=launches_ns,
    )
