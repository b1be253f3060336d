"""`stepduel aa`: the same code on both sides. The instrument's own test, and what later duels know about the noise."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from harness.cli.duel_options import duel_options
from harness.cli.options import subject_options


@click.command()
@click.argument("name", metavar="SCENARIO")
@click.argument("subject", default=".")
@subject_options
@click.option("--duels", type=click.IntRange(min=1), default=1, show_default=True, help="How many to run in a row.")
@duel_options
def aa(
    name: str, subject: str, repo: Path, python: str | None, allow_mismatch: bool, duels: int, **options: Any
) -> int:
    """Duel SUBJECT (. unless given) against itself.

    Any verdict but same is a false alarm or noise. From 20 stored duels on, their scatter lends later duels of the same
    scenario on this machine degrees of freedom, which makes them more sensitive.
    """
    from harness.cli.aa_summary import print_history
    from harness.cli.duel_command import DuelOptions, run_and_print
    from harness.cli.subjects import subject_cache, tell_of_subjects
    from harness.collectors.registry import DEFAULT
    from harness.duel import duel_plan
    from harness.errors import UsageError
    from harness.subject import prepare_subject

    given = DuelOptions(**options)
    if given.as_json and duels > 1:
        raise UsageError(f"--json prints one document: expected --duels 1 with it, not {duels}")
    source = given.scenario_file(name)
    scenario = source.resolve()
    with subject_cache() as cache:
        code = prepare_subject(scenario, subject, repo, cache, python=python, allow_mismatch=allow_mismatch)
        tell_of_subjects(code)
        for done in range(duels):
            plan = duel_plan("aa", source, (code, code), (DEFAULT, DEFAULT), given.settings())
            # Only the first can be one that was stopped; a later one would take up a duel that stayed undecided.
            resume = given.resume and done == 0
            status = run_and_print(plan, given, resume=resume, duels_left=duels - done)
    if not given.as_json:
        print_history(given.reports, scenario.hash, pinned=given.pinned)
    return status
