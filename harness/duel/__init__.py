"""The duel: two subjects in lockstep, launch pair after launch pair, until the rule decides."""

from __future__ import annotations

from harness.duel.memory import known_noise, same_code_duels
from harness.duel.pacing import Known, Sight, sight
from harness.duel.plan import DuelPlan, DuelSide, Interleave
from harness.duel.progress import Progress
from harness.duel.runner import run_duel

__all__ = [
    "DuelPlan",
    "DuelSide",
    "Interleave",
    "Known",
    "Progress",
    "Sight",
    "known_noise",
    "run_duel",
    "same_code_duels",
    "sight",
]
