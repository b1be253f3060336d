"""Options that every command with a duel shares; `duel_command.DuelOptions` holds what they were given."""

from __future__ import annotations

import click

from harness.cli.figures import MILLISECONDS, SECONDS, SHARE
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

duel_options = options(
    set_option(),
    ranks_option(),
    steps_option(" a launch; default: from what they cost"),
    pairs_option("; looks at 3, 5, 7", default=10),
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
    seed_option,
    resume_option("duel"),
    reports_option("logs and results.db"),
    html_option,
    json_option,
)
