"""Options that many commands have: which results, which repository, whether to print JSON or write a page."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, Final, Protocol, TypeVar

import click

Command = TypeVar("Command", bound=Callable[..., Any])


class Option(Protocol):
    """Adds one or several options to a command."""

    def __call__(self, command: Command, /) -> Command: ...


def together(*options: Option) -> Option:
    """Return all of `options` as one, in the order of `--help`."""

    def add(command: Command, /) -> Command:
        for option in reversed(options):
            command = option(command)
        return command

    return add


json_option: Final[Option] = click.option("--json", "as_json", is_flag=True, help="Print one JSON document.")
html_option: Final[Option] = click.option(
    "--html",
    type=click.Path(path_type=Path, dir_okay=False),
    metavar="FILE",
    help="Also write a report that opens from disk, as one HTML file.",
)


def reports_option(text: str = "Folder of results.db.") -> Option:
    """Return `--reports`, with what the command does in that folder."""
    folder = click.Path(path_type=Path, file_okay=False)
    return click.option("--reports", type=folder, default=Path("reports"), show_default=True, help=text)


def repo_option(text: str) -> Option:
    """Return `--repo`, with what the repository is asked for."""
    folder = click.Path(path_type=Path, file_okay=False, exists=True)
    return click.option("--repo", type=folder, default=Path(), help=f"{text}; default: the current folder's.")
