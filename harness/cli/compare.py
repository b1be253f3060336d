"""`stepduel compare`: two subjects in lockstep, and an honest verdict."""

from __future__ import annotations

from typing import Any

import click

from harness.cli.duel_options import duel_options
from harness.cli.options import collector_option, picked, side_options, slower_fails_option, subject_options
from harness.collectors.choice import AUTO
from harness.collectors.registry import DEFAULT, UNTRACED, names_where


@click.command()
@click.argument("name", metavar="SCENARIO")
@click.argument("base", required=False)
@click.argument("head", required=False)
@side_options
@subject_options
@collector_option("--collector", "What traces the launches that are timed.", *names_where(), default=DEFAULT)
@collector_option(
    "--explain",
    "Trace one more launch pair, not timed, for where GPU time goes.",
    AUTO,
    *names_where(lambda able: able.sees_gpu),
    UNTRACED,
    default=AUTO,
)
@slower_fails_option
@duel_options
def compare(name: str, collector: str, explain: str, slower_fails: bool, **options: Any) -> int:
    """Step BASE and HEAD in turn and say which is faster, by how much, where, and whether both do the same work.

    BASE and HEAD are git revisions, . for the working tree with its uncommitted changes, or releases, as in
    release:verl==0.8.0 or wheel:PATH. HEAD defaults to ., BASE to where the current branch left the main branch. With
    --base-set or --head-set alone, both are the working tree.

    Exit codes: 0 with a verdict, 3 undecided or invalid, 4 a launch failed; with --exit-code 1 for slower.
    """
    from harness.cli.duel_command import DuelOptions, run_and_print
    from harness.cli.subjects import subject_cache, tell_of_subjects
    from harness.duel import WantedSides, compare_plan

    given, wanted = picked(DuelOptions, options), picked(WantedSides, options)
    with subject_cache() as cache:
        source = given.scenario_file(name)
        plan = compare_plan(source, wanted, given.settings(), cache, collector=collector, explain=explain)
        tell_of_subjects(plan.base.subject, plan.head.subject)
        return run_and_print(plan, given, repo=wanted.repo, slower_fails=slower_fails)
