"""`stepduel overhead`: what a collector costs, as a duel of a scenario traced against the same untraced."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from harness.cli.duel_options import duel_options
from harness.cli.subject_options import subject_options


@click.command()
@click.argument("name", metavar="SCENARIO")
@click.argument("subject", default=".")
@subject_options
@click.option(
    "--collector",
    type=click.Choice(["recorder", "nsys", "kineto"]),
    default="recorder",
    show_default=True,
    help="Whose cost to measure.",
)
@duel_options
def overhead(
    name: str, subject: str, repo: Path, python: str | None, allow_mismatch: bool, collector: str, **options: Any
) -> int:
    """Measure what tracing costs: SUBJECT (. unless given) untraced as base, traced by a collector as head.

    The ratio is the tool's own overhead on step time. Probes and ranges stay on both sides; only what records them
    differs.
    """
    from harness.cli.duel_command import DuelOptions, run_and_print, timing_collector
    from harness.cli.subject_options import subject_cache, warn_of_mismatches
    from harness.subject import prepare_engine, resolve_subject

    settings = DuelOptions(**options)
    with subject_cache() as cache:
        scenario = settings.scenario(name)
        engine = prepare_engine(scenario, (subject,), cache, python=python, allow_mismatch=allow_mismatch)
        code = resolve_subject(subject, engine, repo, cache)
        warn_of_mismatches(code)
        plan = settings.plan("overhead", name, (code, code), ("none", timing_collector(collector)))
        return run_and_print(plan, settings)
