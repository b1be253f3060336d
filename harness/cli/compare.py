"""`stepduel compare`: two subjects in lockstep, and an honest verdict."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from harness.cli.duel_options import duel_options
from harness.cli.subject_options import subject_options


@click.command()
@click.argument("name", metavar="SCENARIO")
@click.argument("base", required=False)
@click.argument("head", required=False)
@click.option("--base-set", "base_overrides", multiple=True, metavar="KEY=VALUE", help="Override a key for BASE only.")
@click.option("--head-set", "head_overrides", multiple=True, metavar="KEY=VALUE", help="Override a key for HEAD only.")
@subject_options
@click.option(
    "--collector",
    type=click.Choice(["recorder", "nsys", "kineto", "none"]),
    default="recorder",
    show_default=True,
    help="What traces the launches that are timed.",
)
@click.option(
    "--explain",
    type=click.Choice(["auto", "nsys", "kineto", "none"]),
    default="auto",
    show_default=True,
    help="Trace one more launch pair, not timed, for where GPU time goes.",
)
@click.option("--exit-code", "slower_fails", is_flag=True, help="Exit with 1 when HEAD is slower.")
@duel_options
def compare(
    name: str,
    base: str | None,
    head: str | None,
    base_overrides: tuple[str, ...],
    head_overrides: tuple[str, ...],
    repo: Path,
    python: str | None,
    allow_mismatch: bool,
    collector: str,
    explain: str,
    slower_fails: bool,
    **options: Any,
) -> int:
    """Step BASE and HEAD in turn and say which is faster, by how much, where, and whether both do the same work.

    BASE and HEAD are git revisions, . for the working tree with its uncommitted changes, or releases, as in
    release:verl==0.8.0 or wheel:PATH. HEAD defaults to ., BASE to where the current branch left the main branch. With
    --base-set or --head-set alone, both are the working tree.

    Exit codes: 0 with a verdict, 3 undecided or invalid, 4 a launch failed; with --exit-code 1 for slower.
    """
    from harness.cli.duel_command import (
        DuelOptions,
        explaining_collector,
        resolve_sides,
        run_and_print,
        timing_collector,
    )
    from harness.cli.subject_options import subject_cache, warn_of_mismatches
    from harness.subject import prepare_engine

    settings = DuelOptions(**options)
    timing = timing_collector(collector)
    with subject_cache() as cache:
        scenario = settings.scenario(name)
        engine = prepare_engine(scenario, (base, head), cache, python=python, allow_mismatch=allow_mismatch)
        sides = resolve_sides(base, head, engine, repo, cache, base_overrides, head_overrides)
        warn_of_mismatches(*sides.subjects)
        plan = settings.plan(
            "compare",
            name,
            sides.subjects,
            (timing, timing),
            explain=explaining_collector(explain, timing),
            cannot_run=sides.cannot_run,
        )
        return run_and_print(plan, settings, repo=repo, slower_fails=slower_fails)
