"""Options that every command with a duel shares, and how they become a plan."""

from __future__ import annotations

import math
import re
import secrets

import click

from harness.cli.options import html_option, json_option, reports_option, together
from harness.errors import UsageError

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


duel_options = together(
    click.option("--set", "overrides", multiple=True, metavar="KEY=VALUE", help="Override a key on both sides."),
    click.option("--ranks", type=click.IntRange(min=1), help="Processes a side; overrides run.ranks."),
    click.option("--steps", type=click.IntRange(min=2), help="Measured steps a launch; default: from what they cost."),
    click.option(
        "--pairs",
        type=click.IntRange(min=2),
        default=10,
        show_default=True,
        help="Most launch pairs; looks at 3, 5, 7.",
    ),
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
    click.option("--seed", type=click.IntRange(min=0), help="Seed of the order of steps; default: a fresh one."),
    click.option("--resume", is_flag=True, help="Go on with the stored launch pairs of the same unfinished duel."),
    reports_option("Folder of logs and results.db."),
    html_option,
    json_option,
)


def engine_overrides(given: tuple[str, ...], option: str) -> tuple[str, ...]:
    """Return the overrides of one side. Only the engine may differ: steps, seed and probes must agree on both sides."""
    for text in given:
        if not text.strip().startswith("engine."):
            raise UsageError(f"{option} {text}: only engine.KEY=VALUE may differ between the sides; --set changes both")
    return given


def order_seed(given: int | None) -> int:
    """Return the seed of the order of steps."""
    return secrets.randbits(31) if given is None else given
