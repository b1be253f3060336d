"""The gate's promise about a limit, and the rule that keeps it. Pure.

A limit needs room to be judged in: no measurement tells a slowdown of just less from one of just more. So the promise
is about a true slowdown of `SPARED` times the limit, which fails in at most α of duels, and one of `CAUGHT` times the
limit, which fails in at least `POWER` of them. Between the two it may end either way or undecided. The second half
depends on the machine: `pairs_to_hold` says how many launch pairs it takes.
"""

from __future__ import annotations

import math
from typing import Final

from harness.stats.power import pairs_to_detect
from harness.stats.rule import Rule, planned_looks
from harness.stats.sequential import Look

SPARED: Final = 0.8
CAUGHT: Final = 1.2
POWER: Final = 0.9
PASS_LEVEL: Final = 0.975
"""One-sided level of a pass. At 0.95 up to four looks let 8 % of slowdowns of `CAUGHT` times a limit pass."""


def gate_rule(limit: float, *, pairs: int, alpha: float, min_abs_ns: float = 0.0) -> Rule:
    """Return the rule of a duel that is held to `limit`, a share of the step time, within `pairs` launch pairs."""
    return Rule(
        looks=planned_looks(pairs),
        alpha=alpha,
        null_effect=SPARED * limit,
        min_effect=limit,
        min_abs_ns=min_abs_ns,
        margin=CAUGHT * limit,
        pass_level=PASS_LEVEL,
        power=POWER,
    )


def within(last: Look) -> bool:
    """Whether head surely takes no `CAUGHT` times the limit: a pass, however much faster it may be."""
    return max(last.total.pass_high, last.typical.pass_high) < last.margin and not last.uneven_cuts


def pairs_to_hold(rule: Rule, spread: float) -> int | None:
    """Fewest launch pairs that keep the promise where they scatter by `spread`; None if no number would."""
    return pairs_to_detect(spread, math.log1p(rule.margin), rule)
