"""How a stopped duel or gate is gone on with: the command line that was given, with `--resume`."""

from __future__ import annotations

import shlex
from collections.abc import Sequence

import click
from rich.text import Text

from harness.cli.output import clean, stderr_console


def say_how_to_go_on(duels_left: int | None = None) -> None:
    """Say on stderr how to go on with what was stopped; of `aa --duels`, with those that are left."""
    command = resume_command(click.get_current_context().find_object(tuple) or (), duels_left)
    stderr_console().print(Text(f"go on with: {clean(command)}", style="bold"), soft_wrap=True)


def resume_command(given: Sequence[str], duels_left: int | None = None) -> str:
    """Return the command line of `given` arguments that goes on where they were stopped, for a shell."""
    words = [word for word in given if word != "--resume"]
    if duels_left is not None:
        at = next((i for i, word in enumerate(words) if word.partition("=")[0] == "--duels"), None)
        if at is not None:
            words[at : at + (1 if "=" in words[at] else 2)] = ["--duels", str(duels_left)]
    return shlex.join(["stepduel", *words, "--resume"])
