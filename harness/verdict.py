"""The verdict of a duel: one of five states, the reason for it, its numbers, and what to do next.

Pure: step times in, a frozen `Verdict` out, the same for a duel under way and for one recomputed from the store.
Nothing that failed is ever `same` or `faster`: what cannot be judged is `invalid` with the reason, what has not been
settled is `undecided` with the launch pairs that would settle it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import ClassVar, Final

from harness.names import PATH_SEPARATOR, STEP
from harness.stats.estimands import PairDifference, pair_differences
from harness.stats.paired import Problem, StepPairs, UnusableError
from harness.stats.periods import Period, longest_period
from harness.stats.power import detectable_at_the_end, pairs_to_decide
from harness.stats.rule import DEFAULT_LOOKS, Endpoint, Rule
from harness.stats.sequential import Look, Outcome, replay
from harness.stats.trend import FAR_STEP
from harness.stats.variance_prior import VariancePrior
from harness.units import change, milliseconds, ordinal, percent, time_text

USELESS_EFFECT = 1.0
"""A slowdown that can be seen only from here on, a doubling, is as good as none: no figure is given."""


class State(StrEnum):
    """What a verdict says about head against base."""

    FASTER = "faster"
    SLOWER = "slower"
    SAME = "same"
    UNDECIDED = "undecided"
    INVALID = "invalid"


class Reason(StrEnum):
    """Reason codes: stable, for programs. `Verdict.detail` and `Verdict.next_step` say it in words."""

    BEYOND_MIN_EFFECT = "beyond_min_effect"
    """`slower` or `faster`: significant and at least the smallest effect that matters."""
    WITHIN_MARGIN = "within_margin"
    """`same`: the interval lies inside the margin."""
    MORE_PAIRS = "more_pairs"
    """`undecided`: planned looks are left, the duel goes on or was cut short."""
    TOO_NOISY = "too_noisy"
    """`undecided`: all planned pairs were made, and their scatter hides differences that would matter."""
    BETWEEN_LIMITS = "between_limits"
    """`undecided`: measured well, but the difference lies too near a limit to say on which side it is."""
    UNEVEN_HICCUPS = "uneven_hiccups"
    """`undecided`: total and typical step agree, but one side has more odd slow steps than chance gives it."""
    INTERLEAVING_BIAS = "interleaving_bias"
    """`undecided`: steps alone surely say something else, even beside the longest turns, and it would not hold."""
    NO_STEPS = Problem.NO_STEPS.value
    UNEQUAL_STEPS = Problem.UNEQUAL_STEPS.value
    UNEQUAL_RANKS = Problem.UNEQUAL_RANKS.value
    NOT_A_TIME = Problem.NOT_A_TIME.value
    ZERO_VARIANCE = Problem.ZERO_VARIANCE.value
    DIFFERENT_WORK = "different_work"
    CANNOT_RUN = "cannot_run"
    MIXED_SIDES = "mixed_sides"
    """`invalid`: a side loaded files of the user's working tree that are not those of its commit."""
    UNBUILT = "unbuilt"
    """`invalid`: one side loaded code that was built or generated, and git ignores; the other lacks it."""
    IDENTICAL_CODE = "identical_code"
    """`same`, after one launch pair: nothing that was loaded differs between the sides."""
    CLOCK = "clock"
    """`invalid`: a side's times cannot be true on the coordinator's clock, or not beside its own trace."""


@dataclass(frozen=True, kw_only=True)
class Objection:
    """Why a comparison ends however its times look, found outside the statistics (by the duel)."""

    reason: Reason
    detail: str
    next_step: str | None = None


@dataclass(frozen=True, kw_only=True)
class SlowerRange:
    """A range that is certainly slower, whatever the whole is. Times are self time, mean a step."""

    path: str
    delta_ns: float
    ci_ns: tuple[float, float]


@dataclass(frozen=True, kw_only=True)
class Slowing:
    """Head's step surely gets longer from step to step, beyond what base's does (`stats.trend`)."""

    ALSO_IN_DOCUMENT: ClassVar = ("at_far_step_ns",)

    ns_per_step: float
    ci_ns: tuple[float, float]

    @property
    def at_far_step_ns(self) -> float:
        """What it comes to at `FAR_STEP` if it goes on like that."""
        return self.ns_per_step * FAR_STEP


@dataclass(frozen=True, kw_only=True)
class Verdict:
    """A verdict and every number it rests on. Ratios are head/base; absent numbers are None, never NaN.

    `ratio` is that of total time, what users pay, and `typical_ratio` that of the typical step (`stats.estimands`).
    `ci` is the interval of `ratio`: for `same` the one held against the margin, otherwise the one held against 1.
    `detectable_effect` is a fraction: the slowdown found with 80 % power by `detectable_pairs`, all launch pairs that
    this duel may make, at the scatter of those it made. `longest_period` is in steps: what comes less often than that
    was not seen three times in a launch, and the verdict says nothing about it.
    """

    ALSO_IN_DOCUMENT: ClassVar = ("line",)

    state: State
    reason: Reason
    ratio: float | None = None
    typical_ratio: float | None = None
    alone_ratio: float | None = None
    """`ratio` as steps alone say it, where that is surely something else (`stats.interleaving`)."""
    ci: tuple[float, float] | None = None
    p: float | None = None
    pairs: int
    steps_per_pair: int
    longest_period: int = 0
    period: Period | None = None
    """What one side pays at every Nth step, where a comparison found that."""
    slower_range: SlowerRange | None = None
    """Of an undecided duel, where a comparison found one: the range that certainly costs most."""
    slowing: Slowing | None = None
    """Of head, where a comparison found one. It is no part of `state`: that is about the steps that were made."""
    detectable_effect: float | None = None
    detectable_pairs: int | None = None
    next_step: str | None = None
    detail: str | None = None
    looks: tuple[Look, ...] = ()

    @property
    def line(self) -> str:
        """The verdict in one line, as the terminal and every report show it."""
        head = self.state.upper()
        if self.ratio is None:
            return f"{head} {self.reason}: {self.detail}" if self.detail else f"{head} {self.reason}"
        parts = [f"{head} {change(self.ratio, self.ci)} in total"]
        if self.typical_ratio is not None:
            parts[0] += f", {change(self.typical_ratio)} in the typical step"
        if self.alone_ratio is not None:
            parts[0] += f", {change(self.alone_ratio)} alone"
        if self.period is not None:
            parts[0] += f": {period_text(self.period)}"
        if self.slower_range is not None:
            parts[0] += f"; {slower_text(self.slower_range)}"
        if self.slowing is not None:
            parts[0] += f"; {slowing_text(self.slowing)}"
        if self.p is not None:
            parts.append(f"p = {self.p:.2g}" if self.p >= 0.0001 else "p < 0.0001")
        parts.append(f"{self.pairs} {'pair' if self.pairs == 1 else 'pairs'} x {self.steps_per_pair} steps")
        if self.detectable_effect is not None:
            seen = [] if self.interval_says_more else [f"detectable {self.detectable_text}"]
            parts.append(f"({', '.join([*seen, self.periods_text])})")
        return "  ".join(parts)

    @property
    def periods_text(self) -> str:
        """Which periods its launches can show."""
        return f"periods up to {self.longest_period} steps" if self.longest_period > 1 else "too few steps for a period"

    @property
    def interval_says_more(self) -> bool:
        """Whether it is `same` although only more than the margin would surely have been `slower`.

        To call it `same` is easier than to call it `slower`, so the interval excludes slowdowns that might have ended
        `undecided`.
        """
        margin = self.looks[-1].margin if self.looks else math.inf
        return self.state is State.SAME and math.log1p(self.detectable_effect or 0.0) > margin

    @property
    def detectable_text(self) -> str:
        """`detectable_effect` for people, with the launch pairs that it takes where this duel made fewer."""
        assert self.detectable_effect is not None
        more = (self.detectable_pairs or 0) > self.pairs
        return detectable_text(self.detectable_effect) + (f" with {self.detectable_pairs} pairs" if more else "")


def period_text(period: Period) -> str:
    """Return a period for people: `40.0 ms more at every 8th step, in forward_backward`."""
    what = f"{milliseconds(abs(period.extra_ns))} ms {'more' if period.extra_ns > 0 else 'less'}"
    where = "" if period.path is None else f", in {period.path}"
    return f"{what} at every {ordinal(period.every)} step{where}"


def slower_text(slower: SlowerRange) -> str:
    """Return a slower range for people: `train_batch is slower by 1.744 ms [1.555, 1.933]`."""
    name = slower.path.removeprefix(f"{STEP}{PATH_SEPARATOR}")
    low, high = map(milliseconds, slower.ci_ns)
    return f"{name} is slower by {milliseconds(slower.delta_ns)} ms [{low}, {high}]"


def slowing_text(slowing: Slowing) -> str:
    """Return it for people: `gets slower by 14.2 µs a step [12.0 µs, 16.4 µs], 142.0 ms by step 10,000`."""
    low, high = map(time_text, slowing.ci_ns)
    by = f"{time_text(slowing.at_far_step_ns)} by step {FAR_STEP:,}"
    return f"gets slower by {time_text(slowing.ns_per_step)} a step [{low}, {high}], {by}"


def detectable_text(detectable_effect: float) -> str:
    """Return a minimum detectable effect, a fraction, for people: `≥ 1.6 %`, or `> 100 %` from a doubling on."""
    return "> 100 %" if detectable_effect >= USELESS_EFFECT else f"≥ {percent(detectable_effect)}"


def decide(
    pairs: Sequence[StepPairs],
    rule: Rule | None = None,
    *,
    prior: VariancePrior | None = None,
    objection: Objection | None = None,
) -> Verdict:
    """Return the verdict on these launch pairs, in the order they were made.

    Call it after each pair: `undecided` with `Reason.MORE_PAIRS` asks for another. The looks are replayed from the
    first, so the same pairs always give the same verdict. An `objection` makes the verdict invalid whatever the times.
    """
    rule = rule or Rule()
    steps = min((len(pair.base_ns) for pair in pairs), default=0)
    if objection is not None:
        return _settled(objection.reason, objection.detail, len(pairs), steps, objection.next_step)
    try:
        differences = pair_differences(pairs)
        if not differences:
            raise UnusableError(Problem.NO_STEPS, "no launch pair was measured")
        looks = replay(pairs, rule, prior)
    except UnusableError as error:
        return _settled(Reason(error.problem.value), str(error), len(pairs), steps)
    if not looks:
        return _too_few(differences, rule)
    judged = differences[: looks[-1].pairs]
    if looks[-1].outcome is Outcome.OPEN:
        return _undecided(looks, judged, len(pairs), rule)
    reason = Reason.WITHIN_MARGIN if looks[-1].outcome is Outcome.SAME else Reason.BEYOND_MIN_EFFECT
    return _with_numbers(State(looks[-1].outcome.value), reason, looks, judged, rule)


def _with_numbers(
    state: State,
    reason: Reason,
    looks: Sequence[Look],
    judged: Sequence[PairDifference],
    rule: Rule,
    next_step: str | None = None,
) -> Verdict:
    last, total = looks[-1], looks[-1].total
    low, high = (total.pass_low, total.pass_high) if state is State.SAME else (total.low, total.high)
    steps = min(difference.steps for difference in judged)
    return Verdict(
        state=state,
        reason=reason,
        ratio=math.exp(total.mean),
        typical_ratio=math.exp(last.typical.mean),
        ci=(math.exp(low), math.exp(high)),
        p=last.decisive.p,
        pairs=last.pairs,
        steps_per_pair=steps,
        longest_period=longest_period(steps),
        detectable_effect=math.expm1(detectable_at_the_end(last, rule)),
        detectable_pairs=rule.looks[-1],
        next_step=next_step,
        detail=_DECIDED_BY.get(last.endpoint),
        looks=tuple(looks),
    )


_DECIDED_BY: Final = {
    Endpoint.TYPICAL: "decided by the typical step: in total it does not show beyond scatter",
    Endpoint.UNCAPPED: "decided by slow steps that come at no fixed step: the total counts them as the machine's",
}


def _undecided(looks: Sequence[Look], judged: Sequence[PairDifference], made: int, rule: Rule) -> Verdict:
    last, planned = looks[-1], rule.looks[-1]
    if last.pairs < planned:
        step = f"{made} of {planned} planned launch pairs made: go on with --resume"
        return _with_numbers(State.UNDECIDED, Reason.MORE_PAIRS, looks, judged, rule, step)
    total = last.total
    spread = f"launch pairs scatter by {percent(math.sqrt(total.variance))}"
    enough = pairs_to_decide(last, rule)
    noisy = (total.high - total.low) / 2 > max(last.margin, last.smallest_effect)
    if planned < DEFAULT_LOOKS[0]:  # their own scatter is hardly known, so neither is how many more would do
        step = f"{planned} launch pairs can detect no slowdown below 100 %: make {DEFAULT_LOOKS[0]} at least (--pairs)"
    elif last.uneven_cuts:
        step = (
            f"{last.head_cut_steps} odd slow steps in head, {last.base_cut_steps} in base, worth "
            f"{change(math.exp(last.uncapped.mean))} in all: more pairs or steps show whose they are (--steps)"
        )
    elif enough is None:
        step = f"{spread} around a difference on a limit: choose another margin or smallest effect"
    elif noisy:
        step = (
            f"{spread}: about {enough} pairs would settle a difference like this (--pairs {enough}), "
            "fewer on a quieter machine (stepduel doctor)"
        )
    else:
        step = f"the difference is close to a limit: about {enough} pairs would settle it (--pairs {enough})"
    reason = Reason.TOO_NOISY if noisy else Reason.BETWEEN_LIMITS
    reason = Reason.UNEVEN_HICCUPS if last.uneven_cuts else reason
    return _with_numbers(State.UNDECIDED, reason, looks, judged, rule, step)


def _too_few(differences: Sequence[PairDifference], rule: Rule) -> Verdict:
    """Fewer pairs than the first look needs: an estimate, and nothing that could be taken for evidence."""
    made = len(differences)
    steps = min(difference.steps for difference in differences)
    return Verdict(
        state=State.UNDECIDED,
        reason=Reason.MORE_PAIRS,
        ratio=math.exp(sum(difference.total for difference in differences) / made),
        typical_ratio=math.exp(sum(difference.typical for difference in differences) / made),
        pairs=made,
        steps_per_pair=steps,
        longest_period=longest_period(steps),
        next_step=f"{made} of {rule.looks[0]} launch pairs for a first look: go on with --resume or a larger --budget",
    )


def _settled(reason: Reason, detail: str, pairs: int, steps: int, next_step: str | None = None) -> Verdict:
    state = State.SAME if reason is Reason.IDENTICAL_CODE else State.INVALID
    return Verdict(state=state, reason=reason, detail=detail, pairs=pairs, steps_per_pair=steps, next_step=next_step)
