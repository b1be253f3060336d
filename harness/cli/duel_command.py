"""What the commands with a duel share after parsing: from options to a plan, from a plan to what is printed."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from harness.cli.compare_table import print_comparison
from harness.cli.duel_options import engine_overrides, order_seed
from harness.cli.duel_progress import TerminalProgress
from harness.cli.output import print_json
from harness.comparison import document
from harness.duel import RESULTS, DuelPlan, DuelSide, Interleave, run_duel
from harness.scenario import Scenario, load_scenario
from harness.stats.sequential import Rule, planned_looks
from harness.store import DuelKind, check_writable
from harness.subject import Subject


@dataclass(frozen=True, kw_only=True)
class DuelOptions:
    """The shared options as click parsed them; `duel_options` says what they mean."""

    overrides: tuple[str, ...]
    ranks: int | None
    steps: int | None
    pairs: int
    min_effect: float
    min_abs: float
    margin: float
    alpha: float
    interleave: Interleave
    budget: float | None
    seed: int | None
    resume: bool
    reports: Path
    as_json: bool

    def scenario(self, name: str, own: tuple[str, ...] = ()) -> Scenario:
        """Return the scenario with the shared overrides, then those of one side."""
        ranks = [f"run.ranks={self.ranks}"] if self.ranks else []
        return load_scenario(name, [*self.overrides, *ranks, *own])

    def plan(
        self, kind: DuelKind, name: str, subjects: tuple[Subject, Subject], collectors: tuple[str, str]
    ) -> DuelPlan:
        """Return the plan of a duel between two subjects, each with its collector. UsageError if something is off."""
        base, head = subjects
        engine_overrides(base.overrides, "--base-set")
        engine_overrides(head.overrides, "--head-set")
        rule = Rule(
            looks=planned_looks(self.pairs),
            alpha=self.alpha,
            min_effect=self.min_effect,
            min_abs_ns=self.min_abs * 1e6,
            margin=self.margin,
        )
        check_writable(self.reports / RESULTS)
        return DuelPlan(
            kind=kind,
            scenario=self.scenario(name),
            base=DuelSide(
                name="base", subject=base, scenario=self.scenario(name, base.overrides), collector=collectors[0]
            ),
            head=DuelSide(
                name="head", subject=head, scenario=self.scenario(name, head.overrides), collector=collectors[1]
            ),
            rule=rule,
            steps=self.steps,
            interleave=self.interleave,
            seed=order_seed(self.seed),
            budget_s=self.budget,
            reports=self.reports,
        )


def run_and_print(plan: DuelPlan, options: DuelOptions, *, slower_fails: bool = False) -> int:
    """Run the duel, print what it found, and return the exit code."""
    with TerminalProgress() as progress:
        comparison = run_duel(plan, progress, resume=options.resume)
    if options.as_json:
        print_json(document(comparison))
    else:
        print_comparison(comparison)
    return comparison.exit_code(slower_fails=slower_fails)
