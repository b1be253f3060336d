"""`stepduel overhead`: what a collector costs, as a duel of a scenario traced against the same untraced."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from harness.cli.duel_options import duel_options
from harness.cli.options import collector_option, subject_options
from harness.collectors.registry import DEFAULT, UNTRACED, names_where


@click.command()
@click.argument("name", metavar="SCENARIO")
@click.argument("subject", default=".")
@subject_options
@collector_option("--collector", "Whose cost to measure.", *names_where(lambda able: able.traces), default=DEFAULT)
@duel_options
def overhead(
    name: str, subject: str, repo: Path, python: str | None, allow_mismatch: bool, collector: str, **options: Any
) -> int:
    """Measure what tracing costs: SUBJECT (. unless given) untraced as base, traced by a collector as head.

    The ratio is the tool's own overhead on step time. Probes and ranges stay on both sides; only what records them
    differs.
    """
    from harness.cli.duel_command import DuelOptions, run_and_print
    from harness.cli.subjects import subject_cache, tell_of_subjects
    from harness.duel import duel_plan, timing_collector
    from harness.subject import prepare_subject

    given = DuelOptions(**options)
    with subject_cache() as cache:
        source = given.scenario_file(name)
        code = prepare_subject(source.resolve(), subject, repo, cache, python=python, allow_mismatch=allow_mismatch)
        tell_of_subjects(code)
        sides = (UNTRACED, timing_collector(collector))
        return run_and_print(duel_plan("overhead", source, (code, code), sides, given.settings()), given)
