"""`stepduel export`: a trace for the Perfetto UI, a notebook or a spreadsheet."""

from __future__ import annotations

import os
from pathlib import Path
from typing import cast

import click
from rich.text import Text

from harness.cli.options import json_option
from harness.cli.output import clean, print_json, stdout_console
from harness.collectors.nsys_reports import read_any
from harness.errors import UsageError
from harness.trace.export import FORMATS, TABLES, Format, export_trace


@click.command()
@click.argument("traces", metavar="TRACE…", nargs=-1, required=True, type=click.Path(path_type=Path))
@click.option("--to", "to", required=True, type=click.Choice(FORMATS), help="What to write.")
@click.option("-o", "--output", required=True, type=click.Path(path_type=Path), help="File or folder to write.")
@click.option("--table", metavar="NAME", help=f"Only this table (csv, parquet): {', '.join(TABLES)}.")
@click.option("--force", is_flag=True, help="Replace the files that are there; others in a folder stay.")
@json_option
def export(traces: tuple[Path, ...], to: str, output: Path, table: str | None, force: bool, as_json: bool) -> None:
    """Write one or several traces (one a rank or node) in another tool's format.

    `perfetto` writes Chrome JSON for https://ui.perfetto.dev, compressed when the name ends in .gz. `csv` and `parquet`
    write one table when the name ends in .csv or .parquet (ranges, or --table), and a folder with all tables otherwise.
    """
    for source in traces:
        if source.exists() and output.exists() and _would_replace(output, source, to):
            raise UsageError(f"{output} would replace the trace {source}: give another name")
    trace = read_any(traces, os.environ)
    written = export_trace(trace, output, cast(Format, to), table=table, force=force)
    size = sum(path.stat().st_size for path in (written.rglob("*") if written.is_dir() else [written]))
    if as_json:
        document = {"schema": "stepduel/export/1", "output": str(written), "format": to, "bytes": size}
        print_json({**document, "warnings": list(trace.warnings)})
        return
    for warning in trace.warnings:
        click.echo(f"stepduel: warning: {clean(warning)}", err=True)
    hint = "; open it at https://ui.perfetto.dev" if to == "perfetto" else ""
    stdout_console().print(Text(f"{clean(str(written))}: {size:,} bytes{hint}"), soft_wrap=True)


def _would_replace(output: Path, source: Path, to: str) -> bool:
    if output.is_dir():
        return any((output / f"{table}.{to}").resolve() == source.resolve() for table in TABLES)
    return output.samefile(source)
