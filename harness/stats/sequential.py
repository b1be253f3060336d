"""The decision rule of a duel: looks at 3, 5, 7 and 10 launch pairs that share one false alarm rate.

At a look of K pairs with mean m and variance v of d (see `paired`), ν degrees of freedom and L planned looks:

- `slower` if m − t(1−α/L, ν)·√(v/K) > 0 and m ≥ ln(1 + min_effect); `faster` is the mirror image;
- `same`   if the interval m ± t(pass_level, ν)·√(v/K) lies inside ±ln(1 + margin);
- otherwise more pairs, until the last look.

Bonferroni over looks is slightly wasteful but keeps the rate whatever the noise looks like over time, and each look can
be checked by hand. `min_abs_ns` is for steps so short that a percentage means nothing: a difference below it counts as
none, so it raises both the smallest effect and the margin.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import StrEnum

import numpy as np
from scipy import special

from harness.errors import UsageError
from harness.stats.paired import (
    SMALLEST_SPREAD,
    PairDifference,
    Problem,
    UnusableError,
    sample_variance,
    t_quantile,
    t_upper_tail,
)
from harness.stats.variance_prior import VariancePrior

DEFAULT_LOOKS = (3, 5, 7, 10)
"""Simulated against 4, 6, 8, 10: as few false alarms, as much power, and a quarter less work where much changed."""
MOST_PAIRS = 1000
"""Where a search for enough launch pairs gives up."""


@dataclass(frozen=True, kw_only=True)
class Rule:
    """Everything a decision depends on besides the measurements. Effects and margins are fractions of the step time."""

    looks: tuple[int, ...] = DEFAULT_LOOKS
    alpha: float = 0.01
    min_effect: float = 0.01
    min_abs_ns: float = 0.0
    margin: float = 0.02
    pass_level: float = 0.95
    power: float = 0.8

    def __post_init__(self) -> None:
        if not self.looks or self.looks[0] < 2 or list(self.looks) != sorted(set(self.looks)):
            raise UsageError(f"looks {list(self.looks)}: expected rising numbers of launch pairs, the first at least 2")
        for name, low, high in (("alpha", 0.0, 0.5), ("pass_level", 0.5, 1.0), ("power", 0.5, 1.0)):
            value = getattr(self, name)
            if not low < value < high:
                raise UsageError(f"{name} {value}: expected a number between {low:g} and {high:g}")
        for name in ("min_effect", "min_abs_ns"):
            value = getattr(self, name)
            if not (math.isfinite(value) and value >= 0):
                raise UsageError(f"{name} {value}: expected a number of 0 or more")
        if not (math.isfinite(self.margin) and self.margin > 0):
            raise UsageError(f"margin {self.margin}: expected a fraction above 0, such as 0.02 for 2 %")

    @property
    def level(self) -> float:
        """One-sided level of a single look, α / L."""
        return self.alpha / len(self.looks)

    def smallest_effect(self, base_ns: float) -> float:
        """ln(head/base) from which a difference matters, for a step of `base_ns`."""
        return math.log1p(max(self.min_effect, self.min_abs_ns / base_ns))

    def equivalence_margin(self, base_ns: float) -> float:
        """|ln(head/base)| up to which both sides count as the same, for a step of `base_ns`."""
        return math.log1p(max(self.margin, self.min_abs_ns / base_ns))


def planned_looks(most_pairs: int) -> tuple[int, ...]:
    """Return the looks of a duel of at most `most_pairs` launch pairs.

    Up to 10 these are the standard looks cut short. Beyond, four looks are spread evenly, so that α is not shared
    among ever more of them.
    """
    if most_pairs < 2:
        raise UsageError(f"{most_pairs} launch pairs: a verdict needs at least 2, and 3 or more to see anything")
    if most_pairs > DEFAULT_LOOKS[-1]:
        return tuple(sorted({math.ceil(most_pairs * share / 4) for share in (1, 2, 3, 4)}))
    return tuple(sorted({look for look in DEFAULT_LOOKS if look < most_pairs} | {most_pairs}))


class Outcome(StrEnum):
    """What a look says. `OPEN` asks for more pairs, or at the last look leaves the duel undecided."""

    SLOWER = "slower"
    FASTER = "faster"
    SAME = "same"
    OPEN = "open"


@dataclass(frozen=True, kw_only=True)
class Look:
    """Every number a decision used. Effects and bounds are ln(head/base)."""

    pairs: int
    mean: float
    observed_variance: float
    variance: float
    dof: float
    low: float
    high: float
    """Two-sided interval whose lower bound lies above 0 exactly if `slower` is significant: t(1−α/L, ν)."""
    pass_low: float
    pass_high: float
    """Two-sided interval that must lie inside the margin: t(pass_level, ν)."""
    p: float
    """One-sided p-value in the direction seen, times the number of looks: below α exactly if significant."""
    smallest_effect: float
    margin: float
    detectable_effect: float
    outcome: Outcome


def look(pairs: Sequence[PairDifference], rule: Rule, prior: VariancePrior | None = None) -> Look:
    """Evaluate the rule on these launch pairs, with variance lent by `prior` if there is one.

    Raises `UnusableError` when the pairs do not differ at all, and `ValueError` for fewer than two.
    """
    count = len(pairs)
    if count < 2:
        raise ValueError(f"a look needs at least 2 launch pairs, got {count}")
    d = [pair.log_ratio for pair in pairs]
    observed = sample_variance(d)
    # Also true for NaN, which a plain `<` would let through.
    if not observed > SMALLEST_SPREAD**2:
        raise UnusableError(
            Problem.ZERO_VARIANCE,
            f"all {count} launch pairs differ by exactly {math.expm1(d[0]) * 100:+.3f} %; real timings scatter",
        )
    variance, dof = prior.pooled(observed, count) if prior else (observed, count - 1.0)
    mean, error = float(np.mean(d)), math.sqrt(variance / count)
    base_ns = float(np.mean([pair.base_ns for pair in pairs]))
    smallest, margin = rule.smallest_effect(base_ns), rule.equivalence_margin(base_ns)
    half, pass_half = t_quantile(1 - rule.level, dof) * error, t_quantile(rule.pass_level, dof) * error
    return Look(
        pairs=count,
        mean=mean,
        observed_variance=observed,
        variance=variance,
        dof=dof,
        low=mean - half,
        high=mean + half,
        pass_low=mean - pass_half,
        pass_high=mean + pass_half,
        p=min(1.0, t_upper_tail(abs(mean) / error, dof) * len(rule.looks)),
        smallest_effect=smallest,
        margin=margin,
        detectable_effect=_detectable(error, dof, smallest, rule),
        outcome=_outcome(mean, half, pass_half, smallest, margin),
    )


def _outcome(mean: float, half: float, pass_half: float, smallest: float, margin: float) -> Outcome:
    if mean - half > 0 and mean >= smallest:
        return Outcome.SLOWER
    if mean + half < 0 and mean <= -smallest:
        return Outcome.FASTER
    if -margin < mean - pass_half and mean + pass_half < margin:
        return Outcome.SAME
    return Outcome.OPEN


def replay(pairs: Sequence[PairDifference], rule: Rule, prior: VariancePrior | None = None) -> list[Look]:
    """Return the looks that these launch pairs, in the order they were made, lead to: up to the first that decides.

    The same for a duel under way and for one read back from the store. Pairs between two looks or after the decision
    are left alone: an unplanned look would be an unpaid one.
    """
    looks: list[Look] = []
    for count in rule.looks:
        if count > len(pairs):
            break
        looks.append(look(pairs[:count], rule, prior))
        if looks[-1].outcome is not Outcome.OPEN:
            break
    return looks


def detectable_effect(
    spread: float, pairs: int, rule: Rule, *, base_ns: float = math.inf, dof: float | None = None
) -> float:
    """Smallest true ln(head/base) that a look of `pairs` launch pairs calls slower with the rule's power.

    `spread` is the standard deviation of d_k, from the warm-up or from history; `base_ns` brings in the absolute floor.
    """
    error = spread / math.sqrt(pairs)
    return _detectable(error, pairs - 1.0 if dof is None else dof, rule.smallest_effect(base_ns), rule)


def _detectable(error: float, dof: float, smallest: float, rule: Rule) -> float:
    # Both conditions of `slower` must hold. Significance: the noncentral t that exceeds the look's own quantile with
    # the wanted power; the usual sum of two t quantiles promises 80 % and gives 35 to 55 % (docs/statistics.md).
    shift = float(special.nctdtrinc(dof, 1 - rule.power, t_quantile(1 - rule.level, dof)))
    return max(shift * error, smallest + t_quantile(rule.power, dof) * error)


def pairs_to_detect(spread: float, effect: float, rule: Rule) -> int | None:
    """Fewest launch pairs whose detectable effect is at most `effect` (ln); None if `MOST_PAIRS` are not enough."""
    return _fewest_pairs(lambda count: detectable_effect(spread, count, rule) <= effect)


def pairs_to_decide(at: Look, rule: Rule) -> int | None:
    """Fewest launch pairs at which this look would have decided, had it seen the same mean and variance."""

    def decides(count: int) -> bool:
        error = math.sqrt(at.variance / count)
        dof = at.dof - at.pairs + count
        half, pass_half = t_quantile(1 - rule.level, dof) * error, t_quantile(rule.pass_level, dof) * error
        return _outcome(at.mean, half, pass_half, at.smallest_effect, at.margin) is not Outcome.OPEN

    return _fewest_pairs(decides)


def _fewest_pairs(enough: Callable[[int], bool]) -> int | None:
    return next((count for count in range(2, MOST_PAIRS + 1) if enough(count)), None)
