"""Tables about traces that fit the terminal: names give way, figures never do, and every name is cleaned."""

from __future__ import annotations

import re
from collections.abc import Sequence

from rich import box
from rich.table import Table
from rich.text import Text

from harness.cli.output import clean, stdout_console

WIDE = 120
"""Columns from which on tables show further figures."""
_MIN_NAME_WIDTH = 16
_SHARED_PARTS = re.compile(r"^void |\bat::native::|\(anonymous namespace\)::|<unnamed>::")


def print_table(title: str, headers: Sequence[str], rows: Sequence[Sequence[str]], *, keep_start: bool = False) -> None:
    """Print a table whose first column is names and whose others are figures; nothing where there are no rows.

    Too wide names lose their beginning, since paths differ at the end, or with `keep_start` their end.
    """
    if not rows:
        return
    console = stdout_console()
    figures = [max(len(header), *(len(row[at]) for row in rows)) for at, header in enumerate(headers) if at]
    room = console.width - sum(figures) - 3 * len(headers) + 1
    longest = max(len(headers[0]), *(len(clean(row[0])) for row in rows))
    width = max(room, min(longest, _MIN_NAME_WIDTH))
    print_paragraph(title, style="bold")
    # Wider than a narrow terminal, which then wraps it: figures are never cut.
    forced = None if room >= width else console.width - room + width
    table = Table(box=box.SIMPLE_HEAD, show_edge=False, width=forced)
    table.add_column(headers[0], no_wrap=True)
    for header in headers[1:]:
        table.add_column(header, justify="right", no_wrap=True)
    for row in rows:
        table.add_row(
            Text(elided(clean(row[0]), width, keep_start=keep_start)), *(Text(clean(cell)) for cell in row[1:])
        )
    console.print(table, crop=False)
    console.print()


def print_paragraph(text: str, style: str = "") -> None:
    """Print a sentence, wrapped to the terminal."""
    stdout_console().print(Text(clean(text), style=style))


def elided(text: str, width: int, *, keep_start: bool = False) -> str:
    """`text` cut to `width` characters: the indentation and the end are kept, or with `keep_start` the beginning."""
    if len(text) <= width:
        return text
    if keep_start:
        return f"{text[: width - 1]}…"
    indent = text[: len(text) - len(text.lstrip(" "))][: width // 2]
    return f"{indent}…{text[len(indent) + len(text) - width + 1 :]}"


def kernel_label(name: str) -> str:
    """A kernel's name without what most of them share, so that the telling part comes first."""
    return _SHARED_PARTS.sub("", name)
