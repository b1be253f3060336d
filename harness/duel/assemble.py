"""From what was asked for to the plan of a duel: both subjects, the scenario of each side, the collectors, the rule."""

from __future__ import annotations

import os
import secrets
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from harness.collectors.choice import AUTO, choose
from harness.collectors.cupti import cuda_device_present
from harness.collectors.registry import DEFAULT, UNTRACED, collectors
from harness.duel.loaded import differing, requirement_note
from harness.duel.plan import DuelPlan, DuelSide, Interleave
from harness.errors import UsageError
from harness.metrics import DEFAULT_LIMITS
from harness.scenario import Scenario, ScenarioFile
from harness.stats.rule import Rule
from harness.store import RESULTS, DuelKind, SideName, check_writable
from harness.subject import (
    Engine,
    NoEngineError,
    Subject,
    SubjectCache,
    commit_subject,
    default_names,
    own_interpreter,
    prepare_engine,
    resolve_commit,
    resolve_subject,
)


@dataclass(frozen=True, kw_only=True)
class DuelSettings:
    """How a duel is run, whoever asks for it. `steps` None lets the first launch pair decide; `seed` None draws one."""

    rule: Rule
    steps: int | None = None
    interleave: Interleave = "steps"
    pinned: bool = True
    budget_s: float | None = None
    seed: int | None = None
    limits: Mapping[str, float] = field(default_factory=lambda: DEFAULT_LIMITS)
    """How much worse head's metrics may be, as shares by metric, and figures of its launches, by key of the policy."""
    stop_at_limit: bool = False
    """Whether to make no more launch pairs once a limit is surely exceeded."""
    reports: Path


@dataclass(frozen=True, kw_only=True)
class WantedSides:
    """What is to be compared, as its user names it, and where that is to be found."""

    base: str | None
    head: str | None
    base_overrides: tuple[str, ...] = ()
    head_overrides: tuple[str, ...] = ()
    repo: Path
    python: str | None = None
    base_python: str | None = None
    head_python: str | None = None
    """Instead of `python`, for one side."""
    allow_mismatch: bool = False


def compare_plan(
    source: ScenarioFile,
    wanted: WantedSides,
    settings: DuelSettings,
    cache: SubjectCache,
    *,
    collector: str = DEFAULT,
    explain: str = AUTO,
) -> DuelPlan:
    """Return the plan of a comparison. A revision without the engine is no error: the comparison will say so."""
    timing = timing_collector(collector)
    subjects, cannot_run = _resolve_sides(wanted, _prepare_sides(source.resolve(), wanted, cache), cache)
    return duel_plan(
        "compare",
        source,
        subjects,
        (timing, timing),
        settings,
        explain=explaining_collector(explain, timing),
        cannot_run=cannot_run,
    )


def duel_plan(
    kind: DuelKind,
    source: ScenarioFile,
    subjects: tuple[Subject, Subject],
    collectors: tuple[str, str],
    settings: DuelSettings,
    *,
    explain: str | None = None,
    cannot_run: str | None = None,
) -> DuelPlan:
    """Return the plan of a duel between two subjects, each with its collector. UsageError if something is off."""

    def side(name: SideName, subject: Subject, collector: str) -> DuelSide:
        scenario = source.overridden(_engine_overrides(name, subject.overrides)).resolve()
        return DuelSide(name=name, subject=subject, scenario=scenario, collector=collector)

    check_writable(settings.reports / RESULTS)
    return DuelPlan(
        kind=kind,
        scenario=source.resolve(),
        base=side("base", subjects[0], collectors[0]),
        head=side("head", subjects[1], collectors[1]),
        rule=settings.rule,
        steps=settings.steps,
        interleave=settings.interleave,
        pinned=settings.pinned,
        seed=secrets.randbits(31) if settings.seed is None else settings.seed,
        budget_s=settings.budget_s,
        explain=explain,
        cannot_run=cannot_run,
        limits=settings.limits,
        stop_at_limit=settings.stop_at_limit,
        reports=settings.reports,
    )


def _engine_overrides(side: SideName, given: tuple[str, ...]) -> tuple[str, ...]:
    """Return the overrides of one side. Only the engine may differ: steps, seed and probes must agree on both sides."""
    for text in given:
        if not text.strip().startswith("engine."):
            raise UsageError(
                f"--{side}-set {text}: only engine.KEY=VALUE may differ between the sides; --set changes both"
            )
    return given


def _prepare_sides(scenario: Scenario, wanted: WantedSides, cache: SubjectCache) -> dict[SideName, Engine]:
    """Return the engine of each side with its interpreter: one for both, unless the user asks for two."""

    def prepared(python: str | None) -> Engine:
        return prepare_engine(
            scenario, (wanted.base, wanted.head), cache, python=python, allow_mismatch=wanted.allow_mismatch
        )

    pythons: dict[SideName, str | None] = {
        "base": wanted.base_python or wanted.python,
        "head": wanted.head_python or wanted.python,
    }
    engines = {python: prepared(python) for python in dict.fromkeys(pythons.values())}
    found = {side: engines[python] for side, python in pythons.items()}
    if len(engines) > 1:  # what differs is told, so both are asked what they have
        found = {
            side: engine if engine.interpreter else replace(engine, interpreter=own_interpreter())
            for side, engine in found.items()
        }
    return found


def _resolve_sides(
    wanted: WantedSides, engines: Mapping[SideName, Engine], cache: SubjectCache
) -> tuple[tuple[Subject, Subject], str | None]:
    """Return both subjects, and why one of them cannot be started at all, if so."""
    overrides: dict[SideName, tuple[str, ...]] = {"base": wanted.base_overrides, "head": wanted.head_overrides}
    names = default_names(wanted.base, wanted.head, wanted.repo, one_code=any(overrides.values()))
    subjects, missing = [], []
    for side, name in zip(overrides, names, strict=True):
        try:
            subjects.append(resolve_subject(name, engines[side], wanted.repo, cache, overrides=overrides[side]))
        except NoEngineError as error:
            missing.append(f"{side} cannot run the scenario: {error}")
            commit = resolve_commit(wanted.repo, name)
            subjects.append(
                Subject(
                    name=name,
                    engine_root=None,
                    python=engines[side].python,
                    revision=commit,
                    dirty=False,
                    commit_subject=commit_subject(wanted.repo, commit),
                    overrides=overrides[side],
                )
            )
    base, head = subjects
    differs = differing({"base": base, "head": head})
    note = None if differs is None else requirement_note({"base": base, "head": head}, differs)
    if note is not None:
        subjects[1] = replace(head, caveats=(note,))
    if len(missing) == len(subjects):
        raise UsageError("; ".join(missing))
    if not missing:
        return (subjects[0], subjects[1]), None
    places = [
        f"; {subject.name} has it in {subject.engine_root.relative_to(subject.checkout.tree)}/"
        for subject in subjects
        if subject.engine_root is not None and subject.checkout is not None
    ]
    return (subjects[0], subjects[1]), missing[0] + "".join(places)


def timing_collector(name: str) -> str:
    """Return the collector of the timed launches, checked to work here."""
    return choose(name, collectors(), os.environ).collector.name


def explaining_collector(wanted: str, timing: str) -> str | None:
    """Return what traces the launch pair that explains GPU time; None for no such pair.

    `auto` takes one where there is a GPU and a collector that sees it: else it shows nothing that the timed launches
    lack.
    """
    if wanted in (UNTRACED, timing):
        return None
    if wanted != AUTO:
        return timing_collector(wanted)
    if not cuda_device_present(os.environ):
        return None
    best = choose(AUTO, collectors(), os.environ).collector
    return best.name if best.abilities.sees_gpu and best.name != timing else None
