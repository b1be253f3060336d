"""What a rule does at each true difference: how often it says slower, same, or neither. By simulation.

Launch pairs are drawn with the scatter that the machine and the scenario are known for, and every planned look is made
as in a duel.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from harness.stats.estimands import PairDifference
from harness.stats.rule import Rule
from harness.stats.sequential import Look, Outcome, look
from harness.stats.variance_prior import VariancePrior


@dataclass(frozen=True, kw_only=True)
class OperatingPoint:
    """Shares of duels by how they end where head truly takes the fraction `effect` longer."""

    effect: float
    slower: float
    same: float
    undecided: float
    faster: float
    mean_pairs: float


def operating_curve(
    rule: Rule,
    spread: float,
    effects: Sequence[float],
    chance: np.random.Generator,
    *,
    base_ns: float = 1e9,
    prior: VariancePrior | None = None,
    duels: int,
    passes: Callable[[Look], bool] = lambda _: False,
) -> list[OperatingPoint]:
    """Return a point for each true effect. `spread` is the standard deviation of a launch pair's ln(head/base);
    `chance` draws the duels; `passes` says which undecided last looks count as `same` all the same."""
    return [_point(rule, spread, effect, chance, base_ns, prior, duels, passes) for effect in effects]


def _point(
    rule: Rule,
    spread: float,
    effect: float,
    chance: np.random.Generator,
    base_ns: float,
    prior: VariancePrior | None,
    duels: int,
    passes: Callable[[Look], bool],
) -> OperatingPoint:
    # (duels, pairs) ln(head/base)
    d = chance.normal(math.log1p(effect), spread, (duels, rule.looks[-1]))
    ends: Counter[Outcome] = Counter()
    pairs = 0
    for row in d.tolist():
        differences = [_difference(total, base_ns) for total in row]
        for count in rule.looks:
            found = look(differences[:count], rule, prior)
            if found.outcome is not Outcome.OPEN:
                break
        passed = found.outcome is Outcome.OPEN and passes(found)
        ends[Outcome.SAME if passed else found.outcome] += 1
        pairs += found.pairs
    return OperatingPoint(
        effect=effect,
        slower=ends[Outcome.SLOWER] / duels,
        same=ends[Outcome.SAME] / duels,
        undecided=ends[Outcome.OPEN] / duels,
        faster=ends[Outcome.FASTER] / duels,
        mean_pairs=pairs / duels,
    )


def _difference(total: float, base_ns: float) -> PairDifference:
    """A launch pair without hiccups, whose typical step is its mean one."""
    head_ns = base_ns * math.exp(total)
    return PairDifference(
        total=total,
        typical=total,
        uncapped=total,
        base_ns=base_ns,
        head_ns=head_ns,
        base_typical_ns=base_ns,
        head_typical_ns=head_ns,
        base_cut_steps=0,
        head_cut_steps=0,
        steps=1,
    )
