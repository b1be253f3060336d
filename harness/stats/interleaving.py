"""What taking turns does to the figures: the bias of interleaving, and the effect of stepping second. Pure.

A launch pair also holds a stretch in which each side steps alone while the other is stopped throughout. Where
background work feeds a step (loader workers), a turn of one step finds what was prepared meanwhile; a user never does.

    bias = ln(head/base) alone − ln(head/base) in turn,   both of plain totals

A stretch holds one slow step more or less than its share by where it begins and ends: what comes every tenth step does
not fall evenly. That much is *slack*, the largest excess of a step over the median by the stretch's total, and no bias.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from harness.stats.paired import FloatArray, StepPairs, mean_interval, sample_variance, step_times, t_quantile

BIAS_LIMIT: Final = 0.01
"""A bias up to this, ln, is none: the smallest effect that a duel asks about by default."""
LARGE_BIAS: Final = (0.5, 0.25)
"""Few launch pairs cannot tell scatter; a bias beyond this, ln, in the only one or in each of several is no scatter of
a machine. Biases of the same code scattered by 0.13 (docs/decisions.md)."""
BIAS_LEVEL: Final = 0.995
"""One-sided confidence that it is beyond the limit: a duel asks after each of up to ten launch pairs."""
INTERVAL: Final = 0.95
"""Two-sided confidence of the intervals that are shown."""


@dataclass(frozen=True, kw_only=True, eq=False)
class AlonePair:
    """Step times of one launch pair in turn, and of each side alone, (steps,) ns, slowest ranks."""

    in_turn: StepPairs
    base_ns: FloatArray
    head_ns: FloatArray


@dataclass(frozen=True, kw_only=True)
class Effect:
    """A ratio over launch pairs and its 95 % interval, None where one pair has none."""

    ratio: float
    ci: tuple[float, float] | None


@dataclass(frozen=True, kw_only=True)
class Interleaving:
    """The bias of interleaving. Ratios of step times, alone by in turn; `bias` is head's by base's."""

    pairs: int
    bias: Effect
    base: float
    head: float
    slack: float
    """What the ends of a stretch may make of it, ln."""
    beyond: bool
    """Whether it is surely larger than what counts as none."""


def interleaving(pairs: Sequence[AlonePair]) -> Interleaving | None:
    """Return the bias over launch pairs; None without any."""
    if not pairs:
        return None
    changes = np.array([_changes(pair) for pair in pairs])
    bias = changes[:, 1] - changes[:, 0]
    slack = float(np.median([_slack_of(pair) for pair in pairs]))
    return Interleaving(
        pairs=len(pairs),
        bias=_effect(bias),
        base=math.exp(changes[:, 0].mean()),
        head=math.exp(changes[:, 1].mean()),
        slack=slack,
        beyond=_beyond(bias, slack),
    )


def second_slot(pairs: Sequence[tuple[StepPairs, NDArray[np.bool_]]]) -> Effect | None:
    """Return how much longer a step takes in the second slot of its step pair than in the first.

    `pairs` holds the step times of a launch pair, and in which step pairs base was first. A launch pair in which one
    side was always first does not tell.
    """
    found = []
    for times, base_first in pairs:
        base_ns, head_ns = step_times(times)
        x = np.log(head_ns / base_ns)
        if base_first.any() and not base_first.all():
            found.append((np.median(x[base_first]) - np.median(x[~base_first])) / 2)
    return _effect(np.array(found)) if found else None


def _changes(pair: AlonePair) -> tuple[float, float]:
    """ln of the mean step alone by the mean step in turn, of base and of head."""
    base_ns, head_ns = step_times(pair.in_turn)
    alone = pair.base_ns, pair.head_ns
    base, head = (math.log(one.mean() / turn.mean()) for one, turn in zip(alone, (base_ns, head_ns), strict=True))
    return base, head


def _slack_of(pair: AlonePair) -> float:
    stretches = (*step_times(pair.in_turn), pair.base_ns, pair.head_ns)
    return float(sum((one.max() - np.median(one)) / one.sum() for one in stretches))


def _beyond(bias: FloatArray, slack: float) -> bool:
    mean = float(bias.mean())
    large = np.abs(bias) > max(LARGE_BIAS[min(len(bias), len(LARGE_BIAS)) - 1], slack)
    if large.all() and (np.sign(bias) == np.sign(mean)).all():
        return True
    if len(bias) <= len(LARGE_BIAS):
        return False
    error = math.sqrt(sample_variance(bias.tolist()) / len(bias))
    return abs(mean) - t_quantile(BIAS_LEVEL, len(bias) - 1) * error > BIAS_LIMIT + slack


def _effect(values: FloatArray) -> Effect:
    low, high, _ = (float(part[0]) for part in mean_interval(values[:, None], INTERVAL))
    interval = None if math.isnan(low) else (math.exp(low), math.exp(high))
    return Effect(ratio=math.exp(values.mean()), ci=interval)
