"""What measurements of the same kind add to one: lent variance, and a warning for odd points.

Four launch pairs give three degrees of freedom, for which the t quantile is large. Same-code duels on the same machine
know how noisy the machine is. `estimate_prior` fits a scaled inverse chi-square distribution to their variances (Smyth
2004, as in limma), and `VariancePrior.pooled` lends its degrees of freedom to a new duel. It is one-sided on purpose:
history may shorten the t quantile, never the noise that was just observed. The ranges of one duel lend to each other in
the same way (`moderated_interval`).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

import numpy as np
from scipy import special

from harness.stats.paired import FloatArray, mean_interval, sample_variance, t_interval, t_quantile

MIN_DUELS = 20
"""Same-code duels, or ranges, that it takes before any variance is lent."""
MAX_LENT_DOF = 6.0
MIN_POINTS = 10
"""Points of the same key before a new one can be called suspicious."""
SUSPICIOUS_LEVEL = 0.99


@dataclass(frozen=True, kw_only=True)
class VariancePrior:
    """Variance of d_k that a machine and scenario are known for, worth `dof` degrees of freedom."""

    dof: float
    variance: float
    duels: int

    def pooled(self, observed_variance: float, pairs: int) -> tuple[float, float]:
        """Return `(variance, degrees of freedom)` for a duel of `pairs` launch pairs with this observed variance."""
        dof = self.dof + pairs - 1
        lent = (self.dof * self.variance + (pairs - 1) * observed_variance) / dof
        return max(observed_variance, lent), dof


def estimate_prior(variances: Sequence[float], pairs: Sequence[int]) -> VariancePrior | None:
    """Fit the prior to the variances s_i² of d_k of stored same-code duels, each with its number of launch pairs.

    Returns None when fewer than `MIN_DUELS` usable duels are given; a duel is usable if it has at least two pairs and a
    positive, finite variance. Duels stop at different looks, so ψ′((K−1)/2) is averaged over them.
    """
    known = [
        (s2, (k - 1) / 2) for s2, k in zip(variances, pairs, strict=True) if k >= 2 and math.isfinite(s2) and s2 > 0
    ]
    if len(known) < MIN_DUELS:
        return None
    s2, half_dof = np.array(known).T
    e = np.log(s2) - special.digamma(half_dof) + np.log(half_dof)
    # What the variances scatter beyond what so few pairs explain; nothing left means the machine's noise is constant.
    excess = float(np.var(e, ddof=1) - np.mean(special.polygamma(1, half_dof)))
    dof = MAX_LENT_DOF if excess <= 0 else min(2 * inverse_trigamma(excess), MAX_LENT_DOF)
    log_variance = float(np.mean(e) + special.digamma(dof / 2) - math.log(dof / 2))
    return VariancePrior(dof=dof, variance=math.exp(log_variance), duels=len(known))


def moderated_interval(
    values: FloatArray, scale: FloatArray, confidence: float
) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Return `paired.t_interval` of the mean over the rows of a (pairs, parts) array; the parts lend variance.

    They lend it to each other: variances are alike as shares of `scale`, (parts,) in the unit of the values. Where
    fewer than `MIN_DUELS` parts scatter each has its own.
    """
    count = len(values)
    mean, error = values.mean(axis=0), np.full(len(scale), np.nan)
    if count < 2:
        return mean_interval(values, confidence)
    variances = values.var(axis=0, ddof=1)
    usable = (scale > 0) & (variances > (1e-12 * np.abs(mean)) ** 2)
    prior = estimate_prior((variances[usable] / scale[usable] ** 2).tolist(), [count] * int(usable.sum()))
    if prior is None:
        return mean_interval(values, confidence)
    for at in np.flatnonzero(usable):
        variance, dof = prior.pooled(float(variances[at] / scale[at] ** 2), count)
        error[at] = math.sqrt(variance / count) * scale[at]
    return t_interval(mean, error, dof, confidence)


def inverse_trigamma(value: float) -> float:
    """Return x > 0 with ψ′(x) = value, by Newton steps on 1/ψ′, which is nearly straight (Smyth 2004, appendix)."""
    if not value > 0:
        raise ValueError(f"inverse trigamma of {value}: expected a positive number")
    if value > 1e7:
        return 1 / math.sqrt(value)
    if value < 1e-6:
        return 1 / value
    x = 0.5 + 1 / value
    for _ in range(50):
        trigamma = float(special.polygamma(1, x))
        change = trigamma * (1 - trigamma / value) / float(special.polygamma(2, x))
        x += change
        if abs(change) < 1e-10 * x:
            break
    return x


class Suspicion(StrEnum):
    """How a new point of a history compares with the earlier ones of its key."""

    USUAL = "usual"
    SUSPICIOUS = "suspicious"
    UNKNOWN = "unknown"


def suspicion(value: float, earlier: Sequence[float]) -> Suspicion:
    """Say whether `value` (larger is worse) lies above the 99 % prediction bound of `earlier` points of the same key.

    `UNKNOWN` when fewer than `MIN_POINTS` points are given, one is not finite, or all are equal: never taken for usual.
    """
    count = len(earlier)
    if count < MIN_POINTS or not all(map(math.isfinite, (value, *earlier))):
        return Suspicion.UNKNOWN
    spread = math.sqrt(sample_variance(earlier))
    if spread == 0:
        return Suspicion.UNKNOWN
    bound = float(np.mean(earlier)) + t_quantile(SUSPICIOUS_LEVEL, count - 1) * spread * math.sqrt(1 + 1 / count)
    return Suspicion.SUSPICIOUS if value > bound else Suspicion.USUAL


def confirmed(value: float, rerun: float, earlier: Sequence[float]) -> Suspicion:
    """Say whether a point and its re-run are both suspicious; one alone is taken for bad luck."""
    both = {suspicion(value, earlier), suspicion(rerun, earlier)}
    if Suspicion.UNKNOWN in both:
        return Suspicion.UNKNOWN
    return Suspicion.SUSPICIOUS if both == {Suspicion.SUSPICIOUS} else Suspicion.USUAL


def instrument_p(alarms: int, duels: int, alarm_rate: float) -> float:
    """Chance of at least so many `slower` or `faster` verdicts among same-code duels of an instrument in order.

    `alarm_rate` is what the rule allows, both directions together (2α). A small result means the instrument is broken.
    """
    if not 0 <= alarms <= duels:
        raise ValueError(f"{alarms} alarms in {duels} duels")
    return 1.0 if alarms == 0 else float(special.bdtrc(alarms - 1, duels, alarm_rate))
