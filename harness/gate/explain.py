"""What the gate's limits mean here: how duels end at each true slowdown, with the scenario's own noise.

No duel is run: they are simulated.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Final

import numpy as np

from harness import documents
from harness.collectors.registry import DEFAULT
from harness.duel import TYPICAL_NOISE, PooledPrior, pooled_prior, same_code_duels
from harness.environment import read_environment
from harness.gate.jobs import Against
from harness.gate.limit import CAUGHT, SPARED, pairs_to_hold, within
from harness.scenario import Scenario
from harness.stats.operating_curve import OperatingPoint, operating_curve
from harness.stats.rule import Rule
from harness.store import RESULTS, Duels, Store
from harness.units import percent, plural

SCHEMA: Final = "stepduel/gate-limit/1"
SHARES_OF_LIMIT: Final = (0.0, 0.5, SPARED, 0.9, 1.0, 1.1, CAUGHT, 1.5)
DUELS: Final = 1000
"""Simulated at each true slowdown: shares are known to about 1 %."""
SEED: Final = 0


@dataclass(frozen=True, kw_only=True)
class LimitPoint:
    """Shares of duels by what they mean for the gate, where head truly takes the fraction `effect` longer."""

    effect: float
    fails: float
    passes: float
    undecided: float
    mean_pairs: float


@dataclass(frozen=True, kw_only=True)
class LimitCurve:
    """The operating curve of one duel of the gate."""

    ALSO_IN_DOCUMENT: ClassVar = ("line",)

    scenario: str
    against: Against
    limit: float
    alpha: float
    """This duel's share of the policy's."""
    pairs: int
    spread: float
    """Standard deviation of a launch pair's ln(head/base)."""
    same_code_duels: int
    """Stored ones that `spread` comes from; 0 for the scatter that is usual."""
    pairs_to_hold: int | None
    """Launch pairs that keep the promise; None if no number would."""
    points: tuple[LimitPoint, ...]

    @property
    def holds(self) -> bool:
        """Whether the planned launch pairs keep the promise."""
        return self.pairs_to_hold is not None and self.pairs_to_hold <= self.pairs

    @property
    def line(self) -> str:
        """Whether the promise holds, and on what noise that rests."""
        source = (
            f"as in {plural(self.same_code_duels, 'same-code duel')} of this machine"
            if self.same_code_duels
            else f"as is usual; `stepduel aa {self.scenario}` measures it here"
        )
        needed = "no number of pairs would" if self.pairs_to_hold is None else f"{self.pairs_to_hold} would (--pairs)"
        holds = "hold this limit" if self.holds else f"do not hold this limit, {needed}"
        return f"launch pairs scatter by {percent(self.spread)}, {source}: {self.pairs} pairs {holds}"


@dataclass(frozen=True, kw_only=True)
class LimitsExplained:
    """The curves of all duels of a policy, from the file `source`."""

    source: str
    curves: tuple[LimitCurve, ...]

    def document(self) -> dict[str, Any]:
        """Return it as plain JSON-ready values."""
        return documents.document(SCHEMA, self)


def limit_curve(
    scenario: Scenario, name: str, against: Against, rule: Rule, steps: int | None, reports: Path
) -> LimitCurve:
    """Return the curve of a duel under `rule`, with the noise that its scenario is known for on this machine."""
    known = _known(scenario, steps, reports)
    steps = steps or scenario.run.steps
    spread = TYPICAL_NOISE.spread(steps) if known.spread is None else known.spread
    return LimitCurve(
        scenario=name,
        against=against,
        limit=rule.min_effect,
        alpha=rule.alpha,
        pairs=rule.looks[-1],
        spread=spread,
        same_code_duels=known.duels,
        pairs_to_hold=pairs_to_hold(rule, spread),
        points=tuple(limit_points(rule, spread, known)),
    )


def limit_points(rule: Rule, spread: float, known: PooledPrior) -> Iterator[LimitPoint]:
    """Simulate duels at shares of the limit."""
    effects = [share * rule.min_effect for share in SHARES_OF_LIMIT]
    chance = np.random.default_rng(SEED)
    for point in operating_curve(rule, spread, effects, chance, prior=known.prior, duels=DUELS, passes=within):
        yield _point(point)


def _point(point: OperatingPoint) -> LimitPoint:
    return LimitPoint(
        effect=point.effect,
        fails=point.slower,
        passes=point.same + point.faster,
        undecided=point.undecided,
        mean_pairs=point.mean_pairs,
    )


def _known(scenario: Scenario, steps: int | None, reports: Path) -> PooledPrior:
    if not (reports / RESULTS).is_file():
        return PooledPrior()
    machine = read_environment().machine
    with Store(reports / RESULTS) as store:
        found = same_code_duels(Duels(store), scenario.hash, machine, DEFAULT, pinned=True)
    return pooled_prior(found, steps)
