"""How commands write: one document on stdout with `--json`, tables for people otherwise, progress on stderr.

Names of ranges, scenarios and branches are untrusted: they can hold escape sequences that retitle a terminal or hide
text. Everything printed goes through `clean`; nothing is ever read as Rich markup.
"""

from __future__ import annotations

import functools
import sys
import textwrap
from collections.abc import Collection, Mapping, Sequence
from typing import Any, NoReturn

from rich.console import Console
from rich.text import Text

from harness.documents import json_text
from harness.names import PATH_SEPARATOR
from harness.visible import visible


class PipeConsole(Console):
    """A console that leaves a closed pipe to `__main__`; Rich would exit with 1, which here means a regression."""

    def on_broken_pipe(self) -> NoReturn:
        """Raise what Rich is handling."""
        raise BrokenPipeError


@functools.cache
def stdout_console() -> Console:
    """Return the one console for results. Colour only on a terminal and without NO_COLOR; `COLUMNS` sets the width."""
    return PipeConsole(markup=False, emoji=False, highlight=False)


@functools.cache
def stderr_console() -> Console:
    """Return the one console for progress and remarks."""
    return PipeConsole(stderr=True, markup=False, emoji=False, highlight=False)


def clean(text: str) -> str:
    """Return `text` with everything that a terminal would obey, or not show, written as an escape instead."""
    return visible(text)


def print_wrapped(text: str, style: str = "", *, indent: str = "  ") -> None:
    """Print a line, wrapped between words to the terminal (80 columns in a pipe); what follows the first is indented.

    Words are never broken: ids, paths and commands stay whole, so that they can be copied.
    """
    console = stdout_console()
    lines = textwrap.wrap(
        clean(text), console.width, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False
    )
    console.print(Text("\n".join(lines), style=style), soft_wrap=True)


def tree_labels(paths: Sequence[str]) -> list[str]:
    """Return what to print for each path of a tree in depth-first order: guides for its place, then its own name.

    A path's parent is the longest other path that it continues, so names that hold the separator themselves are safe.
    """
    known = set(paths)
    parents = [_parent(path, known) for path in paths]
    last = {parent: index for index, parent in enumerate(parents)}
    place = {path: index for index, path in enumerate(paths)}
    labels = []
    for index, path in enumerate(paths):
        parent = parents[index]
        name = path if parent is None else path[len(parent) + len(PATH_SEPARATOR) :]
        guide = "" if parent is None else "└ " if last[parent] == index else "├ "
        while parent is not None and (above := parents[place[parent]]) is not None:
            guide = ("  " if last[above] == place[parent] else "│ ") + guide
            parent = above
        labels.append(guide + clean(name))
    return labels


def _parent(path: str, known: Collection[str]) -> str | None:
    cut = path.rfind(PATH_SEPARATOR)
    while cut > 0:
        if path[:cut] in known:
            return path[:cut]
        cut = path.rfind(PATH_SEPARATOR, 0, cut)
    return None


def print_json(document: Mapping[str, Any]) -> None:
    """Write one JSON document, and nothing else, to stdout."""
    sys.stdout.write(json_text(document))
