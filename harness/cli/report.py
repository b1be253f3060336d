"""`stepduel report`: a stored duel's verdict, computed again from the database alone."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import click

from harness.cli.options import html_option, json_option, repo_option, reports_option, slower_fails_option


@contextmanager
def without_collections() -> Iterator[None]:
    """Keep Python from looking for cycles among hundreds of thousands of records, which takes a tenth of the time."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


@click.command()
@click.argument("duel_id", metavar="[DUEL]", required=False)
@reports_option()
@html_option
@repo_option("Repository to ask for the commits between both sides")
@slower_fails_option
@json_option
@without_collections()
def report(duel_id: str | None, reports: Path, html: Path | None, repo: Path, slower_fails: bool, as_json: bool) -> int:
    """Compute the verdict of a stored duel again; the newest unless DUEL names another.

    Nothing but results.db is read, and with --html the traces that are left; the exit code is that of compare.
    """
    from harness.cli.compare_table import print_comparison
    from harness.cli.html_reports import write_duel
    from harness.cli.output import print_json
    from harness.comparison import compare_stored, document
    from harness.store import Duels, open_results

    with open_results(reports) as store:
        duels = Duels(store)
        comparison = compare_stored(duels, duel_id or duels.newest().id)
    if html is not None:
        write_duel(comparison, reports, repo, html)
    if as_json:
        print_json(document(comparison))
    else:
        print_comparison(comparison)
    return comparison.exit_code(slower_fails=slower_fails)
