"""What the store knows about the noise of this machine and scenario, from same-code duels (`stepduel aa`)."""

from __future__ import annotations

import math
from statistics import median_low

import harness
from harness.comparison import step_pairs_of
from harness.duel.pacing import Known
from harness.stats.history import estimate_prior
from harness.stats.noise import estimate_noise
from harness.stats.paired import StepPairs, UnusableError, pair_difference, sample_variance
from harness.store import DuelRecord, Duels

MOST_DUELS = 100
"""Newest same-code duels that are read: machines change, and older noise is no longer theirs."""
FEWER_STEPS = 1.5
"""Duels with up to so many times the steps of this one may lend: longer launches scatter less than ours will."""


def known_noise(duels: Duels, scenario_hash: str, machine: str, collector: str, steps: int | None = None) -> Known:
    """Return what a machine's same-code duels of a scenario say; of comparable length only if `steps` is set."""
    records = duels.same_code(scenario_hash, machine, collector, harness.__version__)[-MOST_DUELS:]
    comparable = [record for record in records if _comparable(record, steps)]
    usable = [pairs for pairs in (_pairs(duels, record) for record in comparable) if len(pairs) > 1]
    if not usable:
        return Known()
    variances = [sample_variance([pair_difference(pair).log_ratio for pair in pairs]) for pairs in usable]
    counts = [len(pairs) for pairs in usable]
    pooled = sum(v * (k - 1) for v, k in zip(variances, counts, strict=True)) / sum(k - 1 for k in counts)
    return Known(
        noise=estimate_noise([pair for pairs in usable for pair in pairs]),
        prior=estimate_prior(variances, counts),
        spread=math.sqrt(pooled),
        duels=len(usable),
        steps=median_low(len(pairs[0].base_ns) for pairs in usable),
    )


def _comparable(record: DuelRecord, steps: int | None) -> bool:
    return steps is None or (record.steps is not None and record.steps <= FEWER_STEPS * steps)


def _pairs(duels: Duels, record: DuelRecord) -> list[StepPairs]:
    """The launch pairs of a duel that can be judged."""
    steps = duels.steps(record.id)
    usable = []
    for pair in duels.pairs(record.id):
        times = step_pairs_of(steps, pair.pair)
        try:
            pair_difference(times)
        except UnusableError:
            continue
        usable.append(times)
    return usable
