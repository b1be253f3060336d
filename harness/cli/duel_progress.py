"""Progress of a duel on stderr: a line that is redrawn on a terminal, one line a launch pair otherwise.

The line is redrawn between steps only, never by a thread of its own: a spinner would take processor time from whatever
is being measured.
"""

from __future__ import annotations

import math
import sys
import time
from typing import Self

import numpy as np
from rich.text import Text

from harness.cli.output import clean, stderr_console
from harness.comparison import Comparison
from harness.duel import DetectableEffect
from harness.stats.paired import mean_interval
from harness.stats.rule import DEFAULT_LOOKS
from harness.units import change, percent, plural
from harness.verdict import Reason, detectable_text

LEVEL = 0.95
"""Of the interval that the running estimate is shown with."""
FEWEST_PAIRS = DEFAULT_LOOKS[0]
"""However quiet the warm-up was, fewer launch pairs are not advised."""


class TerminalProgress:
    """Tells a person what the duel is doing, what it can detect, and for how long it will go on. A context manager."""

    def __init__(self) -> None:
        self._console = stderr_console()
        self._redrawn = sys.stderr.isatty()
        self._estimate = ""
        self._began_s = time.monotonic()
        self._made_here = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self._redraw("")

    def resumed(self, pairs: int, duel_id: str) -> None:
        """Say that stored launch pairs are being used."""
        self._line(f"going on with {duel_id}: {plural(pairs, 'launch pair')} stored")

    def nothing_to_resume(self) -> None:
        """Say that this is a new duel, although one was to be gone on with."""
        self._line("--resume: no unfinished duel of this code, scenario and machine is stored; a new one begins")

    def starting(self, pair: int, most_pairs: int) -> None:
        """A launch pair is being started."""
        self._redraw(f"launch pair {pair} of at most {most_pairs}: starting both sides{self._estimate}")

    def forecast(self, effect: DetectableEffect, first_look: int, last_look: int, margin: float, steps: int) -> None:
        """Say before measuring what this duel can detect."""
        with_first = f"with {plural(first_look, 'launch pair')}"
        seen = f"{steps} steps a launch: detectable {detectable_text(effect.first_look)} {with_first}"
        if last_look != first_look:
            seen += f", {detectable_text(effect.last_look)} with {last_look}"
        self._line(f"{seen} (from {effect.source})")
        if effect.last_look > margin:
            wanted = f"to see the margin of {percent(margin)}"
            if effect.pairs_needed:
                number = max(effect.pairs_needed, FEWEST_PAIRS)
                self._line(f"{wanted} would take about {number} pairs (--pairs {number}), or a quieter machine")
            else:
                self._line(f"no number of pairs is enough {wanted} here: stepduel doctor says what disturbs")

    def out_of_reach(self, needed_s: float, left_s: float, pairs: int) -> None:
        """Say at once that there will be no verdict."""
        self._line(
            f"--budget leaves {_seconds(left_s)}: {plural(pairs, 'launch pair')}, which a verdict needs, take about "
            f"{_seconds(needed_s)} more; --resume goes on later",
            "yellow",
        )

    def stepped(self, pair: int, done: int, steps: int) -> None:
        """Both sides have made one more step; `done` below 1 is warm-up."""
        what = f"step {done} of {steps}" if done > 0 else "warming up"
        self._redraw(f"launch pair {pair}: {what}{self._estimate}")

    def paired(self, comparison: Comparison) -> None:
        """A launch pair has ended and is stored."""
        self._made_here += 1
        made, last = len(comparison.pairs), comparison.pairs[-1].ratio
        running = _running(comparison)
        parts = [f"launch pair {made}", "" if last is None else change(last), f"so far {running}"]
        if comparison.verdict.reason is Reason.MORE_PAIRS:
            parts.append(self._time_left(made, comparison))
        self._estimate = f"; so far {running}"
        self._line("  ".join(filter(None, parts)))

    def unexplained(self, problem: str) -> None:
        """The traced launch pair failed; the verdict stands without it."""
        self._line(f"the launch pair that was to explain GPU time failed: {problem}")

    def _time_left(self, made: int, comparison: Comparison) -> str:
        each_s = (time.monotonic() - self._began_s) / self._made_here
        looks = comparison.rule.looks
        following = next((look for look in looks if look > made), looks[-1])
        return f"next look in {_seconds((following - made) * each_s)}, at most {_seconds((looks[-1] - made) * each_s)}"

    def _line(self, text: str, style: str = "") -> None:
        self._redraw("")
        self._console.print(Text(clean(text), style=style), soft_wrap=True)

    def _redraw(self, text: str) -> None:
        """Replace the current line, cut so that it stays one."""
        if self._redrawn:
            sys.stderr.write(f"\r\x1b[K{clean(text)[: self._console.width - 1]}")
            sys.stderr.flush()


def _running(comparison: Comparison) -> str:
    """The estimate from all launch pairs so far with an interval, whether or not a look is due.

    It only tells how things go; a verdict rests on looks, whose intervals are wider because there are several.
    """
    logs = np.log([[pair.ratio] for pair in comparison.pairs if pair.ratio is not None])
    if not len(logs):
        return "nothing"
    estimate = math.exp(logs.mean())
    low, high, _ = mean_interval(logs, LEVEL)
    if math.isnan(low[0]):
        return change(estimate)
    return f"{change(estimate, (math.exp(low[0]), math.exp(high[0])))} at {LEVEL * 100:g} %"


def _seconds(seconds: float) -> str:
    return f"{seconds:.0f} s" if seconds < 100 else f"{seconds / 60:.1f} min"
