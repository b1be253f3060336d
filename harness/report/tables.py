"""Tables that scroll by themselves where the page is too narrow for them, with headers a screen reader can use."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Literal

from markupsafe import Markup

from harness.report.figures import typographic
from harness.report.page import draw, name

TEMPLATE: Final = """
<div class="scroll" role="region" aria-label="{{ label }}" tabindex="0">
<table>
<thead><tr>
{% for column in columns %}
<th scope="col" class="{{ column.kind }}">{{ column.title }}</th>
{% endfor %}
</tr></thead>
<tbody>
{% for row in rows %}
<tr class="{{ row.role }}">{{ cells(row) }}</tr>
{% endfor %}
</tbody>
{% if foot %}
<tfoot><tr>{{ cells(foot) }}</tr></tfoot>
{% endif %}
</table>
</div>
"""
FACTS: Final = """
<dl class="facts{{ " long" if long }}">
{% for fact in facts %}
<div><dt>{{ fact[0] | name }}</dt><dd>{{ fact[1] | name(400) }}</dd></div>
{% endfor %}
</dl>
"""
CELL_WIDTH: Final = 400
_CELL: Final = Markup('<td class="{}">{}</td>')
_ROW_HEADER: Final = Markup('<th scope="row" class="{}">{}</th>')


@dataclass(frozen=True, kw_only=True)
class Column:
    """A column: `n` holds numbers, `path` names of ranges and the like, `name` text for people."""

    title: str
    kind: Literal["n", "path", "name"]


@dataclass(frozen=True, kw_only=True)
class Row:
    """A row, its first cell its header. Cells that are not `Markup` are escaped."""

    cells: Sequence[str | Markup]
    role: str = ""


def numbers(*titles: str) -> list[Column]:
    """Return columns of numbers."""
    return [Column(title=title, kind="n") for title in titles]


def table(label: str, columns: Sequence[Column], rows: Sequence[Row], foot: Row | None = None) -> Markup:
    """Return a table. `label` says what it holds, for who cannot see where it stands."""

    def cells(row: Row) -> Markup:
        kinds = [column.kind for column in columns]
        first, *rest = zip(kinds, map(_shown, kinds, row.cells), strict=True)
        return _ROW_HEADER.format(*first) + Markup("").join(_CELL.format(*cell) for cell in rest)

    return draw(TEMPLATE, label=label, columns=columns, rows=rows, foot=foot, cells=cells)


def _shown(kind: str, cell: str | Markup) -> str | Markup:
    if isinstance(cell, Markup):
        return cell
    return typographic(cell) if kind == "n" else name(cell, CELL_WIDTH)


def facts(rows: Sequence[tuple[str, str]], *, long: bool = False) -> Markup:
    """Return names and values; `long` ones in one column."""
    return draw(FACTS, facts=rows, long=long)
