"""Every option that more than one command has, declared once. A command picks the ones it takes, in its own order.

What differs between commands is an argument here: whose folder it is, or what a number replaces.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeVar

import click

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

Command = TypeVar("Command", bound=Callable[..., Any])
Option = Callable[[Command], Command]
Settings = TypeVar("Settings", bound="DataclassInstance")

OVERRIDES: Final[dict[str, Any]] = {"multiple": True, "metavar": "KEY=VALUE"}


def options(*given: Option[Any]) -> Option[Any]:
    """Return one decorator that adds all of `given` to a command, in this order."""

    def add(command: Command) -> Command:
        for option in reversed(given):
            command = option(command)
        return command

    return add


def picked(kind: type[Settings], given: Mapping[str, Any]) -> Settings:
    """Return a dataclass filled with those of a command's options that are its fields."""
    return kind(**{item.name: given[item.name] for item in fields(kind) if item.name in given})


def set_option(meaning: str = "Override a key on both sides.") -> Option[Any]:
    """`--set KEY=VALUE`, as `overrides`."""
    return click.option("--set", "overrides", help=meaning, **OVERRIDES)


side_options: Option[Any] = options(
    click.option("--base-set", "base_overrides", help="Override a key for BASE only.", **OVERRIDES),
    click.option("--head-set", "head_overrides", help="Override a key for HEAD only.", **OVERRIDES),
    click.option("--base-python", metavar="PATH", help="Run BASE under this interpreter, as --python does both sides."),
    click.option("--head-python", metavar="PATH", help="Run HEAD under this interpreter."),
)
"""Of every command that compares two subjects: what is different for one of them."""


def ranks_option(meaning: str = "Processes a side") -> Option[Any]:
    """`--ranks N`."""
    return click.option("--ranks", type=click.IntRange(min=1), help=f"{meaning}; overrides run.ranks.")


def steps_option(meaning: str, least: int = 2) -> Option[Any]:
    """`--steps N`, measured ones."""
    return click.option("--steps", type=click.IntRange(min=least), help=f"Measured steps{meaning}.")


def pairs_option(meaning: str, default: int | None = None) -> Option[Any]:
    """`--pairs N`, of launches."""
    return click.option(
        "--pairs",
        type=click.IntRange(min=2),
        default=default,
        show_default=default is not None,
        help=f"Most launch pairs{meaning}.",
    )


seed_option: Option[Any] = click.option(
    "--seed", type=click.IntRange(min=0), help="Seed of the order of steps; default: a fresh one."
)


def resume_option(duels: str) -> Option[Any]:
    """`--resume`."""
    return click.option(
        "--resume", is_flag=True, help=f"Go on with the stored launch pairs of the same unfinished {duels}."
    )


def collector_option(name: str, meaning: str, *choices: str, default: str) -> Option[Any]:
    """`--collector` or `--explain`, one of `choices`, which the registry of collectors tells."""
    return click.option(name, type=click.Choice(choices), default=default, show_default=True, help=meaning)


def repo_option(meaning: str) -> Option[Any]:
    """`--repo FOLDER`."""
    return click.option(
        "--repo",
        type=click.Path(path_type=Path, file_okay=False, exists=True),
        default=Path(),
        help=f"{meaning}; default: the current folder's.",
    )


subject_options: Option[Any] = options(
    repo_option("Repository of what is measured"),
    click.option("--python", metavar="PATH", help="Run ranks under this interpreter instead of one made for them."),
    click.option(
        "--allow-mismatch", is_flag=True, help="Run a release although the environment contradicts what it asks for."
    ),
)
"""Of every command that launches a subject: where its code is, and the interpreter."""


def reports_option(holds: str = "results.db") -> Option[Any]:
    """`--reports FOLDER`."""
    return click.option(
        "--reports",
        type=click.Path(path_type=Path, file_okay=False),
        default=Path("reports"),
        show_default=True,
        help=f"Folder of {holds}.",
    )


html_option: Option[Any] = click.option(
    "--html",
    type=click.Path(path_type=Path, dir_okay=False),
    metavar="FILE",
    help="Also write a report that opens from disk, as one HTML file.",
)
json_option: Option[Any] = click.option("--json", "as_json", is_flag=True, help="Print one JSON document.")
slower_fails_option: Option[Any] = click.option(
    "--exit-code", "slower_fails", is_flag=True, help="Exit with 1 when HEAD is slower."
)
