"""One error root, one exit code a class; `harness.cli.__main__` is the only place that catches them.

A message says what was seen, what was expected and what to do, in one line.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable


class StepduelError(Exception):
    """Root of every error a user is meant to read. `exit_code` is what the process ends with."""

    exit_code: int = 2


class UsageError(StepduelError):
    """The request or the environment does not fit: a wrong name, a broken file, a missing tool."""

    exit_code = 2


class TraceError(UsageError):
    """A file that was given as a trace is none, or cannot be read."""


class LaunchError(StepduelError):
    """A launch that had started failed: a step raised, a rank died or hung. Kept traces and logs are named."""

    exit_code = 4


def closest(name: str, known: Iterable[str]) -> str:
    """Return ` Did you mean 'x'?` for the known name nearest to `name`, or an empty string when none is near."""
    near = difflib.get_close_matches(name, list(known), n=1, cutoff=0.5)
    return f" Did you mean {near[0]!r}?" if near else ""
