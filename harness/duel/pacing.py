"""How long a duel warms up, how many steps it measures a launch, and the smallest slowdown it will detect. Pure.

Warm-up of the first launch pair goes on until steps have had time to settle and to show their scatter; later pairs
repeat its length. From what starting and stepping cost follows the number of measured steps (`stats.noise`), kept low
enough that the first look comes soon, and high enough that measuring does not take less time than starting.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from harness.stats.noise import Noise
from harness.stats.periods import FEWEST_TIMES
from harness.stats.power import detectable_effect, pairs_to_detect
from harness.stats.rule import Rule
from harness.stats.variance_prior import VariancePrior
from harness.units import plural

TYPICAL_NOISE: Final = Noise(within=0.02, between=0.006, autocorrelation=0.5)
"""What small machines showed (docs/duel.md); only used until same-code duels of this machine are stored."""
WARMUP_STEPS: Final = 5
WARMUP_S: Final = 4.0
"""Warm-up ends after so many steps or so much time, but never before the scenario's own warm-up."""
BLOCKS_FACTOR: Final = 13.0
"""By how much launches in turn scatter more than steps in turn: 13 times idle and 16 beside a busy core were measured
(benchmarks/RESULTS.md)."""
MIN_STEPS: Final = 4
"""So few only where steps take seconds and starting takes no longer: a mean of fewer follows single hiccups."""
MAX_STEPS: Final = 200
BUDGET_SHARE: Final = 0.85
"""Share of a budget that is planned for: steps get longer than those of the warm-up, and ending a pair takes time."""
FIRST_LOOK_S: Final = 40.0
"""The first look should come by then; what starts slowly is measured for as long as it starts all the same."""


@dataclass(frozen=True, kw_only=True)
class PooledPrior:
    """What stored same-code duels on this machine say; None where there are too few."""

    noise: Noise | None = None
    prior: VariancePrior | None = None
    spread: float | None = None
    """Pooled standard deviation of a launch pair's ln(head/base) in total."""
    duels: int = 0
    steps: int | None = None
    """Measured steps of a typical one of them."""


@dataclass(frozen=True, kw_only=True)
class DetectableEffect:
    """The minimum detectable effect of a duel (80 % power), as fractions. `source` says where its noise is from."""

    first_look: float
    last_look: float
    pairs_needed: int | None
    """Launch pairs that would see the margin; None if no number would."""
    source: str


def warmed_up(done: int, elapsed_s: float, scenario_warmup: int) -> bool:
    """Whether the first launch pair has warmed up after `done` step pairs."""
    return done >= max(scenario_warmup, 1) and (done >= WARMUP_STEPS or elapsed_s >= WARMUP_S)


def warmup_noise(warmup: Sequence[tuple[int, int]]) -> Noise:
    """Return the noise to plan with where no history tells it: steps scatter as in the warm-up, launches as usual.

    `warmup` holds (base, head) step times in ns of the warm-up step pairs; the first is not typical and left out.
    """
    x = np.log([head / base for base, head in warmup[1:]])
    typical = TYPICAL_NOISE
    within = float(np.std(x, ddof=1)) if _tells_noise(warmup) else typical.within
    return Noise(within=within, between=typical.between, autocorrelation=typical.autocorrelation)


def _tells_noise(warmup: Sequence[tuple[int, int]]) -> bool:
    return len(warmup) > 3


def least_steps(period: int) -> int:
    """Return the fewest steps of a launch: three periods, since what comes once or twice is hardly told from chance."""
    return max(MIN_STEPS, FEWEST_TIMES * period)


def measured_steps(
    start_s: float, step_pair_s: float, noise: Noise, first_look_pairs: int, warmup_steps: int, *, period: int = 1
) -> int:
    """Return the steps to measure a launch, from what starting a launch pair and one step pair cost."""
    best = noise.best_steps(start_s, step_pair_s, at_least=MIN_STEPS, at_most=MAX_STEPS)
    affordable = (FIRST_LOOK_S / first_look_pairs - start_s) / step_pair_s - warmup_steps
    worthwhile = start_s / step_pair_s
    return max(least_steps(period), min(best, math.floor(max(affordable, worthwhile))))


def first_look_s(steps: int, start_s: float, step_pair_s: float, pairs: int, warmup_steps: int) -> float:
    """Return how long the first look is away, once the first launch pair has started and warmed up."""
    return (pairs * steps * step_pair_s + (pairs - 1) * (start_s + warmup_steps * step_pair_s)) / BUDGET_SHARE


def steps_in_time(left_s: float, start_s: float, step_pair_s: float, pairs: int, warmup_steps: int) -> int:
    """Return the most steps of a launch with which the first look comes within `left_s`; below 1 if none do."""
    starts_s = (pairs - 1) * (start_s + warmup_steps * step_pair_s)
    return math.floor((BUDGET_SHARE * left_s - starts_s) / (pairs * step_pair_s))


def forecast(
    rule: Rule, steps: int, known: PooledPrior, warmup: Sequence[tuple[int, int]], *, in_turn: bool = True
) -> DetectableEffect:
    """Return what `steps` a launch will see. `warmup` is as for `warmup_noise`.

    History comes first, then the warm-up. With `in_turn` false whole launches take turns, and what is slower than they
    are does not cancel.
    """
    lent = 0.0
    if known.spread is not None:
        spread, source = known.spread, f"{plural(known.duels, 'same-code duel')} of this machine"
        lent = known.prior.dof if known.prior else 0.0
    else:
        spread = warmup_noise(warmup).spread(steps)
        # Four step pairs tell a scatter within a factor of two either way (docs/decisions.md).
        steps_seen = f"{len(warmup) - 1} step pairs of the warm-up, so roughly"
        seen = steps_seen if _tells_noise(warmup) else "what small machines showed"
        source = f"{seen}; run `stepduel aa` to know this machine better"
    if not in_turn:
        spread *= BLOCKS_FACTOR
        source = f"{source}; launches in turn scatter {BLOCKS_FACTOR:g} times as much as steps in turn"
    base_ns = float(np.median([base for base, _ in warmup])) if warmup else math.inf
    first, last = rule.looks[0], rule.looks[-1]
    return DetectableEffect(
        first_look=math.expm1(detectable_effect(spread, first, rule, base_ns=base_ns, dof=lent + first - 1)),
        last_look=math.expm1(detectable_effect(spread, last, rule, base_ns=base_ns, dof=lent + last - 1)),
        pairs_needed=pairs_to_detect(spread, math.log1p(rule.margin), rule),
        source=source,
    )
