"""`stepduel index`: one page that lists all reports."""

from __future__ import annotations

from pathlib import Path

import click

from harness.cli.options import reports_option


@click.command()
@reports_option()
def index(reports: Path) -> None:
    """Write index.html of the reports folder, which lists every report in it."""
    from harness.cli.output import clean, stdout_console
    from harness.errors import UsageError
    from harness.report import write_index
    from harness.store import RESULTS, Duels, Store

    if not reports.is_dir():
        raise UsageError(f"{reports}: no such folder; run stepduel compare --html, or choose another --reports")
    duels = []
    if (reports / RESULTS).is_file():
        with Store(reports / RESULTS) as store:
            duels = Duels(store).find()
    stdout_console().print(clean(str(write_index(reports, duels))), soft_wrap=True)
