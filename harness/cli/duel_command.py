"""What the commands with a duel share after parsing: what their options say, and what is printed of the duel."""

from __future__ import annotations

import contextlib
from dataclasses import dataclass
from pathlib import Path

from harness.cli.compare_table import print_comparison
from harness.cli.duel_progress import TerminalProgress
from harness.cli.html_reports import write_duel
from harness.cli.output import print_json
from harness.cli.stopped import say_how_to_go_on
from harness.comparison import document
from harness.duel import DuelPlan, DuelSettings, DuelStoppedError, Interleave, run_duel
from harness.scenario import ScenarioFile, read_scenario
from harness.stats.rule import Rule, planned_looks


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
    pinned: bool
    budget: float | None
    seed: int | None
    resume: bool
    reports: Path
    as_json: bool
    html: Path | None

    def scenario_file(self, name: str) -> ScenarioFile:
        """Read the scenario and put the shared overrides on it."""
        ranks = [f"run.ranks={self.ranks}"] if self.ranks else []
        return read_scenario(name).overridden([*self.overrides, *ranks])

    def settings(self) -> DuelSettings:
        """Return how the duel is to be run."""
        return DuelSettings(
            rule=Rule(
                looks=planned_looks(self.pairs),
                alpha=self.alpha,
                min_effect=self.min_effect,
                min_abs_ns=self.min_abs * 1e6,
                margin=self.margin,
            ),
            steps=self.steps,
            interleave=self.interleave,
            pinned=self.pinned,
            budget_s=self.budget,
            seed=self.seed,
            reports=self.reports,
        )


def run_and_print(
    plan: DuelPlan,
    options: DuelOptions,
    *,
    repo: Path = Path(),
    slower_fails: bool = False,
    resume: bool | None = None,
    duels_left: int | None = None,
) -> int:
    """Run the duel, write and print what it found, and return the exit code. `repo` tells the commits between sides.

    `resume` None is what was asked for. `duels_left` is how many of several duels a stopped one leaves, with itself.
    """
    try:
        with TerminalProgress() as progress:
            comparison = run_duel(plan, progress, resume=options.resume if resume is None else resume)
    except DuelStoppedError as stopped:
        if not options.as_json:  # a document would be taken for the answer
            with contextlib.suppress(BrokenPipeError):  # Ctrl-C ends what stdout is piped into as well
                print_comparison(stopped.so_far)
        if stopped.so_far.unfinished:
            say_how_to_go_on(duels_left)
        raise
    if options.html is not None:
        write_duel(comparison, options.reports, repo, options.html)
    if options.as_json:
        print_json(document(comparison))
    else:
        print_comparison(comparison)
    return comparison.exit_code(slower_fails=slower_fails)
