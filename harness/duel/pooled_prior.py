"""What the store knows about the noise of this machine and scenario, from same-code duels (`stepduel aa`)."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median_low

import harness
from harness.comparison import step_pairs_of
from harness.duel.pacing import PooledPrior
from harness.stats.estimands import pair_differences
from harness.stats.noise import estimate_noise
from harness.stats.paired import StepPairs, UnusableError, sample_variance, step_times
from harness.stats.variance_prior import estimate_prior
from harness.store import DuelRecord, Duels

MOST_DUELS = 100
"""Newest same-code duels that are read: machines change, and older noise is no longer theirs."""
FEWER_STEPS = 1.5
"""Duels with up to so many times the steps of this one may lend: longer launches scatter less than ours will."""


@dataclass(frozen=True, kw_only=True, eq=False)
class SameCodeDuel:
    """The launch pairs of a stored same-code duel that can be judged, of `steps` measured steps each."""

    steps: int
    pairs: tuple[StepPairs, ...]


def same_code_duels(
    duels: Duels, scenario_hash: str, machine: str, collector: str, *, pinned: bool
) -> list[SameCodeDuel]:
    """Return this version's same-code duels of a scenario on a machine, those with at least two launch pairs."""
    records = duels.same_code(scenario_hash, machine, collector, harness.__version__, pinned=pinned)[-MOST_DUELS:]
    found = [SameCodeDuel(steps=record.steps or 0, pairs=_pairs(duels, record)) for record in records]
    return [duel for duel in found if len(duel.pairs) > 1]


def pooled_prior(found: Sequence[SameCodeDuel], steps: int | None = None) -> PooledPrior:
    """Return what same-code duels say about the noise; of comparable length only if `steps` is set."""
    usable = [duel for duel in found if steps is None or duel.steps <= FEWER_STEPS * steps]
    if not usable:
        return PooledPrior()
    variances = [sample_variance([one.total for one in pair_differences(duel.pairs)]) for duel in usable]
    counts = [len(duel.pairs) for duel in usable]
    pooled = sum(v * (k - 1) for v, k in zip(variances, counts, strict=True)) / sum(k - 1 for k in counts)
    return PooledPrior(
        noise=estimate_noise([pair for duel in usable for pair in duel.pairs]),
        prior=estimate_prior(variances, counts),
        spread=math.sqrt(pooled),
        duels=len(usable),
        steps=median_low(duel.steps for duel in usable),
    )


def _pairs(duels: Duels, record: DuelRecord) -> tuple[StepPairs, ...]:
    """The launch pairs of a duel that can be judged, with turns of one step: longer ones scatter otherwise."""
    steps = duels.steps(record.id)
    usable = []
    for pair in duels.pairs(record.id):
        if pair.turn_steps > 1:
            continue
        times = step_pairs_of(steps, pair.pair)
        try:
            step_times(times)
        except UnusableError:
            continue
        usable.append(times)
    return tuple(usable)
