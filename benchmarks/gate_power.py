"""How often the gate is right: duels of the same code, and of code that is slower by a known share of its step.

    python benchmarks/gate_power.py --reports reports/gate_power
    python benchmarks/gate_power.py --table benchmarks/records/gate_power.jsonl

The slowdown is injected by `engine.slowdown_share`, which spins for a share of forward and backward; the first
same-code duel shows what part of the step those are, and the override is scaled so that the *step* gets slower by 2, 5
or 13 %. Kinds of duels take turns, so that an hour's drift meets all of them. Goes on from its own results, and prints
the table of what there is: with the defaults it runs for one to two hours.
"""

from __future__ import annotations

import argparse
import os
import time
from collections import Counter
from dataclasses import replace
from pathlib import Path
from statistics import mean

from records import CONDITIONS, Records, condition

from harness.comparison import Comparison
from harness.duel import DetectableEffect, DuelPlan, DuelSide, run_duel
from harness.metrics import DEFAULT_LIMITS
from harness.names import FORWARD_BACKWARD, STEP
from harness.scenario import load_scenario
from harness.stats.rule import Rule
from harness.subject import working_tree
from harness.verdict import State

SLOWDOWNS = (0.02, 0.05, 0.13)
SAME_CODE, SLOWED = {"idle": 40, "one core busy": 20}, {"idle": 10, "one core busy": 5}


class Silent:
    """Shows nothing of a duel's progress."""

    def resumed(self, pairs: int, duel_id: str) -> None: ...
    def nothing_to_resume(self) -> None: ...
    def starting(self, pair: int, most_pairs: int) -> None: ...
    def forecast(
        self, effect: DetectableEffect, first_look: int, last_look: int, margin: float, steps: int
    ) -> None: ...
    def out_of_reach(self, needed_s: float, left_s: float, pairs: int) -> None: ...
    def stepped(self, pair: int, done: int, steps: int) -> None: ...
    def paired(self, comparison: Comparison) -> None: ...
    def unexplained(self, problem: str) -> None: ...


def duel(name: str, overrides: list[str], slowdown_share: float, reports: Path) -> Comparison:
    """Run one duel of the working tree against itself, head slowed by a share of forward and backward."""
    scenario = load_scenario(name, overrides)
    subject = working_tree(scenario.factory, Path.cwd())
    own = (f"engine.slowdown_share={slowdown_share}",) if slowdown_share else ()
    base = DuelSide(name="base", subject=subject, scenario=scenario, collector="recorder")
    head = DuelSide(
        name="head",
        subject=replace(subject, overrides=own),
        scenario=load_scenario(name, [*overrides, *own]),
        collector="recorder",
    )
    plan = DuelPlan(
        kind="compare" if slowdown_share else "aa",
        scenario=scenario,
        base=base,
        head=head,
        rule=Rule(),
        steps=None,
        interleave="steps",
        pinned=True,
        seed=int.from_bytes(os.urandom(4), "big") >> 1,
        budget_s=None,
        explain=None,
        reports=reports,
        limits=DEFAULT_LIMITS,
    )
    return run_duel(plan, Silent())


def forward_share(comparison: Comparison) -> float:
    """Return which part of base's step is forward and backward."""
    top = f"{STEP}/{FORWARD_BACKWARD}"
    inside = [part.base_ns for part in comparison.ranges if part.path == top or part.path.startswith(f"{top}/")]
    return sum(inside) / sum(part.base_ns for part in comparison.ranges)


def due(records: Records, name: str, same_code: int, slowed: int) -> list[float]:
    """Return the injected slowdowns still to run under a condition, those with most left first."""
    left = {0.0: same_code, **dict.fromkeys(SLOWDOWNS, slowed)}
    for row in records.where(condition=name):
        left[row["injected"]] = left.get(row["injected"], 0) - 1
    return sorted((kind for kind, count in left.items() if count > 0), key=lambda kind: -left[kind])


def run(records: Records, name: str, injected: float, given: argparse.Namespace) -> None:
    """Run one duel and write down what it said."""
    shares = [row["forward_share"] for row in records.where(condition=name, injected=0.0)]
    slowdown_share = injected / mean(shares) if injected else 0.0
    began_s = time.monotonic()
    found = duel(given.scenario, given.set, slowdown_share, given.reports)
    verdict = found.verdict
    records.add(
        condition=name,
        injected=injected,
        state=verdict.state.value,
        reason=verdict.reason.value,
        ratio=verdict.ratio,
        detectable_effect=verdict.detectable_effect,
        pairs=len(found.pairs),
        steps=found.duel.steps,
        ratios=[pair.ratio for pair in found.pairs],
        seconds=time.monotonic() - began_s,
        forward_share=forward_share(found),
        lent_by=found.prior.duels if found.prior else 0,
        duel=found.duel.id,
    )
    print(f"{name}, {injected:.0%} slower: {verdict.line}", flush=True)


def print_table(records: Records) -> None:
    """Print how many duels of each kind ended in each state, and what they took."""
    states = list(State)
    print(f"| machine | injected | duels | {' | '.join(states)} | mean ratio | pairs | seconds |")
    print("| --- " * (6 + len(states)) + "|")
    for name in CONDITIONS:
        for injected in (0.0, *SLOWDOWNS):
            rows = records.where(condition=name, injected=injected)
            if not rows:
                continue
            counts = Counter(row["state"] for row in rows)
            ratios = [row["ratio"] for row in rows if row["ratio"] is not None]
            cells = " | ".join(str(counts[state.value]) for state in states)
            ratio = f"{mean(ratios) - 1:+.1%}" if ratios else ""
            pairs, seconds = mean(row["pairs"] for row in rows), mean(row["seconds"] for row in rows)
            print(f"| {name} | {injected:.0%} | {len(rows)} | {cells} | {ratio} | {pairs:.1f} | {seconds:.0f} |")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--scenario", default="smoke")
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", help="override a key")
    parser.add_argument("--same-code", type=int, help="same-code duels a condition (40 idle, 20 busy)")
    parser.add_argument("--slowed", type=int, help="duels a condition and slowdown (10 idle, 5 busy)")
    parser.add_argument("--condition", choices=CONDITIONS, action="append", help="only this one")
    parser.add_argument("--reports", type=Path, default=Path("reports/gate_power"))
    parser.add_argument("--table", type=Path, metavar="RECORDS", help="print the table of a records file, run nothing")
    given = parser.parse_args()
    if given.table is not None:
        print_table(Records(given.table))
        return
    records = Records(given.reports / "duels.jsonl")
    for name in given.condition or CONDITIONS:
        same_code = SAME_CODE[name] if given.same_code is None else given.same_code
        slowed = SLOWED[name] if given.slowed is None else given.slowed
        with condition(name):
            # The first same-code duel is needed to scale the others; it has most left, hence comes first.
            while kinds := due(records, name, max(same_code, 1), slowed):
                run(records, name, 0.0 if not records.where(condition=name, injected=0.0) else kinds[0], given)
    print_table(records)


if __name__ == "__main__":
    main()
