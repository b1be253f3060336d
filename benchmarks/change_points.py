"""Count what a rule for changes of level finds in made-up series: python benchmarks/change_points.py [--rules RULE …]

`own` is harness.stats.changepoints. The others are what it was chosen from, each with the same t-test and smallest
change behind it as it is meant to be used: `otava` (pip install --no-deps apache-otava) and `ruptures` (pip install
ruptures), its exact search Pelt with the own rule's penalty.
"""

from __future__ import annotations

import argparse
import importlib
import itertools
import math
import sys
import time
import warnings
from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from harness.stats.changepoints import MAX_P, MIN_MAGNITUDE, MIN_POINTS, change_points, penalty, significant

Levels = Sequence[tuple[int, float]]
"""Points and step time of each level."""
Rule = Callable[[NDArray[np.float64]], list[int]]

CASES: Sequence[tuple[str, Levels, float, str]] = (
    *((f"same, {n} points", [(n, 1.0)], 0.005, "normal") for n in (12, 100)),
    *((f"same, {n} points", [(n, 1.0)], 0.02, noise) for noise in ("normal", "tails", "odd") for n in (12, 30, 100)),
    *((f"+2.5 %, {a} + {b}", [(a, 1.0), (b, 1.025)], 0.005, "normal") for a, b in ((3, 3), (10, 3), (12, 12))),
    *((f"+5 %, {a} + {b}", [(a, 1.0), (b, 1.05)], 0.005, "normal") for a, b in ((3, 3), (10, 3))),
    *((f"+5 %, {a} + {b}", [(a, 1.0), (b, 1.05)], 0.02, "normal") for a, b in ((10, 3), (12, 12), (30, 30))),
    ("+5 %, 12 + 12", [(12, 1.0), (12, 1.05)], 0.01, "odd"),
    ("+5 % and back, 5 + 5 + 5", [(5, 1.0), (5, 1.05), (5, 1.0)], 0.005, "normal"),
    ("+5 % and back, 12 + 12 + 12", [(12, 1.0), (12, 1.05), (12, 1.0)], 0.01, "normal"),
    ("+5 % twice, 12 + 12 + 12", [(12, 1.0), (12, 1.05), (12, 1.1)], 0.01, "normal"),
)


def made_up(generator: np.random.Generator, levels: Levels, scatter: float, noise: str) -> NDArray[np.float64]:
    """Return a series of step times. `noise`: normal, tails (Student's t, 3 degrees of freedom), odd (5 % by 8 σ)."""
    level = np.concatenate([np.full(count, value) for count, value in levels])
    errors = generator.standard_normal(len(level))
    if noise == "tails":
        errors = generator.standard_t(3, len(level)) / math.sqrt(3)
    elif noise == "odd":
        errors += 8 * (generator.random(len(level)) < 0.05)
    return 100 * level * np.exp(scatter * errors)


def own(values: NDArray[np.float64]) -> list[int]:
    """The harness's rule."""
    return [change.index for change in change_points(values.tolist())]


def otava() -> Rule:
    """Apache Otava as a library: E-divisive, series halved again and again."""
    analysis = importlib.import_module("otava.analysis")

    def find(values: NDArray[np.float64]) -> list[int]:
        found, _ = analysis.compute_change_points(values.tolist(), max_pvalue=MAX_P, min_magnitude=MIN_MAGNITUDE)
        edges = [0, *(int(point.index) for point in found), len(values)]
        roomy = all(b - a >= MIN_POINTS for a, b in itertools.pairwise(edges))
        return edges[1:-1] if roomy else []

    return find


def ruptures() -> Rule:
    """Pelt of ruptures, then the own rule's test of what it cut."""
    package = importlib.import_module("ruptures")

    def find(values: NDArray[np.float64]) -> list[int]:
        logs = np.log(values)
        cuts = package.Pelt(model="l2", min_size=1, jump=1).fit(logs).predict(pen=penalty(logs))
        return [change.index for change in significant(values.tolist(), [0, *cuts])]

    return find


def main(arguments: Sequence[str] | None = None) -> int:
    """Print a line for each case: of series without a change those with an alarm, else those with all found."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--series", type=int, default=500, help="made-up series per case")
    parser.add_argument("--rules", nargs="+", choices=("own", "otava", "ruptures"), default=["own"])
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args(arguments)
    warnings.simplefilter("ignore")
    makers: dict[str, Callable[[], Rule]] = {"own": lambda: own, "otava": otava, "ruptures": ruptures}
    rules = {name: makers[name]() for name in options.rules}
    print(f"{options.series} series each, seed {options.seed}; a change is found when it is placed within one point")
    print(f"| series | scatter | {' | '.join(rules)} |\n| --- | --- |{' --- |' * len(rules)}")
    spent_s = dict.fromkeys(rules, 0.0)
    for name, levels, scatter, noise in CASES:
        cells = []
        for rule, find in rules.items():
            began_s = time.perf_counter()
            share = hits(find, levels, options.series, scatter, noise, options.seed)
            spent_s[rule] += time.perf_counter() - began_s
            cells.append(f"{share:.1%}")
        print(f"| {name} | {scatter:.1%} {noise} | {' | '.join(cells)} |", flush=True)
    each = len(CASES) * options.series / 1000
    print(f"| ms a series | | {' | '.join(f'{spent_s[rule] / each:.1f}' for rule in rules)} |")
    return 0


def hits(find: Rule, levels: Levels, series: int, scatter: float, noise: str, seed: int) -> float:
    """Return the share of series with an alarm, where there is one level, or with all changes found and no other."""
    generator = np.random.default_rng(seed)
    truth = list(itertools.accumulate(count for count, _ in levels))[:-1]
    count = 0
    for _ in range(series):
        found = find(made_up(generator, levels, scatter, noise))
        near = len(found) == len(truth) and all(abs(a - b) <= 1 for a, b in zip(found, truth, strict=True))
        count += near if truth else bool(found)
    return count / series


if __name__ == "__main__":
    sys.exit(main())
