"""`stepduel overhead`: what a collector costs, as a duel of a scenario traced against the same untraced."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from harness.cli.duel_options import duel_options


@click.command()
@click.argument("name", metavar="SCENARIO")
@click.argument("subject", default=".")
@click.option(
    "--repo",
    type=click.Path(path_type=Path, file_okay=False, exists=True),
    default=Path(),
    help="Repository that holds the engine; default: the current folder's.",
)
@click.option(
    "--collector",
    type=click.Choice(["recorder", "nsys", "kineto"]),
    default="recorder",
    show_default=True,
    help="Whose cost to measure.",
)
@duel_options
def overhead(name: str, subject: str, repo: Path, collector: str, **options: Any) -> int:
    """Measure what tracing costs: SUBJECT (. unless given) untraced as base, traced by a collector as head.

    The ratio is the tool's own overhead on step time. Probes and ranges stay on both sides; only what records them
    differs.
    """
    from harness.cli.duel_command import DuelOptions, run_and_print, timing_collector
    from harness.subject import TreeCache, resolve_subject

    settings = DuelOptions(**options)
    with TreeCache() as trees:
        code = resolve_subject(subject, settings.scenario(name).factory, repo, trees)
        plan = settings.plan("overhead", name, (code, code), ("none", timing_collector(collector)))
        return run_and_print(plan, settings)
