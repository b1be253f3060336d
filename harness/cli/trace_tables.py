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


def milliseconds(ns: float) -> str:
    """A time in ms with as many decimals as make sense."""
    value = ns / 1e6
    return f"{value:,.3f}" if abs(value) < 9.9995 else f"{value:,.1f}"


def signed_milliseconds(ns: float) -> str:
    """Like `milliseconds`, with a sign."""
    return f"{'+' if ns >= 0 else '-'}{milliseconds(abs(ns))}"


def gb_per_s(bandwidth: float) -> str:
    """A bandwidth; of tiny copies, which are all latency, with two digits."""
    return f"{bandwidth:,.1f}" if bandwidth >= 0.1 else f"{bandwidth:.2g}"


def size(number: float) -> str:
    """An amount of memory with its unit; `-` for none."""
    if not number:
        return "-"
    for unit in ("B", "kB", "MB"):
        if number < 1000:
            return f"{number:.3g} {unit}"
        number /= 1000
    return f"{number:,.1f} GB"
