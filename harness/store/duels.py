"""Duels in the results database: every step of every rank of every launch pair, with its slot and the conditions.

A verdict is not stored: `harness.comparison` computes it again from these rows and the rule the duel was made under. A
launch pair is one transaction, written when the pair ends, so that whatever interrupts a duel leaves whole pairs only.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from typing import Any, Final, Literal

from harness.environment import Environment
from harness.errors import UsageError
from harness.measured import MeasuredRange
from harness.store.database import StepRecord, Store, migrations, step_columns, with_columns, with_figures
from harness.store.sqlite import Database

DuelKind = Literal["compare", "aa", "overhead"]
DuelStatus = Literal["running", "completed", "failed", "interrupted"]
SideName = Literal["base", "head"]
SIDES: Final[tuple[SideName, SideName]] = ("base", "head")


@migrations()
def create_duels(db: Database) -> None:
    """Duels, their launch pairs, and the steps and ranges of both sides."""
    for statement in (
        """create table duels (
            id text primary key, kind text not null, started_at text not null, scenario text not null,
            scenario_hash text not null, scenario_document text not null, key text not null, base text not null,
            head text not null, environment_id text not null references environments(id), collector text not null,
            interleave text not null, ranks integer not null, warmup_steps integer not null, steps integer,
            seed integer not null, rule text not null, prior text, status text not null, reason text,
            objection text, detectable_effect real, device text, explanation text,
            harness_version text not null, logs text)""",
        "create index duels_by_scenario on duels(scenario, started_at)",
        # `order_seed` draws who steps first in each step pair; `conditions` are load, steal and clocks meanwhile.
        """create table duel_pairs (
            duel_id text not null references duels(id) on delete cascade, pair integer not null,
            started_at text not null, order_seed integer not null, starter text not null, start_ns integer not null,
            conditions text not null, base_launch text not null, head_launch text not null,
            primary key (duel_id, pair)) without rowid""",
        # `slot` is 0 for the side that stepped first in its step pair.
        """create table duel_steps (
            duel_id text not null references duels(id) on delete cascade, pair integer not null, side text not null,
            sequence integer not null, rank integer not null, slot integer not null, measured integer not null,
            began_ns integer not null, duration_ns integer not null, loss real, tokens integer,
            peak_memory_bytes integer, rss_bytes integer,
            primary key (duel_id, pair, side, sequence, rank)) without rowid""",
        """create table duel_ranges (
            duel_id text not null references duels(id) on delete cascade, pair integer not null, side text not null,
            sequence integer not null, rank integer not null, path_id integer not null references range_paths(id),
            calls integer not null, total_ns integer not null, self_ns integer not null,
            primary key (duel_id, pair, side, sequence, rank, path_id)) without rowid""",
    ):
        db.conn.execute(statement)


@migrations()
def tell_placement(db: Database) -> None:
    """Whether ranks kept to cores that both sides shared; in duels from before they did not."""
    db.conn.execute("alter table duels add column pinned integer not null default 0")


@migrations()
def keep_limits(db: Database) -> None:
    """How much worse head's metrics may be, as shares by metric; null where nobody gave limits."""
    db.conn.execute("alter table duels add column limits text")


@migrations()
def tell_turns(db: Database) -> None:
    """How long turns were, and what each side took alone; null where both stepped in turn and nothing was stopped."""
    db.conn.execute("alter table duel_pairs add column turns text")


@migrations()
def tell_growth(db: Database) -> None:
    """How much more a rank had allocated at the end of a range; null where nothing said so."""
    for table in ("ranges", "duel_ranges"):
        db.conn.execute(f"alter table {table} add column grown_bytes integer")


_DUEL_JSON = ("scenario_document", "base", "head", "rule", "limits", "prior", "objection", "explanation")
_PAIR_JSON = ("conditions", "base_launch", "head_launch", "turns")


@dataclass(frozen=True, kw_only=True)
class DuelRecord:
    """One duel. `key` is equal where launch pairs may be put together: the same code, scenario and machine."""

    id: str
    kind: DuelKind
    started_at: str
    scenario: str
    scenario_hash: str
    scenario_document: Mapping[str, Any]
    key: str
    base: Mapping[str, Any]
    """The subject of a side: name, revision, dirty, identity, overrides; `versions` once it has started."""
    head: Mapping[str, Any]
    environment_id: str
    collector: str
    interleave: str
    ranks: int
    warmup_steps: int
    steps: int | None
    """Measured steps of a launch; None until the first warm-up has shown what they cost."""
    seed: int
    rule: Mapping[str, Any]
    prior: Mapping[str, Any] | None
    status: DuelStatus
    reason: str | None
    objection: Mapping[str, Any] | None
    detectable_effect: float | None
    """The fraction that was told before measuring."""
    device: str | None
    explanation: Mapping[str, Any] | None
    """The traced pair beside the timed ones: `collector`, and `base_trace`, `head_trace` below the reports folder."""
    harness_version: str
    logs: str | None
    limits: Mapping[str, float] | None = None
    """How much worse each metric of head may be; None in a duel from before, which has the defaults."""
    pinned: bool = False
    """Whether ranks were to keep to cores that both sides share; a launch's `cores` say where they were."""


@dataclass(frozen=True, kw_only=True)
class PairRecord:
    """One launch pair. `starter` was started first; `start_ns` is how long both took to be ready."""

    pair: int
    started_at: str
    order_seed: int
    starter: SideName
    start_ns: int
    conditions: Mapping[str, Any]
    base_launch: Mapping[str, Any]
    head_launch: Mapping[str, Any]
    turns: Mapping[str, Any] | None = None
    """`steps` and `discarded` of a turn; `alone_base_ns` and `alone_head_ns`, times of the steps that each side made
    alone and that count; `parking_ns`, the median of what stopping a side took. None in blocks and in
    pairs from before."""

    @property
    def turn_steps(self) -> int:
        """Steps of a turn."""
        return int(self.turns["steps"]) if self.turns else 1


@dataclass(frozen=True, kw_only=True)
class DuelStepRecord(StepRecord):
    """One step of one rank of one side. `began_ns` is the coordinator's clock, from the start of the launch pair."""

    pair: int
    side: SideName
    slot: int
    """0 for the side whose turn came first of the two, 1 for the other."""
    began_ns: int


@dataclass(frozen=True, kw_only=True)
class DuelRangeRecord(MeasuredRange):
    """All calls of one range path within one measured step of one rank of one side."""

    pair: int
    side: SideName
    grown_bytes: int | None = None
    """How much more the rank had allocated at its end; None where that was not read (`worker.growth`)."""


class Duels:
    """Reads and writes the duels of an open `Store`."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self.db = store.db

    def add(self, duel: DuelRecord, environment: Environment) -> None:
        """Write a duel that is about to start."""
        with self.store.transaction():
            self.store.add_environment(environment)
            self.db.table("duels").insert(_packed(asdict(duel), _DUEL_JSON))

    def update(self, duel_id: str, **changes: Any) -> None:
        """Change columns of a duel: its status, or what only its first launches could tell."""
        with self.store.transaction():
            self.db.table("duels").update(duel_id, _packed(changes, _DUEL_JSON))

    def add_pair(
        self, duel_id: str, pair: PairRecord, steps: Iterable[DuelStepRecord], ranges: Iterable[DuelRangeRecord]
    ) -> None:
        """Write a launch pair whole or not at all."""
        with self.store.transaction():
            self.db.table("duel_pairs").insert({"duel_id": duel_id, **_packed(asdict(pair), _PAIR_JSON)})
            self.db.table("duel_steps").insert_all({"duel_id": duel_id, **with_columns(asdict(step))} for step in steps)
            rows = [asdict(record) for record in ranges]
            ids = self.store.path_ids({row["path"] for row in rows})
            self.db.table("duel_ranges").insert_all(
                {"duel_id": duel_id, "path_id": ids[row.pop("path")], **row} for row in rows
            )

    def duel(self, duel_id: str) -> DuelRecord:
        """Return one duel; UsageError when there is none of that id."""
        found = self.find(id=duel_id)
        if not found:
            raise UsageError(f"{self.store.path}: no duel {duel_id!r}")
        return found[0]

    def newest(self) -> DuelRecord:
        """Return the duel that was started last; UsageError when there is none."""
        found = self.find()
        if not found:
            raise UsageError(f"{self.store.path}: holds no duel yet; run stepduel compare")
        return found[0]

    def find(self, **equal: Any) -> list[DuelRecord]:
        """Return the duels whose columns equal what is given, newest first."""
        where = " and ".join(f"[{column}] = ?" for column in equal) or "1"
        rows = self.db["duels"].rows_where(where, list(equal.values()), order_by="started_at desc, id desc")
        return [_duel(row) for row in rows]

    def environment(self, duel_id: str) -> dict[str, Any]:
        """Return the row of the machine and software that the duel ran on, its JSON columns read."""
        row = next(
            self.db.query(
                "select environments.* from environments join duels on environment_id = environments.id "
                "where duels.id = ?",
                [duel_id],
            )
        )
        return _unpacked(row, ("gpus", "versions"))

    def pairs(self, duel_id: str) -> list[PairRecord]:
        """Return the launch pairs in the order they were made."""
        rows = self.db["duel_pairs"].rows_where("duel_id = ?", [duel_id], order_by="pair")
        return [PairRecord(**_without_duel(_unpacked(row, _PAIR_JSON))) for row in rows]

    def steps(self, duel_id: str) -> list[DuelStepRecord]:
        """Return every step by pair, step, side and rank."""
        columns = step_columns(DuelStepRecord)
        query = f"select {columns} from duel_steps where duel_id = ? order by pair, sequence, side, rank"
        return [DuelStepRecord(**with_figures(row)) for row in self.db.query(query, [duel_id])]

    def slowest_ranges(self, duel_id: str) -> list[DuelRangeRecord]:
        """Return the ranges of each step's slowest rank, of equal ranks the first, by pair, side, step and path.

        That rank's time is the step's, so only its ranges explain it; on many ranks most rows need not be read.
        """
        rows = self.db.query(
            """with of_rank as (
                select pair, side, sequence, rank, sum(self_ns) as ns from duel_ranges where duel_id = :duel
                group by pair, side, sequence, rank
            ), placed as (
                select pair, side, sequence, rank,
                    row_number() over (partition by pair, side, sequence order by ns desc, rank) as place
                from of_rank
            )
            select pair, side, sequence, rank, path, calls, total_ns, self_ns, grown_bytes
            from placed cross join duel_ranges using (pair, side, sequence, rank)
            join range_paths on range_paths.id = path_id
            where place = 1 and duel_id = :duel order by pair, side, sequence, path""",
            {"duel": duel_id},
        )
        return [DuelRangeRecord(**row) for row in rows]

    def growth(self, duel_id: str) -> dict[tuple[int, SideName, str], float]:
        """Return by launch pair, side and path how many bytes a step were allocated and kept, on the rank with most."""
        rows = self.db.query(
            """with of_rank as (
                select pair, side, path, rank, avg(grown_bytes) as grown_bytes
                from duel_ranges join range_paths on range_paths.id = path_id
                where duel_id = ? and grown_bytes is not null group by pair, side, path_id, rank
            )
            select pair, side, path, max(grown_bytes) as grown_bytes from of_rank group by pair, side, path""",
            [duel_id],
        )
        return {(row["pair"], row["side"], row["path"]): row["grown_bytes"] for row in rows}

    def step_ranges(self, duel_id: str, step: DuelStepRecord) -> list[DuelRangeRecord]:
        """Return the ranges of one step of one rank by path, without reading the others."""
        rows = self.db.query(
            """select pair, side, sequence, rank, path, calls, total_ns, self_ns, grown_bytes
            from duel_ranges join range_paths on range_paths.id = path_id
            where duel_id = ? and pair = ? and side = ? and sequence = ? and rank = ? order by path""",
            [duel_id, step.pair, step.side, step.sequence, step.rank],
        )
        return [DuelRangeRecord(**row) for row in rows]

    def same_code(
        self, scenario_hash: str, machine: str, collector: str, harness_version: str, *, pinned: bool
    ) -> list[DuelRecord]:
        """Return the duels of the same code on both sides that may lend their variance, oldest first."""
        rows = self.db.query(
            """select duels.* from duels join environments on environments.id = environment_id
            where kind = 'aa' and status = 'completed' and scenario_hash = ? and machine = ? and collector = ?
              and harness_version = ? and pinned = ? and interleave = 'steps' order by started_at, duels.id""",
            [scenario_hash, machine, collector, harness_version, pinned],
        )
        return [_duel(row) for row in rows]


def _duel(row: dict[str, Any]) -> DuelRecord:
    return DuelRecord(**{**_unpacked(row, _DUEL_JSON), "pinned": bool(row["pinned"])})


def _packed(row: dict[str, Any], columns: Iterable[str]) -> dict[str, Any]:
    packed = {name: json.dumps(row[name]) for name in columns if row.get(name) is not None}
    return {**row, **packed}


def _unpacked(row: dict[str, Any], columns: Iterable[str]) -> dict[str, Any]:
    return {**row, **{name: json.loads(row[name]) for name in columns if row[name] is not None}}


def _without_duel(row: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in row.items() if name != "duel_id"}
