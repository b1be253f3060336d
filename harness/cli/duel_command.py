"""What the commands with a duel share after parsing: from options to a plan, from a plan to what is printed."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from harness.cli.compare_table import print_comparison
from harness.cli.duel_options import engine_overrides, order_seed
from harness.cli.duel_progress import TerminalProgress
from harness.cli.html_reports import write_duel
from harness.cli.output import print_json
from harness.collectors.choice import choose
from harness.collectors.cupti import cuda_device_present
from harness.collectors.registry import collectors as collectors_by_name
from harness.comparison import document
from harness.duel import DuelPlan, DuelSide, Interleave, run_duel
from harness.errors import UsageError
from harness.metrics import DEFAULT_LIMITS
from harness.scenario import Scenario, load_scenario
from harness.stats.sequential import Rule, planned_looks
from harness.store import RESULTS, DuelKind, check_writable
from harness.subject import (
    Engine,
    NoEngineError,
    Subject,
    SubjectCache,
    default_names,
    resolve_commit,
    resolve_subject,
)


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
    html: Path | None = None

    def scenario(self, name: str, own: tuple[str, ...] = ()) -> Scenario:
        """Return the scenario with the shared overrides, then those of one side."""
        ranks = [f"run.ranks={self.ranks}"] if self.ranks else []
        return load_scenario(name, [*self.overrides, *ranks, *own])

    def plan(
        self,
        kind: DuelKind,
        name: str,
        subjects: tuple[Subject, Subject],
        collectors: tuple[str, str],
        *,
        explain: str | None = None,
        cannot_run: str | None = None,
        limits: Mapping[str, float] = DEFAULT_LIMITS,
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
            pinned=self.pinned,
            seed=order_seed(self.seed),
            budget_s=self.budget,
            explain=explain,
            cannot_run=cannot_run,
            limits=limits,
            reports=self.reports,
        )


@dataclass(frozen=True, kw_only=True)
class Sides:
    """Both subjects, and why one of them cannot be started at all, if so."""

    subjects: tuple[Subject, Subject]
    cannot_run: str | None


def resolve_sides(
    base: str | None,
    head: str | None,
    engine: Engine,
    repository: Path,
    cache: SubjectCache,
    base_overrides: tuple[str, ...],
    head_overrides: tuple[str, ...],
) -> Sides:
    """Return both subjects. A revision without the engine is no error: the comparison will say so."""
    overrides = {"base": base_overrides, "head": head_overrides}
    names = default_names(base, head, repository, one_code=bool(base_overrides or head_overrides))
    subjects, missing = [], []
    for side, name in zip(overrides, names, strict=True):
        try:
            subjects.append(resolve_subject(name, engine, repository, cache, overrides=overrides[side]))
        except NoEngineError as error:
            missing.append(f"{side} cannot run the scenario: {error}")
            subjects.append(
                Subject(
                    name=name,
                    engine_root=None,
                    python=engine.python,
                    revision=resolve_commit(repository, name),
                    dirty=False,
                    overrides=overrides[side],
                )
            )
    if len(missing) == len(subjects):
        raise UsageError("; ".join(missing))
    return Sides(subjects=(subjects[0], subjects[1]), cannot_run=missing[0] if missing else None)


def timing_collector(name: str) -> str:
    """Return the collector of the timed launches, checked to work here."""
    return choose(name, collectors_by_name(), os.environ).collector.name


def explaining_collector(wanted: str, timing: str) -> str | None:
    """Return what traces the launch pair that explains GPU time; None for no such pair.

    `auto` is nsys or kineto where there is a GPU: without one they see nothing that the timed launches lack.
    """
    if wanted == "none" or wanted == timing:
        return None
    if wanted != "auto":
        return timing_collector(wanted)
    if not cuda_device_present(os.environ):
        return None
    best = choose("auto", collectors_by_name(), os.environ).collector.name
    return best if best in ("nsys", "kineto") and best != timing else None


def run_and_print(plan: DuelPlan, options: DuelOptions, *, repo: Path = Path(), slower_fails: bool = False) -> int:
    """Run the duel, write and print what it found, and return the exit code. `repo` tells the commits between sides."""
    with TerminalProgress() as progress:
        comparison = run_duel(plan, progress, resume=options.resume)
    if options.html is not None:
        write_duel(comparison, options.reports, repo, options.html)
    if options.as_json:
        print_json(document(comparison))
    else:
        print_comparison(comparison)
    return comparison.exit_code(slower_fails=slower_fails)
