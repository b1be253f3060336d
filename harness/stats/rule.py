"""What a decision depends on besides the measurements: looks, levels, limits. How it decides: `sequential`."""

from __future__ import annotations

import math
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from scipy import special

from harness.errors import UsageError
from harness.stats.paired import t_quantile

DEFAULT_LOOKS = (3, 5, 7, 10)
"""Simulated against 4, 6, 8, 10: as few false alarms, as much power, and a quarter less work where much changed."""


class Endpoint(StrEnum):
    """What is tested: see `estimands`."""

    TOTAL = "total"
    TYPICAL = "typical"
    UNCAPPED = "uncapped"


ALPHA_SHARES: Final[dict[Endpoint, float]] = {Endpoint.TOTAL: 0.8, Endpoint.TYPICAL: 0.1, Endpoint.UNCAPPED: 0.1}
"""The total is what users pay. The others see what it cannot, and cost it little: one step in the t quantile."""


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
    null_effect: float = 0.0
    """`slower` must be significantly above this: 0, or for a gate (`gate.limit`) what must not fail it."""

    def __post_init__(self) -> None:
        if not self.looks or self.looks[0] < 2 or list(self.looks) != sorted(set(self.looks)):
            raise UsageError(f"looks {list(self.looks)}: expected rising numbers of launch pairs, the first at least 2")
        for name, low, high in (("alpha", 0.0, 0.5), ("pass_level", 0.5, 1.0), ("power", 0.5, 1.0)):
            value = getattr(self, name)
            if not low < value < high:
                raise UsageError(f"{name} {value}: expected a number between {low:g} and {high:g}")
        for name in ("min_effect", "min_abs_ns", "null_effect"):
            value = getattr(self, name)
            if not (math.isfinite(value) and value >= 0):
                raise UsageError(f"{name} {value}: expected a number of 0 or more")
        if not (math.isfinite(self.margin) and self.margin > 0):
            raise UsageError(f"margin {self.margin}: expected a fraction above 0, such as 0.02 for 2 %")

    def level(self, pairs: int, endpoint: Endpoint = Endpoint.TOTAL) -> float:
        """One-sided level of an endpoint at the look of `pairs` launch pairs; of the last look where there is none.

        The first look gets two parts of α, so that large differences are found soon; the last two get two and three,
        since small ones are found late or never (benchmarks/estimands.py); looks between get one.
        """
        last = len(self.looks) - 1
        weights = [3 if i == last else 2 if i in (0, last - 1) else 1 for i in range(last + 1)]
        at = self.looks.index(pairs) if pairs in self.looks else last
        return self.alpha * ALPHA_SHARES[endpoint] * weights[at] / sum(weights)

    def smallest_effect(self, base_ns: float) -> float:
        """ln(head/base) from which a difference matters, for a step of `base_ns`."""
        return math.log1p(max(self.min_effect, self.min_abs_ns / base_ns))

    def equivalence_margin(self, base_ns: float) -> float:
        """|ln(head/base)| up to which both sides count as the same, for a step of `base_ns`."""
        return math.log1p(max(self.margin * self._stretched(base_ns), self.min_abs_ns / base_ns))

    def null(self, base_ns: float) -> float:
        """ln(head/base) that `slower` must be significantly above, for a step of `base_ns`."""
        return math.log1p(self.null_effect * self._stretched(base_ns))

    def _stretched(self, base_ns: float) -> float:
        """How far `min_abs_ns` moves a gate's limit, and the bounds below and above it in proportion."""
        gate = self.null_effect > 0 and self.min_effect > 0
        return max(1.0, self.min_abs_ns / base_ns / self.min_effect) if gate else 1.0


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


def smallest_detectable(error: float, dof: float, level: float, power: float, null: float, smallest: float) -> float:
    """Smallest true ln(head/base) called `slower` with this power at a standard error with `dof` degrees.

    `level` is the one-sided level of the test, `null` what it tests against, `smallest` the smallest effect (both ln).
    """
    # Both conditions of `slower` must hold. Significance: the noncentral t that exceeds the look's own quantile with
    # the wanted power; the usual sum of two t quantiles promises 80 % and gives 35 to 55 % (docs/statistics.md).
    shift = float(special.nctdtrinc(dof, 1 - power, t_quantile(1 - level, dof)))
    return max(null + shift * error, smallest + t_quantile(power, dof) * error)
