"""The gate's answer as the JSON document `stepduel/gate/1`."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any, Final

from harness.comparison import document as comparison_document
from harness.gate.decision import GateResult, Judgement
from harness.metrics import LIMITED

SCHEMA: Final = "stepduel/gate/1"


def document(gate: GateResult) -> dict[str, Any]:
    """Return the gate's answer as plain JSON-ready values, with the whole comparison of every duel."""
    policy = asdict(gate.policy)
    return {
        "schema": SCHEMA,
        "result": gate.result.value,
        "exit_code": gate.exit_code,
        "line": gate.line,
        "policy": {**policy, "scenarios": list(gate.policy.scenarios), "machines": list(gate.policy.machines)},
        "duels": [_judgement(judgement) for judgement in gate.judgements],
    }


def _judgement(judgement: Judgement) -> dict[str, Any]:
    job, comparison = judgement.job, judgement.comparison
    return {
        "scenario": job.scenario,
        "against": job.against,
        "result": judgement.result.value,
        "counts": judgement.counts,
        "detail": judgement.detail,
        "limits": {
            "max_slowdown": job.max_slowdown,
            **{limit.policy_key: job.plan.limits[name] for name, (_, limit) in LIMITED.items()},
        },
        "adjusted_p": judgement.adjusted_p,
        "grown_ranges": [part.path for part in judgement.grown],
        "comparison": None if comparison is None else comparison_document(comparison),
    }
