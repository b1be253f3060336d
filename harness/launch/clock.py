"""Whether the times of a step can be true: they lie between the coordinator's request for it and its report.

Ranks and coordinator run on one node and read one clock, CLOCK_MONOTONIC, so this needs no tolerance for their
distance: whatever a rank says happened, happened between two readings of ours. A clock that was scaled, frozen, set
or stepped leaves that stretch at once or within a few steps, for its zero or its pace is another. What this cannot see
is a subject that replaces the clock below Python, within one step, and restores it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from harness.units import milliseconds

ROUNDING_NS: Final = 1000
"""Ranks gather their figures as doubles, which are exact to a nanosecond for the first hundred days of a machine."""


def clock_problem(event: Mapping[str, Any], sent_ns: int, received_ns: int) -> str | None:
    """Return what is wrong with the times of a `step` event; None where they can be true."""
    begins = event.get("begins_ns")
    if begins is None:  # nobody's but a stand-in's, which makes its times up
        return None
    elapsed = f"it took {milliseconds(received_ns - sent_ns)} ms on the coordinator's clock"
    for rank, (began_ns, duration_ns) in enumerate(zip(begins, event["durations_ns"], strict=True)):
        where = f"step {event['index']} of rank {rank} reports {milliseconds(duration_ns)} ms"
        if duration_ns <= 0:
            return f"{where}, which is no time; {elapsed}"
        if began_ns < sent_ns - ROUNDING_NS or began_ns + duration_ns > received_ns + ROUNDING_NS:
            return (
                f"{where} from {milliseconds(began_ns - sent_ns)} ms after it was asked for; {elapsed}: "
                "the engine has changed the clock that it is measured with"
            )
    return None
