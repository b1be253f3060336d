"""The decision rule of a duel: looks at 3, 5, 7 and 10 launch pairs that share one false alarm rate.

At a look of K launch pairs every endpoint (`estimands`: the total, the typical step, the uncapped total) has mean m and
variance v over the pairs, ν degrees of freedom, and a level a, its share of α at this look:

- `slower` if for one of them m − t(1−a, ν)·√(v/K) > ln(1 + null_effect) and m ≥ ln(1 + min_effect), while the total is
  not surely smaller;
- `faster` if the total is so in the other direction, and neither of the others is surely larger;
- `same`   if the intervals m ± t(pass_level, ν)·√(v/K) of total and typical step lie inside ±ln(1 + margin), and the
  steps that the cap cut do not speak against it;
- otherwise more pairs, until the last look.

Shares of α are a Bonferroni bound, over looks and endpoints: it keeps the rate whatever the noise looks like over time,
and each look can be checked by hand. `min_abs_ns` is for steps so short that a percentage means nothing: a difference
below it counts as none, so it raises the smallest effect and the margin alike.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

import numpy as np
from scipy import special

from harness.stats.estimands import PairDifference, pair_differences
from harness.stats.paired import (
    SMALLEST_SPREAD,
    Problem,
    StepPairs,
    UnusableError,
    sample_variance,
    t_quantile,
    t_upper_tail,
)
from harness.stats.rule import Endpoint, Rule, smallest_detectable
from harness.stats.variance_prior import VariancePrior

UNEVEN_CUTS_LEVEL: Final = 0.05
"""Sides whose counts of cut steps differ this significantly are not called `same` over a difference the cap removed."""


class Outcome(StrEnum):
    """What a look says. `OPEN` asks for more pairs, or at the last look leaves the duel undecided."""

    SLOWER = "slower"
    FASTER = "faster"
    SAME = "same"
    OPEN = "open"


@dataclass(frozen=True, kw_only=True)
class Estimate:
    """One endpoint at a look. Means and bounds are ln(head/base)."""

    mean: float
    observed_variance: float
    variance: float
    dof: float
    level: float
    """One-sided level it is tested at."""
    low: float
    high: float
    """Two-sided interval whose lower bound lies above the null effect exactly if `slower` is significant."""
    pass_low: float
    pass_high: float
    """Two-sided interval that must lie inside the margin: t(pass_level, ν)."""
    p: float
    """One-sided p-value in the direction seen, times α / level: below α exactly if significant."""

    @property
    def surely_positive(self) -> bool:
        """Whether it is above 0 at the pass level."""
        return self.pass_low > 0

    @property
    def surely_negative(self) -> bool:
        """Whether it is below 0 at the pass level."""
        return self.pass_high < 0


@dataclass(frozen=True, kw_only=True)
class Look:
    """Every number a decision used. Effects are ln(head/base)."""

    pairs: int
    total: Estimate
    typical: Estimate
    uncapped: Estimate
    base_cut_steps: int
    head_cut_steps: int
    uneven_cuts: bool
    """The cap cut more steps of one side than chance would, and what it cut is more than the margin."""
    null_effect: float
    """What `slower` must be significantly above: 0, but for a gate."""
    smallest_effect: float
    margin: float
    detectable_effect: float
    """The smallest true total that this many pairs with this scatter call `slower` with the rule's power."""
    outcome: Outcome
    endpoint: Endpoint
    """What decided; the total where nothing did."""

    @property
    def estimates(self) -> dict[Endpoint, Estimate]:
        """The three estimates by endpoint, in the order in which they are tried."""
        return {Endpoint.TOTAL: self.total, Endpoint.TYPICAL: self.typical, Endpoint.UNCAPPED: self.uncapped}

    @property
    def decisive(self) -> Estimate:
        """The estimate that decided."""
        return self.estimates[self.endpoint]


def look(pairs: Sequence[PairDifference], rule: Rule, prior: VariancePrior | None = None) -> Look:
    """Evaluate the rule on these launch pairs; `prior` lends variance to the total.

    Raises `UnusableError` when the pairs do not differ at all, and `ValueError` for fewer than two.
    """
    count = len(pairs)
    if count < 2:
        raise ValueError(f"a look needs at least 2 launch pairs, got {count}")
    totals = [pair.total for pair in pairs]
    # Also true for NaN, which a plain `<` would let through.
    if not sample_variance(totals) > SMALLEST_SPREAD**2:
        raise UnusableError(
            Problem.ZERO_VARIANCE,
            f"all {count} launch pairs differ by exactly {math.expm1(totals[0]) * 100:+.3f} %; real timings scatter",
        )
    base_ns = float(np.mean([pair.base_ns for pair in pairs]))
    null = rule.null(base_ns)
    total = _estimate(totals, rule, Endpoint.TOTAL, null, prior)
    typical = _estimate([pair.typical for pair in pairs], rule, Endpoint.TYPICAL, null)
    uncapped = _estimate([pair.uncapped for pair in pairs], rule, Endpoint.UNCAPPED, null)
    smallest, margin = rule.smallest_effect(base_ns), rule.equivalence_margin(base_ns)
    cuts = sum(pair.base_cut_steps for pair in pairs), sum(pair.head_cut_steps for pair in pairs)
    uneven = _uneven(*cuts) and abs(uncapped.mean) > margin
    estimates = {Endpoint.TOTAL: total, Endpoint.TYPICAL: typical, Endpoint.UNCAPPED: uncapped}
    outcome, endpoint = outcome_of(estimates, uneven, smallest, margin, null)
    return Look(
        pairs=count,
        total=total,
        typical=typical,
        uncapped=uncapped,
        base_cut_steps=cuts[0],
        head_cut_steps=cuts[1],
        uneven_cuts=uneven,
        null_effect=null,
        smallest_effect=smallest,
        margin=margin,
        detectable_effect=smallest_detectable(
            math.sqrt(total.variance / count), total.dof, total.level, rule.power, null, smallest
        ),
        outcome=outcome,
        endpoint=endpoint,
    )


def _estimate(
    d: Sequence[float], rule: Rule, endpoint: Endpoint, null: float, prior: VariancePrior | None = None
) -> Estimate:
    count = len(d)
    observed = sample_variance(d)
    # Medians of coarse clocks can agree exactly where totals do not.
    floored = max(observed, SMALLEST_SPREAD**2)
    variance, dof = prior.pooled(floored, count) if prior else (floored, count - 1.0)
    level = rule.level(count, endpoint)
    mean, error = float(np.mean(d)), math.sqrt(variance / count)
    half, pass_half = t_quantile(1 - level, dof) * error, t_quantile(rule.pass_level, dof) * error
    beyond = max(abs(mean) - null, 0.0) / error
    return Estimate(
        mean=mean,
        observed_variance=observed,
        variance=variance,
        dof=dof,
        level=level,
        low=mean - half,
        high=mean + half,
        pass_low=mean - pass_half,
        pass_high=mean + pass_half,
        p=min(1.0, t_upper_tail(beyond, dof) * rule.alpha / level),
    )


def _uneven(base_cuts: int, head_cuts: int) -> bool:
    """Two-sided sign test: hiccups of the machine meet both sides alike."""
    both = base_cuts + head_cuts
    more = max(base_cuts, head_cuts)
    return both > 0 and 2 * float(special.bdtrc(more - 1, both, 0.5)) < UNEVEN_CUTS_LEVEL


def outcome_of(
    estimates: Mapping[Endpoint, Estimate], uneven: bool, smallest: float, margin: float, null: float
) -> tuple[Outcome, Endpoint]:
    total, typical, uncapped = (estimates[endpoint] for endpoint in Endpoint)
    for endpoint, estimate in estimates.items():
        if estimate.low > null and estimate.mean >= smallest and not total.surely_negative:
            return Outcome.SLOWER, endpoint
    contradicted = typical.surely_positive or uncapped.surely_positive
    if total.high < -null and total.mean <= -smallest and not contradicted:
        return Outcome.FASTER, Endpoint.TOTAL
    inside = all(-margin < one.pass_low and one.pass_high < margin for one in (total, typical))
    # The uncapped total is too noisy to lie inside the margin, but must not be surely outside of it.
    outside = (uncapped.surely_positive or uncapped.surely_negative) and abs(uncapped.mean) > margin
    if inside and not uneven and not outside:
        return Outcome.SAME, Endpoint.TOTAL
    return Outcome.OPEN, Endpoint.TOTAL


def replay(pairs: Sequence[StepPairs], rule: Rule, prior: VariancePrior | None = None) -> list[Look]:
    """Return the looks that these launch pairs, in the order they were made, lead to: up to the first that decides.

    The same for a duel under way and for one read back from the store. Pairs between two looks or after the decision
    are left alone: an unplanned look would be an unpaid one, and the cap of a look knows its own pairs only.
    """
    looks: list[Look] = []
    for count in rule.looks:
        if count > len(pairs):
            break
        looks.append(look(pair_differences(pairs[:count]), rule, prior))
        if looks[-1].outcome is not Outcome.OPEN:
            break
    return looks
