"""What steps alone do to a verdict on steps in turn: nobody sees the figures of a duel who runs one side alone."""

from __future__ import annotations

import math
from dataclasses import replace

from harness.stats.interleaving import Interleaving
from harness.units import change
from harness.verdict import Reason, State, Verdict


def weigh_interleaving(verdict: Verdict, alone: Interleaving | None, longer: int | None) -> Verdict:
    """Return the verdict as it stands where steps alone surely say something else; otherwise as it is.

    `longer` is the turn that the next launch pairs are to have: until then it is open. With the longest turn `slower`
    and `faster` stand where the figure alone says so too, and `same` does not.
    """
    if alone is None or not alone.beyond or verdict.ratio is None or verdict.state is State.INVALID:
        return verdict
    # The plain totals, which is what the bias was found in: slow steps of a background come at no fixed step.
    in_turn = math.exp(verdict.looks[-1].uncapped.mean) if verdict.looks else verdict.ratio
    verdict = replace(verdict, alone_ratio=in_turn * alone.bias.ratio)
    said = f"steps alone say {change(alone.bias.ratio, alone.bias.ci)} beside steps in turn (bias of interleaving)"
    if longer is not None:
        step = f"{said}: launch pairs with turns of {longer} steps have to follow"
        return replace(verdict, state=State.UNDECIDED, reason=Reason.MORE_PAIRS, next_step=step)
    if verdict.state is State.UNDECIDED or _stands(verdict):
        return replace(verdict, detail=verdict.detail or said)
    step = "compare whole launches, one after the other (--interleave blocks)"
    return replace(verdict, state=State.UNDECIDED, reason=Reason.INTERLEAVING_BIAS, detail=said, next_step=step)


def _stands(verdict: Verdict) -> bool:
    assert verdict.alone_ratio is not None
    effect = math.log(verdict.alone_ratio)
    smallest = verdict.looks[-1].smallest_effect
    return (
        effect >= smallest if verdict.state is State.SLOWER else verdict.state is State.FASTER and effect <= -smallest
    )
