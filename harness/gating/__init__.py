"""The gate: a project's policy, one duel a scenario, one decision over all of them, and the files CI shows."""

from __future__ import annotations

from harness.gating.contest import Contest, Outcome, check_machine, run_contests
from harness.gating.decision import GateResult, Judgement, Result, judge
from harness.gating.policy import Limits, Policy, find_policy, read_policy

__all__ = [
    "Contest",
    "GateResult",
    "Judgement",
    "Limits",
    "Outcome",
    "Policy",
    "Result",
    "check_machine",
    "find_policy",
    "judge",
    "read_policy",
    "run_contests",
]
