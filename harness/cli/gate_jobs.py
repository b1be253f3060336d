"""From a policy to the duels it asks for, and from their outcomes to the gate's answer."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from rich.text import Text

from harness.cli.duel_command import DuelOptions, explaining_collector, resolve_sides, timing_collector
from harness.cli.duel_progress import TerminalProgress
from harness.cli.output import clean, stderr_console
from harness.cli.subject_options import subject_cache, warn_of_mismatches
from harness.environment import read_environment
from harness.errors import UsageError, closest
from harness.gate import GateJob, GateResult, Policy, check_machine, judge, run_jobs
from harness.gate.jobs import Against, max_slowdown
from harness.gate.reports import remove_old
from harness.scenario import load_scenario
from harness.store import RESULTS, Baselines, Store, check_writable
from harness.subject import SubjectCache, prepare_engine
from harness.subject.git import merge_base

SHORT_HASH = 12


@dataclass(frozen=True, kw_only=True)
class GateRequest:
    """What the gate was asked for beside its policy."""

    policy: Policy
    names: tuple[str, ...]
    head: str
    base_overrides: tuple[str, ...]
    head_overrides: tuple[str, ...]
    overrides: tuple[str, ...]
    resume: bool
    seed: int | None
    repo: Path
    python: str | None
    allow_mismatch: bool
    reports: Path


def run_gate(request: GateRequest) -> GateResult:
    """Run every duel that the policy asks for. UsageError before the first one where something does not fit."""
    policy = request.policy
    remark = check_machine(policy, read_environment())
    if remark:
        _say(remark)
    with subject_cache() as cache:
        jobs = list(_jobs(request, cache))
        remove_old(request.reports)
        with TerminalProgress() as progress:
            outcomes = run_jobs(jobs, progress, budget_s=policy.budget_s, resume=request.resume, started=_announce)
    return judge(outcomes, policy)


def _jobs(request: GateRequest, cache: SubjectCache) -> Iterator[GateJob]:
    """Every duel of the gate. α is shared evenly while they run; Holm's correction at the end gives some of it back."""
    opponents = list(_opponents(request))
    alpha = request.policy.alpha / len(opponents)
    for scenario, against, base in opponents:
        yield _job(request, scenario, against, base, alpha, cache)


def _opponents(request: GateRequest) -> Iterator[tuple[str, Against, str]]:
    """Yield (scenario, which kind of base, its revision)."""
    policy = request.policy
    base = policy.base or merge_base(request.repo)[:SHORT_HASH]
    check_writable(request.reports / RESULTS)
    for scenario in _chosen(request):
        yield scenario, "base", base
        if policy.limits[scenario].max_creep is not None:
            yield scenario, "baseline", _pinned(scenario, request)


def _chosen(request: GateRequest) -> tuple[str, ...]:
    known = request.policy.scenarios
    for name in request.names:
        if name not in known:
            raise UsageError(
                f"--scenario {name}: {request.policy.source} names no such scenario.{closest(name, known)} "
                f"Allowed: {', '.join(known)}"
            )
    return tuple(name for name in known if not request.names or name in request.names)


def _pinned(scenario: str, request: GateRequest) -> str:
    with Store(request.reports / RESULTS) as store:
        baseline = Baselines(store).of(load_scenario(scenario).name)
    if baseline is None:
        raise UsageError(
            f"{request.policy.source}: max_creep of {scenario} needs a pinned baseline in "
            f"{request.reports / RESULTS}: stepduel baseline set {scenario} REVISION"
        )
    return baseline.revision[:SHORT_HASH]


def _job(
    request: GateRequest, scenario: str, against: Against, base: str, alpha: float, cache: SubjectCache
) -> GateJob:
    policy, limits = request.policy, request.policy.limits[scenario]
    limit = max_slowdown(limits, against)
    # Both thresholds of the rule are the limit: `slower` is a regression, `same` surely none.
    options = DuelOptions(
        overrides=request.overrides,
        ranks=None,
        steps=policy.steps,
        pairs=policy.pairs,
        min_effect=limit,
        min_abs=limits.min_abs_ms,
        margin=limit,
        alpha=alpha,
        interleave="steps",
        pinned=True,
        budget=policy.budget_s,
        seed=request.seed,
        resume=request.resume,
        reports=request.reports,
        as_json=False,
    )
    timing = timing_collector("recorder")
    engine = prepare_engine(
        options.scenario(scenario),
        (base, request.head),
        cache,
        python=request.python,
        allow_mismatch=request.allow_mismatch,
    )
    sides = resolve_sides(
        base, request.head, engine, request.repo, cache, request.base_overrides, request.head_overrides
    )
    warn_of_mismatches(*sides.subjects)
    return GateJob(
        scenario=scenario,
        against=against,
        max_slowdown=limit,
        plan=options.plan(
            "compare",
            scenario,
            sides.subjects,
            (timing, timing),
            explain=explaining_collector("auto", timing),
            cannot_run=sides.cannot_run,
            limits=limits.metrics,
        ),
    )


def _announce(job: GateJob) -> None:
    plan = job.plan
    _say(f"{job.name}: base {plan.base.subject.name}, head {plan.head.subject.name}", "bold")


def _say(text: str, style: str = "") -> None:
    stderr_console().print(Text(clean(text), style=style), soft_wrap=True)
