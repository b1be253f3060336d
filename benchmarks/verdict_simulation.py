"""Simulate duels of a known true difference and count the verdicts: python benchmarks/verdict_simulation.py

Checks the whole rule of `harness.verdict.decide`, looks and all, where the truth is known. Each launch of the simulated
machine has luck of its own (0.6 %, and one launch in thirty is slow by a few per cent more), its steps scatter by 2 %
with lag-1 autocorrelation 0.5 and heavy tails (Student's t with 4 degrees of freedom), and they drift along the launch
by 0.5 %. Base and head noise are independent, as if one side ran after the other: lockstep can only make it smaller.
"""

from __future__ import annotations

import argparse
import math
import sys
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy import signal

from harness.stats.paired import StepPairs
from harness.stats.rule import Rule
from harness.stats.variance_prior import VariancePrior, estimate_prior
from harness.verdict import State, decide

STEP_NS = 100e6


@dataclass(frozen=True, kw_only=True)
class Machine:
    """Noise of one side, as fractions of the step time."""

    between: float = 0.006
    within: float = 0.02
    autocorrelation: float = 0.5
    tail_dof: float = 4.0
    drift: float = 0.005
    slow_launches: float = 0.035
    slow_by: float = 0.04

    def launches(self, count: int, steps: int, rng: np.random.Generator) -> NDArray[np.float64]:
        """Log step times around 0 of `count` launches: shape (count, steps)."""
        burn_in = 20
        shocks = rng.standard_t(self.tail_dof, (count, burn_in + steps)) / math.sqrt(
            self.tail_dof / (self.tail_dof - 2)
        )
        rho = self.autocorrelation
        scatter = signal.lfilter([math.sqrt(1 - rho**2)], [1, -rho], shocks, axis=1)[:, burn_in:]
        slope = rng.normal(0, self.drift, (count, 1)) * np.linspace(-1, 1, steps)
        luck = rng.normal(0, self.between, (count, 1))
        luck += (rng.random((count, 1)) < self.slow_launches) * rng.exponential(self.slow_by, (count, 1))
        return np.asarray(luck + slope + self.within * scatter, dtype=np.float64)

    def duel(self, effect: float, pairs: int, steps: int, rng: np.random.Generator) -> list[StepPairs]:
        """Launch pairs whose head takes the fraction `effect` more time."""
        base = STEP_NS * np.exp(self.launches(pairs, steps, rng))
        head = STEP_NS * (1 + effect) * np.exp(self.launches(pairs, steps, rng))
        return [StepPairs(base_ns=b[:, None], head_ns=h[:, None]) for b, h in zip(base, head, strict=True)]

    def prior(self, duels: int, steps: int, rng: np.random.Generator) -> VariancePrior:
        """What `duels` stored same-code duels of four launch pairs would lend."""
        step_differences = self.launches(duels * 4, steps, rng) - self.launches(duels * 4, steps, rng)
        d = np.median(step_differences, axis=1).reshape(duels, 4)
        prior = estimate_prior(d.var(axis=1, ddof=1).tolist(), [4] * duels)
        if prior is None:
            raise ValueError(f"{duels} stored duels lend nothing")
        return prior


@dataclass(frozen=True, kw_only=True)
class Tally:
    """Verdicts of many duels with the same true difference."""

    states: Counter[State]
    mean_pairs: float

    def share(self, state: State) -> float:
        """Fraction of duels that ended in `state`."""
        return self.states[state] / self.states.total()


def simulate(
    effect: float,
    duels: int,
    *,
    machine: Machine,
    rule: Rule | None = None,
    steps: int = 30,
    history: int = 0,
    seed: int = 0,
) -> Tally:
    """Run `duels` duels of a true difference `effect`, each with its own `history` of stored duels (0: none)."""
    rule = rule or Rule()
    rng = np.random.default_rng([seed, round((1 + effect) * 1e6)])
    states: Counter[State] = Counter()
    used = 0
    for _ in range(duels):
        prior = machine.prior(history, steps, rng) if history else None
        verdict = decide(machine.duel(effect, rule.looks[-1], steps, rng), rule, prior=prior)
        states[verdict.state] += 1
        used += verdict.pairs
    return Tally(states=states, mean_pairs=used / duels)


def main(arguments: Sequence[str] | None = None) -> int:
    """Print one line per true difference."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--duels", type=int, default=2000, help="simulated duels per true difference")
    parser.add_argument("--steps", type=int, default=30, help="step pairs per launch pair")
    parser.add_argument("--history", type=int, default=0, help="stored same-code duels to borrow variance from")
    parser.add_argument("--looks", type=int, nargs="+", default=list(Rule().looks), help="launch pairs at each look")
    parser.add_argument("--within", type=float, default=Machine().within, help="scatter of steps, a fraction")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--effects", type=float, nargs="+", default=[-0.02, 0.0, 0.01, 0.02, 0.03, 0.05])
    options = parser.parse_args(arguments)
    machine, rule = Machine(within=options.within), Rule(looks=tuple(options.looks))
    looks = ", ".join(map(str, rule.looks))
    print(
        f"{options.duels} duels each, looks at {looks}, {options.steps} steps that scatter by {machine.within:.0%}, "
        f"history {options.history}, seed {options.seed}"
    )
    print(
        "| true difference | slower | same | undecided | faster | mean pairs |\n| --- | --- | --- | --- | --- | --- |"
    )
    for effect in options.effects:
        tally = simulate(
            effect,
            options.duels,
            machine=machine,
            rule=rule,
            steps=options.steps,
            history=options.history,
            seed=options.seed,
        )
        shown = (State.SLOWER, State.SAME, State.UNDECIDED, State.FASTER)
        cells = " | ".join(f"{tally.share(state) * 100:.1f} %" for state in shown)
        print(f"| {effect * 100:+.0f} % | {cells} | {tally.mean_pairs:.1f} |", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
