"""The options that say how a trace is read: what a step is, which steps count, which GPU work a range owns."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import click

from harness.trace.projection import RULES


def step_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add `--step`, `--rule` and `--warmup-steps`, as the parameters `step_name`, `rule` and `warmup_steps`."""
    for option in (
        click.option(
            "--warmup-steps",
            type=click.IntRange(min=0),
            default=0,
            metavar="N",
            help="Leave the first N steps out; in traces of this tool, those the launch numbered below N.",
        ),
        click.option(
            "--rule",
            type=click.Choice(RULES),
            default="process",
            show_default=True,
            help="GPU work counts for the ranges around its launch on the same thread (as nsys does), or in the same "
            "process.",
        ),
        click.option("--step", "step_name", metavar="NAME", help="Range that is a step; found by itself without."),
    ):
        command = option(command)
    return command
