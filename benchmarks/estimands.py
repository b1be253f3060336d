"""Which figure should a launch pair count with? What was tried, on real same-code steps with costs put in.

    python benchmarks/estimands.py                       # tables from the steps in benchmarks/records/same_code_*.jsonl
    python benchmarks/estimands.py --record DUEL… --reports reports --condition idle   # add stored duels to them

Launch pairs are drawn from recorded ones of the same code on both sides (`stepduel aa`), sides swapped
by a coin, and head's steps get a known cost: the same at every step, at every Nth, or at random ones. So scatter,
hiccups and memory of steps are those of a real machine, and the truth is known. First table: each figure alone, as a
t test over launch pairs at a nominal 0.5 % a side. Second table: the whole rule (`harness.verdict.decide`).
"""

from __future__ import annotations

import argparse
import json
import math
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np
from numpy.typing import NDArray

from harness.comparison import step_pairs_of
from harness.stats.estimands import pair_differences
from harness.stats.paired import StepPairs, step_times, t_quantile
from harness.stats.rule import Rule
from harness.store import RESULTS, Duels, Store
from harness.verdict import State, decide

RECORDS: Final = Path(__file__).resolve().parent / "records"
LEVEL: Final = 0.005
Table = NDArray[np.float64]  # (launches, steps) ns
Cost = Callable[[Table, np.random.Generator], Table]


@dataclass(frozen=True, kw_only=True)
class Recorded:
    """Same-code launch pairs of one machine state, each (steps,) ns a side."""

    base: Table
    head: Table

    def draw(self, pairs: int, chance: np.random.Generator) -> tuple[Table, Table]:
        """Return `pairs` launch pairs, all different, sides swapped by a coin."""
        rows = chance.choice(len(self.base), size=pairs, replace=False)
        swap = chance.random((pairs, 1)) < 0.5
        return (
            np.where(swap, self.head[rows], self.base[rows]),
            np.where(swap, self.base[rows], self.head[rows]),
        )

    def first(self, steps: int) -> Recorded:
        """Return the same with the first `steps` steps of each launch."""
        return Recorded(base=self.base[:, :steps], head=self.head[:, :steps])


def read(path: Path) -> Recorded:
    """Return the launch pairs of a file of records, cut to the shortest."""
    rows = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    steps = min(len(row["base_ns"]) for row in rows)
    base, head = (np.array([row[side][:steps] for row in rows], dtype=np.float64) for side in ("base_ns", "head_ns"))
    return Recorded(base=base, head=head)


def second_largest(times: Table) -> Table:
    """Cap each step at the second largest of its index, without dividing by the launch's median."""
    capped: Table = np.minimum(times, np.sort(times, axis=0)[-2])
    return capped


def winsorised(times: Table) -> Table:
    """Cap each step at three typical steps of its launch."""
    return np.minimum(times, 3 * np.median(times, axis=1, keepdims=True))


def log_totals(base: Table, head: Table) -> Table:
    """ln of the ratio of sums, (launches,)."""
    ratio: Table = np.log(head.sum(axis=1) / base.sum(axis=1))
    return ratio


def differences(base: Table, head: Table) -> Table:
    """`total` of harness.stats.estimands, (launches,)."""
    return np.array([one.total for one in pair_differences(step_pairs(base, head))])


def step_pairs(base: Table, head: Table) -> list[StepPairs]:
    """The same as the harness keeps them."""
    return [StepPairs(base_ns=b[:, None], head_ns=h[:, None]) for b, h in zip(base, head, strict=True)]


FIGURES: Final[dict[str, Callable[[Table, Table], Table]]] = {
    "total": log_totals,
    "total, winsorised at 3 typical steps": lambda base, head: log_totals(winsorised(base), winsorised(head)),
    "total, capped at the second largest": lambda base, head: log_totals(second_largest(base), second_largest(head)),
    "total, capped after dividing by the median": differences,
    "median of step ratios": lambda base, head: np.median(np.log(head / base), axis=1),
}


def every(period: int, share: float) -> Cost:
    """A cost at every `period`-th step that adds `share` to the mean step."""

    def add(times: Table, chance: np.random.Generator) -> Table:
        del chance
        extra = np.zeros_like(times)
        on = slice(period - 1, None, period)
        count = len(range(period - 1, times.shape[1], period))
        extra[:, on] = share * times.mean(axis=1, keepdims=True) * times.shape[1] / count
        return times + extra

    return add


def at_random(rate: float, share: float) -> Cost:
    """A cost at random steps that adds `share` to the mean step on average."""

    def add(times: Table, chance: np.random.Generator) -> Table:
        hit = chance.random(times.shape) < rate
        dearer: Table = times + hit * share / rate * times.mean(axis=1, keepdims=True)
        return dearer

    return add


def none(times: Table, chance: np.random.Generator) -> Table:
    """Add nothing."""
    del chance
    return times


COSTS: Final[dict[str, Cost]] = {
    "same code": none,
    "+5 % at every step": every(1, 0.05),
    "+5 % by every 4th": every(4, 0.05),
    "+5 % by every 8th": every(8, 0.05),
    "+5 % by every 10th": every(10, 0.05),
    "+5 % by every 20th": every(20, 0.05),
    "+5 % by every 50th": every(50, 0.05),
    "+5 % by a third, at random": at_random(1 / 3, 0.05),
    "+5 % by a twentieth, at random": at_random(0.05, 0.05),
    "+2 % at every step": every(1, 0.02),
    "+13 % at every step": every(1, 0.13),
}


def figure_rows(recorded: Recorded, duels: int, pairs: int, seed: int) -> Iterator[str]:
    """Yield a row a figure: its scatter, alarms either way, and what it finds."""
    shown = ["+5 % at every step", "+5 % by every 10th", "+5 % by every 20th", "+5 % by a third, at random"]
    for name, figure in FIGURES.items():
        spread = float(np.std(figure(recorded.base, recorded.head), ddof=1))
        up, down = found(recorded, figure, none, duels, pairs, seed)
        power = [found(recorded, figure, COSTS[cost], duels, pairs, seed)[0] for cost in shown]
        cells = [f"{spread:.1%}", f"{up:.1%}", f"{down:.1%}", *(f"{share:.0%}" for share in power)]
        yield f"| {name} | {pairs} | {' | '.join(cells)} |"


def found(
    recorded: Recorded, figure: Callable[[Table, Table], Table], cost: Cost, duels: int, pairs: int, seed: int
) -> tuple[float, float]:
    """Shares of duels that a t test calls slower and faster."""
    chance = np.random.default_rng(seed)
    quantile = t_quantile(1 - LEVEL, pairs - 1)
    slower = faster = 0
    for _ in range(duels):
        base, head = recorded.draw(pairs, chance)
        d = figure(base, cost(head, chance))
        statistic = float(d.mean() / (d.std(ddof=1) / math.sqrt(pairs)))
        slower, faster = slower + (statistic > quantile), faster + (statistic < -quantile)
    return slower / duels, faster / duels


def rule_row(recorded: Recorded, name: str, duels: int, seed: int) -> str:
    """A row of how duels of the whole rule end."""
    chance = np.random.default_rng(seed)
    states: Counter[State] = Counter()
    pairs = 0
    for _ in range(duels):
        base, head = recorded.draw(Rule().looks[-1], chance)
        verdict = decide(step_pairs(base, COSTS[name](head, chance)))
        states[verdict.state] += 1
        pairs += verdict.pairs
    shown = (State.SLOWER, State.SAME, State.UNDECIDED, State.FASTER)
    return f"| {name} | {' | '.join(f'{states[state] / duels:.1%}' for state in shown)} | {pairs / duels:.1f} |"


def record(reports: Path, ids: Sequence[str], condition: str) -> int:
    """Append the launch pairs of stored duels to the records of `condition`; return how many."""
    count = 0
    with Store(reports / RESULTS) as store, (RECORDS / f"same_code_{condition}.jsonl").open("a") as file:
        duels = Duels(store)
        for duel_id in ids:
            steps = duels.steps(duel_id)
            for pair in duels.pairs(duel_id):
                base_ns, head_ns = step_times(step_pairs_of(steps, pair.pair))
                times = {"base_ns": list(map(int, base_ns)), "head_ns": list(map(int, head_ns))}
                file.write(json.dumps({"duel": duel_id, "pair": pair.pair, **times}) + "\n")
                count += 1
    return count


def main(arguments: Sequence[str] | None = None) -> int:
    """Print both tables for each file of records, or add to one."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--record", nargs="+", metavar="DUEL", help="ids of stored duels to add to the records")
    parser.add_argument("--reports", type=Path, default=Path("reports"))
    parser.add_argument("--condition", choices=["idle", "loaded"], default="idle")
    parser.add_argument("--duels", type=int, default=300, help="drawn duels a row")
    parser.add_argument("--steps", type=int, default=150, help="measured steps of a launch")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args(arguments)
    if options.record:
        print(f"{record(options.reports, options.record, options.condition)} launch pairs added")
        return 0
    for path in sorted(RECORDS.glob("same_code_*.jsonl")):
        recorded = read(path).first(options.steps)
        launches, steps = recorded.base.shape
        print(f"\n{path.stem}: {launches} launch pairs of {steps} steps, {options.duels} duels a row\n")
        print("| figure | pairs | sd | alarms slower | faster | every step | every 10th | every 20th | random third |")
        print("| --- | --- | --- | --- | --- | --- | --- | --- | --- |")
        for pairs in (3, 5, 10):
            for row in figure_rows(recorded, options.duels, pairs, options.seed):
                print(row, flush=True)
        print("\n| cost in head | slower | same | undecided | faster | mean pairs |")
        print("| --- | --- | --- | --- | --- | --- |")
        for name in COSTS:
            print(rule_row(recorded, name, options.duels, options.seed), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
