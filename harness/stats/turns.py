"""How long a turn is, and how long each side steps alone. Pure.

Both sides take turns of k steps. One step each is best against noise, for what is slow meets both alike. But a step
that is fed from behind, by loader workers, then never waits: only a turn that is long against what is prepared shows
what a user waits for. So k grows where steps alone say something else (`stats.interleaving`). Its values are primes,
and not 4 and 16: what a program does at every tenth or sixteenth step must not fall on the discarded steps of a turn
each time.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final

from harness.stats.paired import StepPairs, step_times

ALONE_SHARE: Final = 0.25
"""Most of a launch pair's time that the stretches alone take."""
LEAST_ALONE: Final = 6
"""Fewer steps alone tell nothing, a third of them discarded."""
STRETCH: Final = 15
"""Steps in a row of a stretch alone, where there is time for more of them: long against what loaders prepare."""
MOST_STRETCHES: Final = 4
LEAST_TURNS: Final = 3


@dataclass(frozen=True, kw_only=True)
class Turn:
    """`steps` of one side in a row, of which the first `discarded` are not measured."""

    steps: int
    discarded: int

    @property
    def measured(self) -> int:
        """Its measured steps."""
        return self.steps - self.discarded

    def means(self, times: StepPairs) -> StepPairs:
        """Return the mean step of each turn, (turns, 1) ns a side, of the measured steps of a launch pair.

        Longer turns are the unit, since the steps that wait for something prepared fall anywhere within them.
        """
        if self.steps == 1:
            return times
        base_ns, head_ns = (side.reshape(-1, self.measured).mean(axis=1, keepdims=True) for side in step_times(times))
        return StepPairs(base_ns=base_ns, head_ns=head_ns)

    def turns(self, measured: int) -> int:
        """Return how many turns of each side measure at least so many steps."""
        if self.steps == 1:
            return measured
        return max(LEAST_TURNS, math.ceil(measured / self.measured))


TURNS: Final = tuple(Turn(steps=steps, discarded=steps // 4) for steps in (1, 5, 17))
"""From the shortest on. A quarter is discarded: it lives on what was prepared in the other side's turn."""


def turn_of(steps: int) -> Turn:
    """Return the turn of so many steps."""
    return next(turn for turn in TURNS if turn.steps == steps)


def longer_turn(steps: int) -> int | None:
    """Return the steps of the next longer turn; None after the longest."""
    return next((turn.steps for turn in TURNS if turn.steps > steps), None)


def stretches_alone(start_s: float, in_turn_s: float, step_pair_s: float) -> tuple[Turn, ...]:
    """Return the stretches that each side makes alone, after starting and stepping in turn took so long.

    A third of each is discarded: it lives on what was prepared while the side waited. Sides take turns in them, base
    head head base, since what a machine does for a second falls on one of two long stretches.
    """
    affordable = math.floor(ALONE_SHARE / (1 - ALONE_SHARE) * (start_s + in_turn_s) / step_pair_s)
    if affordable < LEAST_ALONE:
        return ()
    count = next((count for count in (MOST_STRETCHES, 2) if affordable >= count * STRETCH), 1)
    steps = min(affordable // count, STRETCH) if count > 1 else affordable
    return (Turn(steps=steps, discarded=math.ceil(steps / 3)),) * count
