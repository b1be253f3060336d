"""How much ln(head/base) scatters for the same code on both sides, by the order of steps.

    python benchmarks/lockstep_noise.py --reports reports/lockstep_noise --pairs 12 --steps 100

Each launch pair runs all orders one after the other, in an order drawn by lot: `after` steps one side to the end and
then the other, `blocks` alternates every 25 steps, `lockstep` every step by a coin; and each with the ranks of both
sides kept to the same cores, as a duel does, and free to run on any. So all of them meet the same launches and the same
hour. Once as the machine is and once with one core kept busy. Goes on from its own results.
"""

from __future__ import annotations

import argparse
import math
import os
import random
import tempfile
from collections.abc import Sequence
from contextlib import ExitStack
from itertools import product
from pathlib import Path
from statistics import median, stdev

from records import CONDITIONS, Records, condition

from harness.duel import DuelSide
from harness.duel.launches import launch_request
from harness.launch import Launch, Pace
from harness.launch.placement import keep_to, place_ranks
from harness.scenario import Scenario, load_scenario
from harness.store import SIDES, SideName
from harness.subject import working_tree

BLOCK = 25
ORDERS = ("after", "blocks", "lockstep")
CORES = ("any", "same")


def schedule(order: str, steps: int, lot: random.Random) -> list[SideName]:
    """Return whose turn it is, `steps` times a side."""
    first, second = lot.sample(SIDES, 2)
    if order == "after":
        return [first] * steps + [second] * steps
    if order == "blocks":
        turns: list[SideName] = []
        for begin in range(0, steps, BLOCK):
            turns += [first] * min(BLOCK, steps - begin) + [second] * min(BLOCK, steps - begin)
        return turns
    return [side for _ in range(steps) for side in lot.sample(SIDES, 2)]


Times = dict[SideName, list[int]]
"""Step times in ns on the slowest rank, by side."""


def measure_pair(scenario: Scenario, pair: int, steps: int, folder: Path) -> dict[tuple[str, str], Times]:
    """Start both sides and return the times of each order and placement."""
    subject = working_tree(scenario.factory, Path.cwd())
    lot = random.Random(pair)
    env = {"PYTHONHASHSEED": str(lot.getrandbits(31))}
    kinds = list(product(ORDERS, CORES))
    pace = Pace(warmup_steps=5, steps=len(kinds) * steps)
    found: dict[tuple[str, str], Times] = {}
    with ExitStack() as stack:
        launches: dict[SideName, Launch] = {}
        for name in SIDES:
            side = DuelSide(name=name, subject=subject, scenario=scenario, collector="recorder")
            launches[name] = stack.enter_context(Launch(launch_request(side, folder / name, pace, env)))
        pids = [pid for launch in launches.values() for pid in launch.wait_ready().pids]
        for side_name in pace.warmup_steps * SIDES:
            launches[side_name].step()
        for order, cores in lot.sample(kinds, len(kinds)):
            place(pids, scenario.run.ranks, cores)
            times: Times = {"base": [], "head": []}
            for turn in schedule(order, steps, lot):
                times[turn].append(launches[turn].step().duration_ns)
            found[order, cores] = times
        for launch in launches.values():
            launch.stop()
    return found


def place(pids: Sequence[int], ranks: int, cores: str) -> None:
    """Bind the ranks (base's, then head's) to the cores that a duel would, or let them go."""
    usable = os.sched_getaffinity(0)
    placement = place_ranks(ranks, 1, usable)
    assert placement is not None, f"{len(usable)} cores are too few for {ranks} ranks"
    keep_to(pids, placement * 2 if cores == "same" else [tuple(usable)] * len(pids))


def log_ratio(base_ns: Sequence[int], head_ns: Sequence[int]) -> float:
    """Return the median over step pairs of ln(head/base), as a duel takes it."""
    return median(math.log(head / base) for base, head in zip(base_ns, head_ns, strict=True))


def print_table(records: Records) -> None:
    """Print the standard deviation over launch pairs, by condition and order."""
    print("| machine | cores | order | launch pairs | sd of ln(head/base) | against blocks |")
    print("| --- | --- | --- | --- | --- | --- |")
    for name, cores in product(CONDITIONS, CORES):
        spread = {}
        for order in ORDERS:
            rows = records.where(condition=name, cores=cores, order=order)
            if len(rows) > 1:
                spread[order] = stdev(log_ratio(row["base_ns"], row["head_ns"]) for row in rows), len(rows)
        for order, (deviation, count) in spread.items():
            against = f"{deviation / spread['blocks'][0]:.2f}" if "blocks" in spread else ""
            print(f"| {name} | {cores} | {order} | {count} | {deviation:.2%} | {against} |")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--scenario", default="smoke")
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", help="override a key")
    parser.add_argument("--pairs", type=int, default=12)
    parser.add_argument("--steps", type=int, default=100, help="steps a side and order")
    parser.add_argument("--reports", type=Path, default=Path("reports/lockstep_noise"))
    given = parser.parse_args()
    scenario = load_scenario(given.scenario, given.set)
    records = Records(given.reports / f"{scenario.name}-{scenario.hash}-{given.steps}.jsonl")
    for name in CONDITIONS:
        with condition(name):
            for pair in range(given.pairs):
                if records.where(condition=name, pair=pair):
                    continue
                with tempfile.TemporaryDirectory() as folder:
                    found = measure_pair(scenario, pair, given.steps, Path(folder))
                for (order, cores), times in found.items():
                    both = {"base_ns": times["base"], "head_ns": times["head"]}
                    records.add(condition=name, pair=pair, order=order, cores=cores, **both)
                print(f"{name}: launch pair {pair + 1} of {given.pairs}", flush=True)
    print_table(records)


if __name__ == "__main__":
    main()
