"""`stepduel diff`: two existing traces, range by range. Explains, and leaves judging to `stepduel compare`."""

from __future__ import annotations

import os
from pathlib import Path
from typing import cast

import click

from harness.analysis.difference import NO_VERDICT, DiffPart, TraceDiff, diff_traces
from harness.analysis.document import diff_document
from harness.cli.html_reports import write_diff
from harness.cli.options import html_option, json_option
from harness.cli.output import clean, print_json, stdout_console
from harness.cli.step_options import step_options
from harness.cli.trace_tables import WIDE, print_paragraph, print_table
from harness.collectors.nsys_reports import read_any
from harness.trace.projection import ProjectionRule
from harness.units import milliseconds, signed_ms

_SHOWN_PARTS = 25


@click.command()
@click.argument("base", type=click.Path(path_type=Path))
@click.argument("head", type=click.Path(path_type=Path))
@step_options
@html_option
@json_option
def diff(
    base: Path, head: Path, step_name: str | None, rule: str, warmup_steps: int, html: Path | None, as_json: bool
) -> None:
    """Explain where the steps of the traces BASE and HEAD differ.

    Figures are self times, mean per step, so that they add up to the difference of the mean step. Ranges that only one
    trace has count like any other.
    """
    sides = [read_any([path], os.environ, streams=False) for path in (base, head)]
    found = diff_traces(*sides, step_name=step_name, rule=cast(ProjectionRule, rule), warmup_steps=warmup_steps)
    if html is not None:
        write_diff(found, html)
    if as_json:
        print_json(diff_document(found))
        return
    for warning in found.warnings:
        click.echo(f"stepduel: warning: {clean(warning)}", err=True)
    _print_parts(found)
    print_paragraph(NO_VERDICT)


def _print_parts(found: TraceDiff) -> None:
    rest = found.ranges[_SHOWN_PARTS:]
    rows = [_row(part.path, part.base_ns, part.head_ns, part) for part in found.ranges[:_SHOWN_PARTS]]
    if rest:
        base_ns, head_ns = sum(part.base_ns for part in rest), sum(part.head_ns for part in rest)
        rows.append(_row(f"({len(rest)} more)", base_ns, head_ns))
    whole = _row(f"= {found.base.step or 'whole capture'}", found.base.step_ns, found.head.step_ns)
    rows.append((*whole[:4], "sum", *whole[5:]))
    has_gpu = any(part.base_gpu_ns or part.head_gpu_ns for part in found.ranges)
    columns = len(_HEADERS) if has_gpu and stdout_console().width >= WIDE else len(_HEADERS) - 2
    print_table(
        f"Self time per step, mean over {found.base.steps} (base) and {found.head.steps} (head) steps",
        _HEADERS[:columns],
        [row[:columns] for row in rows],
    )


_HEADERS = ("range", "base ms", "head ms", "delta ms", "in", "base GPU ms", "head GPU ms")


def _row(path: str, base_ns: float, head_ns: float, part: DiffPart | None = None) -> tuple[str, ...]:
    sides = "" if part is None or part.sides == "both" else part.sides
    gpu = ("", "") if part is None else (milliseconds(part.base_gpu_ns), milliseconds(part.head_gpu_ns))
    delta = signed_ms(head_ns - base_ns)
    return (path, milliseconds(base_ns), milliseconds(head_ns), delta, sides, *gpu)
