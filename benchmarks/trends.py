"""How often is a step said to get slower, and does it? On real same-code steps, with trends put in.

    python benchmarks/trends.py                 # a table for each file of benchmarks/records/same_code_*.jsonl

Launch pairs are drawn as in `estimands.py`: recorded ones of the same code, sides swapped by a coin, here a stretch of
their steps; head's steps grow by a share of the typical step from step to step. The last table draws independent steps,
normal with the given scatter.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterator, Sequence
from typing import Final

import numpy as np
from estimands import RECORDS, Recorded, Table, read

from harness.stats.trend import confidence_of, slope, slope_interval, slope_variance

SHARES: Final = (0.0, 0.001, 0.003)
"""Of the typical step, a step."""
Draw = Callable[[int, int, np.random.Generator], tuple[Table, Table]]
"""Draws so many launch pairs of so many steps: base and head, (launches, steps) ns."""


def said(base: Table, head: Table) -> bool:
    """Say whether a duel of these steps would say that head gets slower."""
    at = range(base.shape[1])
    slopes = np.array([slope(values, at) for values in head - base])
    within = np.array([slope_variance(values, at) for values in head - base])
    return slope_interval(slopes, confidence_of(1), within)[0] > 0


def rows(draw: Draw, lengths: Sequence[int], duels: int, seed: int) -> Iterator[str]:
    """Yield a row for each length of launch and number of launch pairs: shares of duels that say so."""
    for steps in lengths:
        for pairs in (3, 5, 10):
            chance = np.random.default_rng(seed)
            hits = dict.fromkeys(SHARES, 0)
            for _ in range(duels):
                base, head = draw(pairs, steps, chance)
                for share in SHARES:
                    trend = share * np.median(base) * np.arange(steps)
                    hits[share] += said(base, head + trend)
            yield f"| {steps} | {pairs} | {' | '.join(f'{count / duels:.1%}' for count in hits.values())} |"


def stretches(recorded: Recorded) -> Draw:
    """Stretches of recorded launches."""

    def draw(pairs: int, steps: int, chance: np.random.Generator) -> tuple[Table, Table]:
        base, head = recorded.draw(pairs, chance)
        start = int(chance.integers(0, base.shape[1] - steps + 1))
        return base[:, start : start + steps], head[:, start : start + steps]

    return draw


def scattered(share: float) -> Draw:
    """Steps of 10 ms that scatter by this share of themselves."""

    def draw(pairs: int, steps: int, chance: np.random.Generator) -> tuple[Table, Table]:
        base, head = chance.normal(1e7, share * 1e7, (2, pairs, steps))
        return base, head

    return draw


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--duels", type=int, default=500, help="drawn duels a row")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args(arguments)
    sources: dict[str, tuple[Draw, Sequence[int]]] = {}
    for path in sorted(RECORDS.glob("same_code_*.jsonl")):
        recorded = read(path)
        longest = recorded.base.shape[1]
        sources[path.stem] = (stretches(recorded), [length for length in (30, 75, 150) if length <= longest])
    sources |= {f"steps that scatter by {share:.0%}": (scattered(share), [30]) for share in (0.01, 0.02)}
    for name, (draw, lengths) in sources.items():
        print(f"\n{name}, {options.duels} duels a row\n")
        print(f"| steps | pairs | {' | '.join('same code' if not s else f'+{s:.1%} a step' for s in SHARES)} |")
        print("| --- " * (2 + len(SHARES)) + "|")
        for row in rows(draw, lengths, options.duels, options.seed):
            print(row, flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
