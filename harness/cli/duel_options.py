"""Options that every command with a duel shares; `duel_command.DuelOptions` holds what they were given."""

from __future__ import annotations

import math
import re

import click

from harness.cli.options import (
    html_option,
    json_option,
    options,
    pairs_option,
    ranks_option,
    reports_option,
    resume_option,
    seed_option,
    set_option,
    steps_option,
)

_DURATION = re.compile(r"(\d+(?:\.\d+)?)\s*(s|m|h)?")
_SECONDS = {"s": 1.0, "m": 60.0, "h": 3600.0}


def duration(text: str) -> float:
    """Return `90`, `90s`, `10m` or `1.5h` in seconds."""
    found = _DURATION.fullmatch(text.strip())
    if found is None or float(found[1]) <= 0:
        raise click.BadParameter(f"{text!r}: expected a time above 0, such as 90s, 10m or 1h")
    return float(found[1]) * _SECONDS[found[2] or "s"]


def share(text: str) -> float:
    """Return `1%` or `0.01` as a fraction."""
    number = text.strip()
    try:
        fraction = float(number[:-1]) / 100 if number.endswith("%") else float(number)
    except ValueError:
        fraction = math.nan
    if not 0 <= fraction < 1:  # `2` is meant as 2 %, and would be 200
        raise click.BadParameter(f"{text!r}: expected a share, such as 2% or 0.02")
    return fraction


duel_options = options(
    set_option(),
    ranks_option(),
    steps_option(" a launch; default: from what they cost"),
    pairs_option("; looks at 3, 5, 7", default=10),
    click.option("--min-effect", type=share, default="1%", show_default=True, help="Smallest change to report."),
    click.option("--min-abs", type=float, default=0.0, show_default=True, help="The same in ms of step time."),
    click.option("--margin", type=share, default="2%", show_default=True, help="Within it both are the same."),
    click.option("--alpha", type=share, default="1%", show_default=True, help="False alarms over all looks."),
    click.option(
        "--interleave",
        type=click.Choice(["steps", "blocks"]),
        default="steps",
        show_default=True,
        help="Step in turn, or launch in turn where both sides do not fit at once (much less sensitive).",
    ),
    click.option(
        "--pin/--no-pin",
        "pinned",
        default=True,
        show_default=True,
        help="Keep the ranks of both sides on the same cores (CPU only).",
    ),
    click.option("--budget", type=duration, help="Stop after this time, such as 10m, with what is known then."),
    seed_option,
    resume_option("duel"),
    reports_option("logs and results.db"),
    html_option,
    json_option,
)
