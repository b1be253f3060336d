"""Pinned baselines: the revision that a scenario's slow creep is held against, until somebody pins another."""

from __future__ import annotations

from dataclasses import asdict, dataclass

from harness.store.database import Store, migrations
from harness.store.sqlite import Database


@migrations()
def create_baselines(db: Database) -> None:
    """One pinned revision a scenario."""
    db.conn.execute(
        "create table baselines (scenario text primary key, revision text not null, pinned_at text not null) "
        "without rowid"
    )


@dataclass(frozen=True, kw_only=True)
class BaselineRecord:
    """The pinned revision of a scenario, as a full git hash. Its step times are those stored for the revision."""

    scenario: str
    revision: str
    pinned_at: str


class Baselines:
    """Reads and writes the pinned baselines of an open `Store`."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self.db = store.db

    def pin(self, baseline: BaselineRecord) -> None:
        """Pin a revision, instead of the one that the scenario had."""
        with self.store.transaction():
            self.db.table("baselines").upsert(asdict(baseline), pk="scenario")

    def unpin(self, scenario: str) -> bool:
        """Forget a scenario's baseline; False if it had none."""
        with self.store.transaction():
            return bool(self.db.execute("delete from baselines where scenario = ?", [scenario]).rowcount)

    def of(self, scenario: str) -> BaselineRecord | None:
        """Return a scenario's baseline."""
        return next((item for item in self.all() if item.scenario == scenario), None)

    def all(self) -> list[BaselineRecord]:
        """Return every pinned baseline by scenario."""
        return [BaselineRecord(**row) for row in self.db["baselines"].rows_where(order_by="scenario")]
