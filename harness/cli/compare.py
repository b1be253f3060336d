"""`stepduel compare`: two subjects in lockstep, and an honest verdict."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from harness.cli.duel_options import duel_options


@click.command()
@click.argument("name", metavar="SCENARIO")
@click.argument("base", required=False)
@click.argument("head", required=False)
@click.option("--base-set", "base_overrides", multiple=True, metavar="KEY=VALUE", help="Override a key for BASE only.")
@click.option("--head-set", "head_overrides", multiple=True, metavar="KEY=VALUE", help="Override a key for HEAD only.")
@click.option(
    "--repo",
    type=click.Path(path_type=Path, file_okay=False, exists=True),
    default=Path(),
    help="Repository that holds the engine; default: the current folder's.",
)
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
    collector: str,
    explain: str,
    slower_fails: bool,
    **options: Any,
) -> int:
    """Step BASE and HEAD in turn and say which is faster, by how much, where, and whether both do the same work.

    BASE and HEAD are git revisions, or . for the working tree with its uncommitted changes. HEAD defaults to ., BASE
    to where the current branch left the main branch. With --base-set or --head-set alone, both are the working tree.

    Exit codes: 0 with a verdict, 3 undecided or invalid, 4 a launch failed; with --exit-code 1 for slower.
    """
    from harness.cli.duel_command import (
        DuelOptions,
        explaining_collector,
        resolve_sides,
        run_and_print,
        timing_collector,
    )
    from harness.subject import TreeCache

    settings = DuelOptions(**options)
    timing = timing_collector(collector)
    with TreeCache() as trees:
        sides = resolve_sides(base, head, settings.scenario(name).factory, repo, trees, base_overrides, head_overrides)
        plan = settings.plan(
            "compare",
            name,
            sides.subjects,
            (timing, timing),
            explain=explaining_collector(explain, timing),
            cannot_run=sides.cannot_run,
        )
        return run_and_print(plan, settings, repo=repo, slower_fails=slower_fails)
