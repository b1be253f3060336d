"""Types of options that take a share or a time, read as policies and scenarios read them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import click

from harness.units import parse_milliseconds, parse_seconds, parse_share


def _type(name: str, read: Callable[[object], float]) -> Callable[[object], float]:
    """Return what click takes as an option's type; `name` stands for the value in `--help`."""

    def convert(value: object) -> float:
        try:
            return read(value)
        except ValueError as error:
            raise click.BadParameter(f"{value!r}: {error}") from error

    convert.__name__ = name
    return convert


SHARE: Final = _type("share", parse_share)
SECONDS: Final = _type("time", parse_seconds)
MILLISECONDS: Final = _type("milliseconds", parse_milliseconds)
