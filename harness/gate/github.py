"""The gate as GitHub workflow commands, which a job's page and the pull request show as annotations."""

from __future__ import annotations

from harness.gate.decision import GateResult, Judgement, Result
from harness.units import signed_ms
from harness.visible import shortened

MOST_NAMED = 3
"""Ranges named in a message."""


def workflow_commands(gate: GateResult) -> list[str]:
    """Return one command a duel: an error where it counts against the head, a warning where the policy lets it pass."""
    return [_annotation(judgement) for judgement in gate.judgements]


def _annotation(judgement: Judgement) -> str:
    level = "error" if judgement.counts else "notice" if judgement.result is Result.PASS else "warning"
    title = f"Stepduel: {judgement.result}: {judgement.job.name}"
    return f"::{level} title={_property(title)}::{_data(shortened(_message(judgement), 1000))}"


def _message(judgement: Judgement) -> str:
    comparison = judgement.comparison
    if comparison is None:
        return judgement.detail
    grown = ", ".join(
        f"{shortened(part.path, 80)} {signed_ms(part.delta_ns)} ms" for part in judgement.grown[:MOST_NAMED]
    )
    return "; ".join(filter(None, (judgement.detail, comparison.verdict.line, grown and f"grew: {grown}")))


def _data(text: str) -> str:
    """Escape as the runner reads it: a line break or another command cannot come out of a message."""
    return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _property(text: str) -> str:
    return _data(shortened(text, 200)).replace(":", "%3A").replace(",", "%2C")
