"""Facts about waste. One rule a file; a rule is a function `check(capture) -> list[Finding]` and its line in `RULES`.

To add a rule: write the file, add the line, and test it on a capture that has the waste and on one that nearly has it.
A rule reports only what rows of the trace prove, and says how much time per step it costs.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from harness.analysis.capture import Capture
from harness.analysis.findings import (
    allocation_in_step,
    automatic_collection,
    empty_collection,
    empty_load,
    exposed_communication,
    gpu_idle,
    item_copies,
    outlying_step,
    pageable_copies,
    rank_straggling,
    synchronise_in_step,
    tiny_kernels,
)
from harness.analysis.findings.finding import Finding

RULES: Final[dict[str, Callable[[Capture], list[Finding]]]] = {
    "empty_load": empty_load.check,
    "empty_collection": empty_collection.check,
    "automatic_collection": automatic_collection.check,
    "pageable_copies": pageable_copies.check,
    "synchronise_in_step": synchronise_in_step.check,
    "allocation_in_step": allocation_in_step.check,
    "item_copies": item_copies.check,
    "gpu_idle": gpu_idle.check,
    "tiny_kernels": tiny_kernels.check,
    "exposed_communication": exposed_communication.check,
    "rank_straggling": rank_straggling.check,
    "outlying_step": outlying_step.check,
}

MIN_SHARE: Final = 0.001
"""A finding that costs less than this share of a step is not worth anybody's time."""


def find(capture: Capture) -> list[Finding]:
    """Apply every rule; the most expensive finding first. Their times overlap and must not be added up."""
    found = [finding for check in RULES.values() for finding in check(capture)]
    worth_it = [finding for finding in found if finding.ns_per_step >= MIN_SHARE * capture.mean_step_ns]
    return sorted(worth_it, key=lambda finding: -finding.ns_per_step)
