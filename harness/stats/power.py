"""How large a difference a number of launch pairs can show, and how many would settle one."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace

from harness.stats.paired import t_quantile
from harness.stats.rule import Endpoint, Rule, smallest_detectable
from harness.stats.sequential import Estimate, Look, Outcome, outcome_of

MOST_PAIRS = 1000
"""Where a search for enough launch pairs gives up."""


def detectable_effect(
    spread: float, pairs: int, rule: Rule, *, base_ns: float = math.inf, dof: float | None = None
) -> float:
    """Smallest true ln(head/base) that a look of `pairs` launch pairs calls slower with the rule's power.

    `spread` is the standard deviation of launch pair totals, from the warm-up or from history; `base_ns` brings in
    the absolute floor.
    """
    error = spread / math.sqrt(pairs)
    dof = pairs - 1.0 if dof is None else dof
    null, smallest = rule.null(base_ns), rule.smallest_effect(base_ns)
    return smallest_detectable(error, dof, rule.level(pairs), rule.power, null, smallest)


def detectable_at_the_end(at: Look, rule: Rule) -> float:
    """Smallest true ln(head/base) that the last planned look calls slower, at the scatter that this look saw.

    What a duel that decided early could have found: it would have gone on.
    """
    planned = rule.looks[-1]
    error, dof = math.sqrt(at.total.variance / planned), at.total.dof - at.pairs + planned
    return smallest_detectable(error, dof, rule.level(planned), rule.power, at.null_effect, at.smallest_effect)


def pairs_to_detect(spread: float, effect: float, rule: Rule) -> int | None:
    """Fewest launch pairs whose detectable effect is at most `effect` (ln); None if `MOST_PAIRS` are not enough."""
    return _fewest_pairs(lambda count: detectable_effect(spread, count, rule) <= effect)


def pairs_to_decide(at: Look, rule: Rule) -> int | None:
    """Fewest launch pairs at which this look would have decided, had it seen the same mean and variance."""

    def decides(count: int) -> bool:
        estimates = {
            endpoint: _with_pairs(estimate, at.pairs, count, rule, endpoint)
            for endpoint, estimate in at.estimates.items()
        }
        outcome, _ = outcome_of(estimates, at.uneven_cuts, at.smallest_effect, at.margin, at.null_effect)
        return outcome is not Outcome.OPEN

    return _fewest_pairs(decides)


def _with_pairs(estimate: Estimate, made: int, count: int, rule: Rule, endpoint: Endpoint) -> Estimate:
    """The same mean and variance from `count` launch pairs instead of those that were made."""
    error, dof = math.sqrt(estimate.variance / count), estimate.dof - made + count
    half, pass_half = t_quantile(1 - rule.level(count, endpoint), dof) * error, t_quantile(rule.pass_level, dof) * error
    return replace(
        estimate,
        low=estimate.mean - half,
        high=estimate.mean + half,
        pass_low=estimate.mean - pass_half,
        pass_high=estimate.mean + pass_half,
    )


def _fewest_pairs(enough: Callable[[int], bool]) -> int | None:
    return next((count for count in range(2, MOST_PAIRS + 1) if enough(count)), None)
