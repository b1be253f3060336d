"""Runs the duels of a gate one after the other. One that fails is remembered; the others still get their say."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar, Literal

from harness.comparison import Comparison
from harness.duel import DuelPlan, DuelStoppedError, Progress, run_duel
from harness.environment import Environment
from harness.errors import StepduelError, UsageError
from harness.gate.policy import Limits, Policy
from harness.metrics import LIMITED

Against = Literal["base", "baseline"]


@dataclass(frozen=True, kw_only=True)
class GateJob:
    """One duel of a gate: a scenario against the base, or against the pinned baseline that catches slow creep."""

    NOT_IN_DOCUMENT: ClassVar = {"plan": "what is asked for; the comparison's duel says what was done"}
    ALSO_IN_DOCUMENT: ClassVar = ("limits",)

    scenario: str
    against: Against
    max_slowdown: float
    plan: DuelPlan

    @property
    def limits(self) -> dict[str, float]:
        """What it is held to, by key of the policy."""
        others = {limit.policy_key: self.plan.limits[name] for name, (_, limit) in LIMITED.items()}
        launch = {name: value for name, value in self.plan.limits.items() if name not in LIMITED}
        return {"max_slowdown": self.max_slowdown, **others, **launch}

    @property
    def name(self) -> str:
        """What it is called in lists: the scenario, with the baseline named where that is the other side."""
        return self.scenario if self.against == "base" else f"{self.scenario} (baseline)"


@dataclass(frozen=True, kw_only=True)
class JobOutcome:
    """What became of a job: a comparison, or the problem that kept it from one, or from a whole one."""

    job: GateJob
    comparison: Comparison | None = None
    problem: BaseException | None = None


def max_slowdown(limits: Limits, against: Against) -> float:
    """Return the limit on step time that a job is held to."""
    if against == "base":
        return limits.max_slowdown
    assert limits.max_creep is not None
    return limits.max_creep


def run_jobs(
    jobs: Sequence[GateJob],
    progress: Progress,
    *,
    budget_s: float | None = None,
    resume: bool = False,
    started: Callable[[GateJob], None] = lambda _: None,
) -> list[JobOutcome]:
    """Run every job. What is left of the budget is shared evenly by those still to come.

    Ctrl-C ends the one under way and leaves the others out; all outcomes are returned, so that reports can be written.
    """
    outcomes: list[JobOutcome] = []
    deadline = None if budget_s is None else time.monotonic() + budget_s
    interrupted: KeyboardInterrupt | None = None
    for index, job in enumerate(jobs):
        if interrupted is not None:
            outcomes.append(JobOutcome(job=job, problem=interrupted))
            continue
        started(job)
        plan = job.plan
        if deadline is not None:
            plan = replace(plan, budget_s=max(deadline - time.monotonic(), 1.0) / (len(jobs) - index))
        try:
            outcomes.append(JobOutcome(job=job, comparison=run_duel(plan, progress, resume=resume)))
        except KeyboardInterrupt as interrupt:
            interrupted = KeyboardInterrupt("interrupted")
            so_far = interrupt.so_far if isinstance(interrupt, DuelStoppedError) else None
            outcomes.append(JobOutcome(job=job, comparison=so_far, problem=interrupt))
        except StepduelError as problem:
            outcomes.append(JobOutcome(job=job, problem=problem))
    return outcomes


def check_machine(policy: Policy, environment: Environment) -> str | None:
    """Return a remark where another machine judges than the policy names and that is allowed. UsageError if it is not.

    Both sides of a duel always run on the same machine; what a slower or larger one cannot see is the question here.
    """
    machine = environment.machine
    if not policy.machines or machine in policy.machines:
        return None
    seen = f"this machine is {machine} ({environment.cpu_model}, {environment.usable_cores} cores)"
    if policy.allow_machine_mismatch:
        return f"{seen}, not one of {', '.join(policy.machines)}; allowed by the policy"
    raise UsageError(
        f"{policy.source}: {seen}, expected one of {', '.join(policy.machines)}: "
        "run the gate there, add this machine, or set allow_machine_mismatch = true"
    )
