"""From a policy to the duels it asks for, and from their outcomes to the gate's answer."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final, Protocol

from harness.duel import DuelSettings, Progress, WantedSides, compare_plan
from harness.environment import read_environment
from harness.errors import UsageError, closest
from harness.gate.decision import GateResult, judge
from harness.gate.jobs import Against, GateJob, check_machine, max_slowdown, run_jobs
from harness.gate.policy import Policy
from harness.gate.reports import remove_old
from harness.scenario import ScenarioFile, read_scenario
from harness.stats.rule import Rule, planned_looks
from harness.store import RESULTS, Baselines, Store, check_writable
from harness.subject import SubjectCache, merge_base

SHORT_HASH: Final = 12


@dataclass(frozen=True, kw_only=True)
class GateRequest:
    """What the gate was asked for beside its policy. Where `wanted` has no base, that is the merge-base."""

    policy: Policy
    names: tuple[str, ...]
    wanted: WantedSides
    overrides: tuple[str, ...]
    resume: bool
    seed: int | None
    reports: Path


class GateProgress(Progress, Protocol):
    """What a gate tells while it runs, beside what its duels tell."""

    def remark(self, text: str) -> None:
        """Something about the machine or the policy that the user should know."""

    def planned(self, job: GateJob) -> None:
        """A job has its subjects and its plan; none has been run yet."""

    def started(self, job: GateJob) -> None:
        """A job is being run."""


def run_gate(request: GateRequest, cache: SubjectCache, progress: GateProgress) -> GateResult:
    """Run every duel that the policy asks for. UsageError before the first one where something does not fit."""
    policy = request.policy
    remark = check_machine(policy, read_environment())
    if remark:
        progress.remark(remark)
    jobs = []
    for job in _jobs(request, cache):
        progress.planned(job)
        jobs.append(job)
    remove_old(request.reports)
    outcomes = run_jobs(jobs, progress, budget_s=policy.budget_s, resume=request.resume, started=progress.started)
    return judge(outcomes, policy)


def _jobs(request: GateRequest, cache: SubjectCache) -> Iterator[GateJob]:
    """Every duel of the gate. α is shared evenly while they run; Holm's correction at the end gives some of it back."""
    opponents = list(_opponents(request))
    alpha = request.policy.alpha / len(opponents)
    for source, scenario, against, base in opponents:
        yield _job(request, source, scenario, against, base, alpha, cache)


def _opponents(request: GateRequest) -> Iterator[tuple[ScenarioFile, str, Against, str]]:
    """Yield (scenario, its name in the policy, which kind of base, its revision)."""
    policy = request.policy
    base = request.wanted.base or merge_base(request.wanted.repo)[:SHORT_HASH]
    check_writable(request.reports / RESULTS)
    for scenario in _chosen(request):
        source = read_scenario(scenario)
        yield source.overridden(request.overrides), scenario, "base", base
        if policy.limits[scenario].max_creep is not None:
            yield source.overridden(request.overrides), scenario, "baseline", _pinned(source.name, scenario, request)


def _chosen(request: GateRequest) -> tuple[str, ...]:
    known = request.policy.scenarios
    for name in request.names:
        if name not in known:
            raise UsageError(
                f"--scenario {name}: {request.policy.source} names no such scenario.{closest(name, known)} "
                f"Allowed: {', '.join(known)}"
            )
    return tuple(name for name in known if not request.names or name in request.names)


def _pinned(name: str, scenario: str, request: GateRequest) -> str:
    with Store(request.reports / RESULTS) as store:
        baseline = Baselines(store).of(name)
    if baseline is None:
        raise UsageError(
            f"{request.policy.source}: max_creep of {scenario} needs a pinned baseline in "
            f"{request.reports / RESULTS}: stepduel baseline set {scenario} REVISION"
        )
    return baseline.revision[:SHORT_HASH]


def _job(
    request: GateRequest,
    source: ScenarioFile,
    scenario: str,
    against: Against,
    base: str,
    alpha: float,
    cache: SubjectCache,
) -> GateJob:
    policy, limits = request.policy, request.policy.limits[scenario]
    limit = max_slowdown(limits, against)
    # Both thresholds of the rule are the limit: `slower` is a regression, `same` surely none.
    settings = DuelSettings(
        rule=Rule(
            looks=planned_looks(policy.pairs),
            alpha=alpha,
            min_effect=limit,
            min_abs_ns=limits.min_abs_ms * 1e6,
            margin=limit,
        ),
        steps=policy.steps,
        budget_s=policy.budget_s,
        seed=request.seed,
        limits={**limits.metrics, **limits.launch},
        stop_at_limit=True,
        reports=request.reports,
    )
    return GateJob(
        scenario=scenario,
        against=against,
        max_slowdown=limit,
        plan=compare_plan(source, replace(request.wanted, base=base), settings, cache),
    )
