"""One decision over all duels of a gate. Pure: what the duels said in, results and exit code out.

A regression is a slowdown of at least the limit that is significantly above 0.8 of it after Holm's correction over all
duels, or a metric beyond its limit. A pass needs evidence of its own: a slowdown of 1.2 times the limit is ruled out.
(`limit` has the rule, and what it promises.)
Whatever could not be measured is neither, and what is neither fails, except that a policy may let `undecided` pass.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import ClassVar, Final

from harness.analysis.range_part import JudgedPart
from harness.comparison import Comparison, MetricChange
from harness.errors import LaunchError
from harness.gate.jobs import GateJob, JobOutcome
from harness.gate.limit import pairs_to_hold, within
from harness.gate.policy import Policy
from harness.stats.multiple import holm
from harness.stats.rule import Rule
from harness.stats.sequential import Look
from harness.units import change, percent
from harness.verdict import Reason, State


class Result(StrEnum):
    """What one duel means for the gate."""

    PASS = "pass"
    REGRESSION = "regression"
    UNDECIDED = "undecided"
    INVALID = "invalid"
    FAILED = "failed"
    """A launch failed."""
    ERROR = "error"
    """The duel could not be started: the request or the environment does not fit."""
    INTERRUPTED = "interrupted"


EXIT_CODES: Final = {
    Result.PASS: 0,
    Result.REGRESSION: 1,
    Result.ERROR: 2,
    Result.UNDECIDED: 3,
    Result.INVALID: 3,
    Result.FAILED: 4,
    Result.INTERRUPTED: 130,
}
_WORST_FIRST: Final = (
    Result.INTERRUPTED,
    Result.REGRESSION,
    Result.FAILED,
    Result.ERROR,
    Result.INVALID,
    Result.UNDECIDED,
    Result.PASS,
)
"""Of several results the gate ends with the first of these. A regression that was shown stays one."""


@dataclass(frozen=True, kw_only=True)
class Judgement:
    """One duel of the gate, what it means, and why in a line for people."""

    job: GateJob
    comparison: Comparison | None
    result: Result
    counts: bool
    """Whether `result` counts against the head; false for a pass, and for `undecided` where the policy lets it pass."""
    detail: str
    adjusted_p: float | None
    """Holm's p-value of "head is slower by more than 0.8 of the limit" over all duels; None where there was no test."""
    grown: tuple[JudgedPart, ...] = ()
    """Ranges that became significantly slower, the largest first."""


@dataclass(frozen=True, kw_only=True)
class GateResult:
    """The gate's answer."""

    ALSO_IN_DOCUMENT: ClassVar = ("result", "exit_code", "line")

    policy: Policy
    judgements: tuple[Judgement, ...]

    @property
    def result(self) -> Result:
        """The worst result that counts; `pass` if none does."""
        counting = {judgement.result for judgement in self.judgements if judgement.counts}
        return next((result for result in _WORST_FIRST if result in counting), Result.PASS)

    @property
    def exit_code(self) -> int:
        """0 pass, 1 regression, 2 usage or environment, 3 undecided or invalid, 4 a launch failed, 130 interrupted."""
        return EXIT_CODES[self.result]

    @property
    def line(self) -> str:
        """The answer in one line: `REGRESSION: 1 of 2 duels (smoke)`."""
        named = [judgement.job.name for judgement in self.judgements if judgement.result is self.result]
        whole = len(self.judgements)
        if self.result is Result.PASS:
            open_ = whole - len(named)
            return f"PASS: {len(named)} of {whole} within their limits" + (
                f", {open_} undecided, which the policy lets pass" if open_ else ""
            )
        return f"{self.result.upper()}: {len(named)} of {whole} ({', '.join(named)})"


def judge(outcomes: Sequence[JobOutcome], policy: Policy) -> GateResult:
    """Return what the outcomes of all duels of a gate mean under its policy."""
    adjusted = holm(
        [math.nan if outcome.problem is not None else _p_slower(outcome.comparison) for outcome in outcomes]
    )
    return GateResult(
        policy=policy,
        judgements=tuple(_judgement(outcome, float(p), policy) for outcome, p in zip(outcomes, adjusted, strict=True)),
    )


def _p_slower(comparison: Comparison | None) -> float:
    """One-sided p-value of "slower by more than 0.8 of the limit"; NaN where there is none: a test without evidence."""
    if comparison is None or comparison.verdict.p is None or comparison.verdict.ratio is None:
        return math.nan
    slower = comparison.verdict.state is State.SLOWER or comparison.verdict.ratio > 1
    return comparison.verdict.p if slower else 1.0


def _judgement(outcome: JobOutcome, adjusted_p: float, policy: Policy) -> Judgement:
    job, comparison = outcome.job, outcome.comparison
    if outcome.problem is not None or comparison is None:
        result = _of_problem(outcome.problem)
        detail = str(outcome.problem) or "interrupted"
        if comparison is not None:
            detail += f", so far {comparison.verdict.line}"
        return Judgement(job=job, comparison=comparison, result=result, counts=True, detail=detail, adjusted_p=None)
    result, detail = _decided(job, comparison, adjusted_p, policy)
    tested = comparison.verdict.p is not None
    grown = [part for part in comparison.moved if part.delta_ns > 0]
    return Judgement(
        job=job,
        comparison=comparison,
        result=result,
        counts=result is not Result.PASS and not (result is Result.UNDECIDED and policy.undecided == "pass"),
        detail=detail,
        adjusted_p=adjusted_p if tested else None,
        grown=tuple(sorted(grown, key=lambda part: -part.delta_ns)),
    )


def _of_problem(problem: BaseException | None) -> Result:
    if isinstance(problem, LaunchError):
        return Result.FAILED
    return Result.INTERRUPTED if isinstance(problem, KeyboardInterrupt) else Result.ERROR


def _decided(job: GateJob, comparison: Comparison, adjusted_p: float, policy: Policy) -> tuple[Result, str]:
    verdict = comparison.verdict
    if verdict.state is State.INVALID:
        return Result.INVALID, f"{verdict.reason.value}: {verdict.detail}"
    exceeded = [change for change in comparison.metrics if change.exceeded]
    beyond = [*map(_beyond, exceeded), *(figure.line for figure in comparison.launch_figures if figure.exceeded)]
    if beyond:
        return Result.REGRESSION, "; ".join(beyond)
    last = verdict.looks[-1] if verdict.looks else None
    if last is None or verdict.ratio is None:
        return Result.UNDECIDED, verdict.next_step or "too few launch pairs for a first look"
    if last.decisive.mean >= last.smallest_effect and adjusted_p <= policy.alpha:
        return Result.REGRESSION, f"{change(verdict.ratio)}, limit {percent(job.max_slowdown)}"
    # The rule's own `same` and `faster` are passes; so is a head that is surely not slower, whatever else it may be.
    if verdict.state in (State.SAME, State.FASTER) or within(last):
        most = change(math.exp(last.total.pass_high))
        how = "not slower" if verdict.state is State.UNDECIDED else verdict.state.value
        zone = "" if last.total.pass_high <= last.smallest_effect else f", caught from {change(math.exp(last.margin))}"
        return Result.PASS, f"{how}, at most {most}, limit {percent(job.max_slowdown)}{zone}"
    if verdict.reason is Reason.MORE_PAIRS:
        return Result.UNDECIDED, f"time ran out: {verdict.next_step}"
    if verdict.state is State.SLOWER:
        return Result.UNDECIDED, "significant alone, but not among so many duels"
    return Result.UNDECIDED, _too_noisy(job, comparison.rule, last) or verdict.next_step or ""


def _too_noisy(job: GateJob, rule: Rule, last: Look) -> str | None:
    """Say which number of launch pairs would hold the limit, where this duel's scatter keeps those planned from it."""
    spread, planned = math.sqrt(last.total.variance), rule.looks[-1]
    needed = pairs_to_hold(rule, spread)
    if needed is not None and needed <= planned:
        return None
    enough = "no number of them would" if needed is None else f"{needed} would (--pairs {needed})"
    return (
        f"launch pairs scatter by {percent(spread)}: {planned} cannot hold a limit of {percent(job.max_slowdown)}, "
        f"{enough}; stepduel gate --explain-limit tells more"
    )


def _beyond(change: MetricChange) -> str:
    metric = change.metric
    assert change.bound is not None
    assert change.share is not None
    sign = "+" if metric.better == "lower" else "-"
    return (
        f"{metric.title.lower()} {metric.text(change.base)} to {metric.text(change.head)}, "
        f"limit {metric.text(change.bound)} ({sign}{percent(change.share)})"
    )
