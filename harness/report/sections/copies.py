"""Copies by the range that asked for them: direction, kind of host memory, bandwidth."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from harness.analysis.range_totals import CopyShare, PathTotal, bandwidth, innermost_copies
from harness.report.page import Section, draw, path
from harness.report.tables import Column, Row, numbers, table
from harness.units import bytes_text, gb_per_s, milliseconds

MOST_ROWS: Final = 40
DIRECTIONS: Final = {"h2d": "host to device", "d2h": "device to host", "device": "on devices", "other": "other"}

TEMPLATE: Final = """
{% if table %}
<p>{{ note }}</p>
{{ table }}
{% if left_out %}<p class="note">{{ left_out }} smaller rows are left out.</p>{% endif %}
{% else %}
<p class="nothing">No copy belongs to a range.</p>
{% endif %}
"""
NOTE: Final = (
    "Over the whole capture, most bytes first. A range is left out whose copies are all those of the ranges directly "
    "below it. Through pageable memory the driver stages copies, at a fraction of the link."
)


def section(ranges: Sequence[PathTotal]) -> Section:
    """Return the copies of `ranges`, which are in tree order."""
    chosen = innermost_copies(ranges)
    columns = [
        Column(title="Range", kind="path"),
        Column(title="Direction", kind="name"),
        Column(title="Host memory", kind="name"),
        *numbers("Bytes", "ms", "GB/s"),
    ]
    rows = [_row(total, copy) for total, copy in chosen[:MOST_ROWS]]
    html = draw(
        TEMPLATE,
        note=NOTE,
        table=table("Copies by range", columns, rows) if rows else None,
        left_out=f"{len(chosen) - MOST_ROWS:,}" if len(chosen) > MOST_ROWS else "",
    )
    return Section(anchor="copies", title="Copies by range", html=html)


def _row(total: PathTotal, copy: CopyShare) -> Row:
    speed = bandwidth([copy])
    return Row(
        cells=[
            path(total.path, 110),
            DIRECTIONS[copy.direction],
            copy.memory or "–",
            bytes_text(copy.bytes),
            milliseconds(copy.total_ns),
            "–" if speed is None else gb_per_s(speed),
        ]
    )
