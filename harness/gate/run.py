"""From a policy to the duels it asks for, and from their outcomes to the gate's answer."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final, Protocol

from harness.duel import DuelPlan, DuelSettings, Progress, WantedSides, compare_plan
from harness.environment import read_environment
from harness.errors import UsageError, closest
from harness.gate.decision import GateResult, judge
from harness.gate.explain import LimitsExplained, limit_curve
from harness.gate.jobs import Against, GateJob, check_machine, max_slowdown, run_jobs
from harness.gate.limit import gate_rule
from harness.gate.policy import Policy
from harness.gate.reports import remove_old
from harness.scenario import ScenarioFile, read_scenario
from harness.stats.rule import Rule
from harness.store import RESULTS, Baselines, Store, check_writable
from harness.subject import WORKING_TREE, SubjectCache, default_base, is_ancestor
from harness.subject.releases import is_release

SHORT_HASH: Final = 12


@dataclass(frozen=True, kw_only=True)
class GateRequest:
    """What the gate was asked for beside its policy. Where `wanted` has no base, that is `subject.base`'s."""

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
    if (aside := _aside(request)) is not None:
        progress.remark(aside)
    jobs = []
    for job in _jobs(request, cache):
        if _is_one_code(job.plan):
            if job.against == "base":
                raise UsageError(_one_code_error(job.plan))
            progress.remark(f"{job.name}: head is the pinned baseline itself: nothing to compare")
            continue
        progress.planned(job)
        jobs.append(job)
    remove_old(request.reports)
    outcomes = run_jobs(jobs, progress, budget_s=policy.budget_s, resume=request.resume, started=progress.started)
    return judge(outcomes, policy)


def _aside(request: GateRequest) -> str | None:
    """Say that BASE holds commits that HEAD was not made on: they count as a difference like any other."""
    base, head, repo = request.wanted.base, request.wanted.head or WORKING_TREE, request.wanted.repo
    if base is None or base == WORKING_TREE or is_release(base) or is_release(head) or is_ancestor(repo, base, head):
        return None
    return (
        f"{base} is no ancestor of {'HEAD' if head == WORKING_TREE else head}: what only it has counts as a difference "
        f"too; to judge your commits alone, rebase, or name where they start (git merge-base {base} HEAD)"
    )


def _is_one_code(plan: DuelPlan) -> bool:
    """Whether both sides are one commit with the same settings; what git does not track is no difference."""
    base, head = plan.base.subject, plan.head.subject
    if base.identity() == head.identity():
        return True
    code = [(one.revision, one.overrides, one.python, one.release) for one in (base, head)]
    return code[0] == code[1] and base.revision is not None and not base.dirty and not head.dirty


def _one_code_error(plan: DuelPlan) -> str:
    base, head = plan.base.subject, plan.head.subject
    untracked = "; what git does not track counts for nothing here: git add it" if head.changes else ""
    return (
        f"base {base.name} and head {head.name} are the same code ({(base.revision or '')[:SHORT_HASH]}), which would "
        f"pass whatever it is: name another --base{untracked}"
    )


def _jobs(request: GateRequest, cache: SubjectCache) -> Iterator[GateJob]:
    """Every duel of the gate. α is shared evenly while they run; Holm's correction at the end gives some of it back."""
    opponents = list(_opponents(request))
    for source, scenario, against, base in opponents:
        yield _job(request, source, scenario, against, base, len(opponents), cache)


def explain_limits(request: GateRequest) -> LimitsExplained:
    """Return how the duels that the policy asks for end at each true slowdown. None is run."""
    duels = list(_duels(request))
    curves = [
        limit_curve(
            source.resolve(),
            name,
            against,
            _rule(request.policy, name, against, len(duels)),
            request.policy.steps,
            request.reports,
        )
        for source, name, against in duels
    ]
    return LimitsExplained(source=request.policy.source, curves=tuple(curves))


def _opponents(request: GateRequest) -> Iterator[tuple[ScenarioFile, str, Against, str]]:
    """Yield (scenario, its name in the policy, which kind of base, its revision)."""
    base = request.wanted.base
    if base is None:
        base = default_base(request.wanted.repo, request.wanted.head or WORKING_TREE)[:SHORT_HASH]
    check_writable(request.reports / RESULTS)
    for source, name, against in _duels(request):
        yield source, name, against, base if against == "base" else _pinned(source.name, name, request)


def _duels(request: GateRequest) -> Iterator[tuple[ScenarioFile, str, Against]]:
    """Yield (scenario, its name in the policy, which kind of base)."""
    for name in _chosen(request):
        source = read_scenario(name).overridden(request.overrides)
        yield source, name, "base"
        if request.policy.limits[name].max_creep is not None:
            yield source, name, "baseline"


def _rule(policy: Policy, scenario: str, against: Against, duels: int) -> Rule:
    """The rule of one of so many duels."""
    limits = policy.limits[scenario]
    return gate_rule(
        max_slowdown(limits, against),
        pairs=policy.pairs,
        alpha=policy.alpha / duels,
        min_abs_ns=limits.min_abs_ms * 1e6,
    )


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
    duels: int,
    cache: SubjectCache,
) -> GateJob:
    policy, limits = request.policy, request.policy.limits[scenario]
    settings = DuelSettings(
        rule=_rule(policy, scenario, against, duels),
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
        max_slowdown=max_slowdown(limits, against),
        plan=compare_plan(source, replace(request.wanted, base=base), settings, cache),
    )
