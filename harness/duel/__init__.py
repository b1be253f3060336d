"""The duel: two subjects in lockstep, launch pair after launch pair, until the rule decides."""

from __future__ import annotations

from harness.duel.assemble import DuelSettings, WantedSides, compare_plan, duel_plan, timing_collector
from harness.duel.pacing import TYPICAL_NOISE, DetectableEffect, PooledPrior, forecast
from harness.duel.plan import DuelPlan, DuelSide, Interleave
from harness.duel.pooled_prior import pooled_prior, same_code_duels
from harness.duel.progress import Progress
from harness.duel.runner import run_duel
from harness.duel.stopped import DuelStoppedError

__all__ = [
    "TYPICAL_NOISE",
    "DetectableEffect",
    "DuelPlan",
    "DuelSettings",
    "DuelSide",
    "DuelStoppedError",
    "Interleave",
    "PooledPrior",
    "Progress",
    "WantedSides",
    "compare_plan",
    "duel_plan",
    "forecast",
    "pooled_prior",
    "run_duel",
    "same_code_duels",
    "timing_collector",
]
