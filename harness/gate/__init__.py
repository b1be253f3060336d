"""The gate: a project's policy, one duel a scenario, one decision over all of them, and the files CI shows."""

from __future__ import annotations

from harness.gate.decision import GateResult, Judgement, Result, judge
from harness.gate.jobs import GateJob, JobOutcome, check_machine, run_jobs
from harness.gate.policy import Limits, Policy, find_policy, read_policy
from harness.gate.run import GateProgress, GateRequest, explain_limits, run_gate

__all__ = [
    "GateJob",
    "GateProgress",
    "GateRequest",
    "GateResult",
    "JobOutcome",
    "Judgement",
    "Limits",
    "Policy",
    "Result",
    "check_machine",
    "explain_limits",
    "find_policy",
    "judge",
    "read_policy",
    "run_gate",
    "run_jobs",
]
