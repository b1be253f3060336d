"""Options that every command with a duel shares, and how they become a plan."""

from __future__ import annotations

import secrets
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click

from harness.cli.figures import MILLISECONDS, SECONDS, SHARE
from harness.cli.html_reports import html_option
from harness.errors import UsageError

Command = TypeVar("Command", bound=Callable[..., Any])

_OPTIONS = (
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
    click.option("--min-effect", type=SHARE, default="1%", show_default=True, help="Smallest change to report."),
    click.option("--min-abs", type=MILLISECONDS, default=0.0, show_default=True, help="The same in ms of step time."),
    click.option("--margin", type=SHARE, default="2%", show_default=True, help="Within it both are the same."),
    click.option("--alpha", type=SHARE, default="1%", show_default=True, help="False alarms over all looks."),
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
    click.option("--budget", type=SECONDS, help="Stop after this time, such as 10m, with what is known then."),
    click.option("--seed", type=click.IntRange(min=0), help="Seed of the order of steps; default: a fresh one."),
    click.option("--resume", is_flag=True, help="Go on with the stored launch pairs of the same unfinished duel."),
    click.option(
        "--reports",
        type=click.Path(path_type=Path, file_okay=False),
        default=Path("reports"),
        show_default=True,
        help="Folder of logs and results.db.",
    ),
    html_option,
    click.option("--json", "as_json", is_flag=True, help="Print one JSON document."),
)


def duel_options(command: Command) -> Command:
    """Add the options above to a command, in this order."""
    for option in reversed(_OPTIONS):
        command = option(command)
    return command


def engine_overrides(given: tuple[str, ...], option: str) -> tuple[str, ...]:
    """Return the overrides of one side. Only the engine may differ: steps, seed and probes must agree on both sides."""
    for text in given:
        if not text.strip().startswith("engine."):
            raise UsageError(f"{option} {text}: only engine.KEY=VALUE may differ between the sides; --set changes both")
    return given


def order_seed(given: int | None) -> int:
    """Return the seed of the order of steps."""
    return secrets.randbits(31) if given is None else given
