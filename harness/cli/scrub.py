"""`stepduel scrub`: a copy of a trace that can be shared."""

from __future__ import annotations

from pathlib import Path

import click
from rich.text import Text

from harness.cli.options import json_option
from harness.cli.output import clean, print_json, stdout_console
from harness.trace.scrub import scrub as scrub_trace


@click.command()
@click.argument("source", metavar="IN", type=click.Path(path_type=Path))
@click.argument("target", metavar="OUT", type=click.Path(path_type=Path))
@click.option("--force", is_flag=True, help="Replace OUT where it exists.")
@json_option
def scrub(source: Path, target: Path, force: bool, as_json: bool) -> None:
    """Write a copy of the export IN to OUT without environment, host, user, paths and process output.

    IN is only read. Times, sizes and the names of ranges, kernels and API calls stay, so that `analyze` says the same
    of both. A range named after a file, host or user is renamed; look at such names yourself before you share OUT.
    """
    summary = scrub_trace(source, target, force=force)
    if as_json:
        print_json(
            {
                "schema": "stepduel/scrub/1",
                "output": str(target),
                "texts_removed": summary.texts_removed,
                "names_redacted": summary.names_redacted,
            }
        )
        return
    line = f"{target}: removed {summary.texts_removed:,} texts, renamed {summary.names_redacted:,} names"
    stdout_console().print(Text(clean(line)), soft_wrap=True)
