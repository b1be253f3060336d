"""Where a step's time goes, range by range, as a table with the share of each."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from markupsafe import Markup

from harness.analysis.path_summary import PathSummary
from harness.report.page import Section, draw, path
from harness.report.tables import Column, Row, numbers, table
from harness.units import bytes_text, count_text, milliseconds, percent

MOST_ROWS: Final = 60
"""The longest ranges; a trace with a range for every operator has thousands."""

TEMPLATE: Final = """
<p>{{ note }}</p>
{% if table %}
{{ table }}
{% if left_out %}
<p class="note">{{ left_out }} shorter ranges are left out.</p>
{% endif %}
{% else %}
<p class="nothing">Nothing was traced.</p>
{% endif %}
"""
_NAME: Final = Markup('<span class="indent" style="padding-left:{}rem"></span>{}')
_SHARE: Final = Markup('{}<span class="bar" style="--share:{}%"></span>')


def section(rows: Sequence[PathSummary], note: str) -> Section:
    """Return the table; rows come depth first."""
    shortest_ns = sorted((row.median_ns for row in rows), reverse=True)[:MOST_ROWS][-1] if rows else 0.0
    kept = [row for row in rows if row.median_ns >= shortest_ns][:MOST_ROWS]
    html = draw(TEMPLATE, note=note, table=_table(kept) if kept else None, left_out=len(rows) - len(kept))
    return Section(anchor="ranges", title="Where the step goes", html=html)


def _table(rows: Sequence[PathSummary]) -> Markup:
    gpu, moved = any(row.gpu_median_ns for row in rows), any(row.moved_bytes_per_step for row in rows)
    columns = [Column(title="Range", kind="path"), *numbers("Calls", "Median ms", "p90 ms", "Own ms", "Share")]
    columns += [*numbers(*["GPU ms"] * gpu), *numbers(*["Moved"] * moved)]
    whole_ns = sum(row.median_ns for row in rows if row.depth == 0)
    return table("Ranges of a typical step", columns, [_row(row, whole_ns, gpu, moved) for row in rows])


def _row(row: PathSummary, whole_ns: float, gpu: bool, moved: bool) -> Row:
    share = row.share if row.share is not None else row.median_ns / whole_ns if whole_ns else 0.0
    cells: list[str | Markup] = [
        _NAME.format(row.depth, path(row.name, 90)),
        count_text(row.calls_per_step),
        milliseconds(row.median_ns),
        milliseconds(row.p90_ns),
        milliseconds(row.self_median_ns),
        _SHARE.format(percent(share), round(100 * min(share, 1.0), 1)),
    ]
    if gpu:
        cells.append("" if row.gpu_median_ns is None else milliseconds(row.gpu_median_ns))
    if moved:
        cells.append("" if row.moved_bytes_per_step is None else bytes_text(row.moved_bytes_per_step))
    return Row(cells=cells)
