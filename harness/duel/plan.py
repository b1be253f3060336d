"""What a duel is about to do: two sides, the rule, the pace, and the key that says which launch pairs go together."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

import harness
from harness.environment import Environment
from harness.scenario import Scenario
from harness.stats.rule import Rule
from harness.store import DuelKind, SideName
from harness.subject import Subject

Interleave = Literal["steps", "blocks"]


@dataclass(frozen=True, kw_only=True)
class DuelSide:
    """One side: a subject, the scenario as this side runs it (its own overrides applied), and the collector."""

    name: SideName
    subject: Subject
    scenario: Scenario
    collector: str

    def document(self) -> dict[str, Any]:
        """Return what is stored about this side before it starts; nothing in it depends on where it lies on disk."""
        return {
            "subject": self.subject.name,
            "revision": self.subject.revision,
            "dirty": self.subject.dirty,
            "changes": self.subject.changes,
            "identity": self.subject.identity(),
            "overrides": list(self.subject.overrides),
            "notes": list(self.subject.notes),
            "collector": self.collector,
            **({"commit_subject": self.subject.commit_subject} if self.subject.commit_subject else {}),
            **self.subject.provenance(),
        }


@dataclass(frozen=True, kw_only=True)
class DuelPlan:
    """One duel. `scenario` is what both sides share; `steps` None lets the first launch pair decide."""

    kind: DuelKind
    scenario: Scenario
    base: DuelSide
    head: DuelSide
    rule: Rule
    steps: int | None
    interleave: Interleave
    pinned: bool
    """Whether ranks on a CPU keep to cores that both sides share."""
    seed: int
    budget_s: float | None
    explain: str | None
    """Collector of one more launch pair, traced for where time goes and never timed; None for no such pair."""
    reports: Path
    limits: Mapping[str, float]
    """How much worse head's metrics may be, as shares by metric, and figures of its launches, by key of the policy."""
    stop_at_limit: bool = False
    """Whether to make no more launch pairs once a limit is surely exceeded."""
    cannot_run: str | None = None
    """Why one of the sides cannot be started at all: its revision holds no such engine."""

    @property
    def sides(self) -> dict[SideName, DuelSide]:
        """Both sides by name."""
        return {"base": self.base, "head": self.head}

    def key(self, environment: Environment) -> str:
        """16 hexadecimal digits that agree where launch pairs may be put together: same code, scenario and machine."""
        content = [
            self.kind,
            self.scenario.hash,
            [[side.document(), side.scenario.hash] for side in (self.base, self.head)],
            self.interleave,
            self.pinned,
            environment.id,
            harness.__version__,
        ]
        return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()[:16]

    def rule_document(self) -> dict[str, Any]:
        """Return the rule as JSON-ready values."""
        return {**asdict(self.rule), "looks": list(self.rule.looks)}
