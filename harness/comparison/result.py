"""The result of a comparison: one frozen object with everything that a terminal, a report or a program shows."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from harness.analysis.range_part import JudgedPart
from harness.comparison.environments import VersionChange, version_changes
from harness.comparison.launch_figures import LaunchFigureChange
from harness.comparison.metric_changes import MetricChange
from harness.comparison.same_work import SameWork
from harness.stats.interleaving import Effect, Interleaving
from harness.stats.rule import Rule
from harness.stats.variance_prior import VariancePrior
from harness.store import DuelRecord
from harness.units import percent, plural, some_of
from harness.verdict import Reason, State, Verdict

LEAST_SHARE_OF_CHANGE = 0.05
LEAST_SHARE_OF_EFFECT = 0.1
"""A part matters from this share of the whole difference on, and of the smallest effect that the rule asks about."""
EXIT_SLOWER = 1
EXIT_NO_VERDICT = 3


@dataclass(frozen=True, kw_only=True)
class Side:
    """One subject of a duel. Its step time is the sum of its parts in `Comparison.ranges` (`analysis.attribution`)."""

    ALSO_IN_DOCUMENT: ClassVar = ("label",)

    name: str
    """`base` or `head`."""
    subject: str
    revision: str | None
    dirty: bool | None
    commit_subject: str | None = None
    """First line of its commit's message; None of releases, and of duels that were stored without it."""
    overrides: tuple[str, ...]
    versions: Mapping[str, str]
    step_ns: float | None
    loaded: Mapping[str, Any] | None = None
    """What its ranks loaded (`duel.homes`); None until a launch pair has ended, and of older duels."""

    @property
    def label(self) -> str:
        """What a person would call it: subject, short revision, overrides."""
        parts = [self.subject]
        if self.revision and not self.revision.startswith(self.subject):
            parts.append(f"({self.revision[:10]}{' with changes' if self.dirty else ''})")
        return " ".join([*parts, *self.overrides])


@dataclass(frozen=True, kw_only=True)
class Pair:
    """One launch pair. `ratio` is that of the total time, `typical_ratio` the median over step pairs of head/base.

    `base_ns` and `head_ns` are the mean step, capped as `stats.estimands` says. None where it could not be judged.
    """

    number: int
    started_at: str
    starter: str
    start_ns: int
    ratio: float | None
    typical_ratio: float | None
    base_ns: float | None
    head_ns: float | None
    steps: int
    turn_steps: int
    """Steps of a turn. Only the launch pairs with the longest are judged."""
    base_first: int
    """Step pairs in which base stepped first."""
    conditions: Mapping[str, Any]
    base_launch: Mapping[str, Any]
    head_launch: Mapping[str, Any]
    base_steps_ns: tuple[int, ...]
    """Time of each measured step on its slowest rank."""
    head_steps_ns: tuple[int, ...]


@dataclass(frozen=True, kw_only=True)
class Comparison:
    """Everything a duel found out, computed from its stored rows alone."""

    ALSO_IN_DOCUMENT: ClassVar = ("cores", "ci_level", "environment_changes", "caveats")

    duel: DuelRecord
    environment: Mapping[str, Any]
    base: Side
    head: Side
    rule: Rule
    prior: VariancePrior | None
    verdict: Verdict
    ranges: tuple[JudgedPart, ...]
    """The step-time difference in parts (`analysis.attribution`), mean ns a step over the launch pairs."""
    uncapped_delta_ns: float | None
    """The difference of the plain mean steps; that of `ranges` is capped (`stats.estimands`). None without any."""
    same_work: SameWork
    metrics: tuple[MetricChange, ...]
    launch_figures: tuple[LaunchFigureChange, ...]
    """Start-up, first step, and what grows from step to step."""
    pairs: tuple[Pair, ...]
    turn_steps: int = 1
    """Steps of a turn in the launch pairs that are judged: the longest there were."""
    next_turn_steps: int = 1
    """Longer where the next launch pair is to have longer turns."""
    interleaving: Interleaving | None = None
    """What steps alone say that steps in turn do not; None where no side stepped alone."""
    second_slot: Effect | None = None
    """How much longer a step takes in the second slot of its step pair."""

    @property
    def cores(self) -> list[list[int]] | None:
        """The processor cores that each rank of both sides kept to; None where they ran on any."""
        found = [launch.get("cores") for pair in self.pairs for launch in (pair.base_launch, pair.head_launch)]
        return found[0] if found and all(cores == found[0] for cores in found) else None

    @property
    def placement(self) -> str:
        """The same for people."""
        if self.cores is None:
            return "on any core"
        return "on core " + ", ".join("+".join(map(str, cores)) for cores in self.cores)

    @property
    def environment_changes(self) -> tuple[VersionChange, ...]:
        """What both sides' environments have in other versions, as far as they are known."""
        base, head = (
            (subject.get("environment") or {}) | {"engine": side.versions}
            for subject, side in ((self.duel.base, self.base), (self.duel.head, self.head))
        )
        if "versions" in base and "versions" in head:
            return version_changes(
                {"python": base["python"], **base["versions"]}, {"python": head["python"], **head["versions"]}
            )
        return version_changes(base["engine"], head["engine"]) if base["engine"] and head["engine"] else ()

    @property
    def caveats(self) -> tuple[str, ...]:
        """What else differs between the sides, or was asked for and not measured: to be read beside the verdict."""
        found = []
        if self.environment_changes:
            found.append(f"environments differ: {some_of([one.text for one in self.environment_changes])}")
        for name, subject in (("base", self.duel.base), ("head", self.duel.head)):
            if subject.get("mismatches"):
                found.append(f"{name} runs with {', '.join(subject['mismatches'])}")
            found += subject.get("caveats") or ()
        return tuple(found)

    @property
    def ci_level(self) -> float:
        """Confidence of the interval of the total that the verdict shows: 0.9 for `same`, its look's otherwise."""
        rule = self.rule
        return 2 * rule.pass_level - 1 if self.verdict.state is State.SAME else 1 - 2 * rule.level(self.verdict.pairs)

    @property
    def moved(self) -> tuple[JudgedPart, ...]:
        """The parts that moved beyond chance and by an amount that matters, largest first.

        A part measured well enough is significant however small; what a person should look at is not.
        """
        whole_ns = abs(sum(part.delta_ns for part in self.ranges))
        effect_ns = self.rule.min_effect * (self.base.step_ns or 0.0)
        least_ns = max(LEAST_SHARE_OF_CHANGE * whole_ns, LEAST_SHARE_OF_EFFECT * effect_ns)
        return tuple(part for part in self.ranges if part.significant and abs(part.delta_ns) >= max(least_ns, 1))

    @property
    def load(self) -> tuple[float, float] | None:
        """The least and the greatest load average that a launch pair ended with."""
        loads = [pair.conditions["load_average"] for pair in self.pairs if "load_average" in pair.conditions]
        return (min(loads), max(loads)) if loads else None

    @property
    def disturbances(self) -> str:
        """Stolen time, clocks and throttling while the launch pairs were made, for people; empty if none is known."""
        known = [pair.conditions for pair in self.pairs]

        def told(key: str) -> list[float]:
            return [row[key] for row in known if row.get(key) is not None]

        steal, clocks, throttled = told("steal_share"), told("clock_mhz"), sum(told("throttled"))
        parts = [f"stolen time up to {percent(max(steal))}"] if steal else []
        parts += [f"clock {min(clocks):,.0f} to {max(clocks):,.0f} MHz"] if clocks else []
        parts += [f"throttled {plural(round(throttled), 'time')}"] if throttled else []
        return ", ".join(parts)

    @property
    def unfinished(self) -> bool:
        """Whether there are launch pairs, and the rule asks for more."""
        return bool(self.pairs) and self.verdict.reason is Reason.MORE_PAIRS

    @property
    def beyond_limits(self) -> bool:
        """Whether what head is limited in lies beyond it in every launch pair, so that another one changes nothing."""
        made = len(self.pairs)
        told = any(change.exceeded and change.pairs_beyond == made for change in self.metrics)
        return made >= self.rule.looks[0] and (told or any(figure.exceeded for figure in self.launch_figures))

    def exit_code(self, *, slower_fails: bool = False) -> int:
        """Return 3 where there is no verdict, 1 for `slower` if that is asked for, and 0 otherwise."""
        if self.verdict.state in (State.UNDECIDED, State.INVALID):
            return EXIT_NO_VERDICT
        return EXIT_SLOWER if slower_fails and self.verdict.state is State.SLOWER else 0
