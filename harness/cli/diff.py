"""`stepduel diff`: two existing traces, range by range. Explains, and leaves judging to `stepduel compare`."""

from __future__ import annotations

import os
from pathlib import Path

import click

from harness.analysis.difference import NO_VERDICT, DiffPart, diff_traces
from harness.analysis.document import diff_document
from harness.cli.output import clean, print_json
from harness.cli.trace_tables import milliseconds, print_paragraph, print_table, signed_milliseconds
from harness.collectors.nsys_reports import read_any

_SHOWN_PARTS = 25


@click.command()
@click.argument("base", type=click.Path(path_type=Path))
@click.argument("head", type=click.Path(path_type=Path))
@click.option("--step", "step_name", metavar="NAME", help="Range that is a step; found by itself without.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document.")
def diff(base: Path, head: Path, step_name: str | None, as_json: bool) -> None:
    """Explain where the steps of the traces BASE and HEAD differ.

    Figures are self times, mean per step, so that they add up to the difference of the mean step. Ranges that only one
    trace has count like any other.
    """
    found = diff_traces(read_any([base], os.environ), read_any([head], os.environ), step_name=step_name)
    if as_json:
        print_json(diff_document(found))
        return
    for warning in found.warnings:
        click.echo(f"stepduel: warning: {clean(warning)}", err=True)
    shown = list(found.parts[:_SHOWN_PARTS])
    rows = [_row(part) for part in shown]
    rest = found.parts[_SHOWN_PARTS:]
    if rest:
        base_ns, head_ns = sum(part.base_ns for part in rest), sum(part.head_ns for part in rest)
        rows.append((f"({len(rest)} more)", milliseconds(base_ns), milliseconds(head_ns), _delta(base_ns, head_ns), ""))
    rows.append(
        (
            f"= {found.base.step or 'whole capture'}",
            milliseconds(found.base.step_ns),
            milliseconds(found.head.step_ns),
            _delta(found.base.step_ns, found.head.step_ns),
            "sum",
        )
    )
    print_table(
        f"Self time per step, mean over {found.base.steps} (base) and {found.head.steps} (head) steps",
        ("range", "base ms", "head ms", "delta ms", "in"),
        rows,
    )
    print_paragraph(NO_VERDICT)


def _row(part: DiffPart) -> tuple[str, ...]:
    sides = "" if part.sides == "both" else part.sides
    return part.path, milliseconds(part.base_ns), milliseconds(part.head_ns), _delta(part.base_ns, part.head_ns), sides


def _delta(base_ns: float, head_ns: float) -> str:
    return signed_milliseconds(head_ns - base_ns)
