"""The options that say how a trace is read: what a step is, which steps count, which GPU work a range owns."""

from __future__ import annotations

import click

from harness.cli.options import options
from harness.trace.projection import RULES

step_options = options(
    click.option("--step", "step_name", metavar="NAME", help="Range that is a step; found by itself without."),
    click.option(
        "--rule",
        type=click.Choice(RULES),
        default="process",
        show_default=True,
        help="GPU work counts for the ranges around its launch on the same thread (as nsys does), or in the same "
        "process.",
    ),
    click.option(
        "--warmup-steps",
        type=click.IntRange(min=0),
        default=0,
        metavar="N",
        help="Leave the first N steps out; in traces of this tool, those the launch numbered below N.",
    ),
)
