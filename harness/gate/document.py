"""The gate's answer as the JSON document `stepduel/gate/2`."""

from __future__ import annotations

from typing import Any, Final

from harness import documents
from harness.gate.decision import GateResult

SCHEMA: Final = "stepduel/gate/2"


def document(gate: GateResult) -> dict[str, Any]:
    """Return the gate's answer as plain JSON-ready values, with the whole comparison of every duel."""
    return documents.document(SCHEMA, gate)
