"""Peak memory of both sides and the limit that head is held to."""

from __future__ import annotations

from typing import Final

from markupsafe import Markup

from harness.comparison import Comparison, Memory
from harness.report.page import Section, draw
from harness.report.tables import Column, Row, numbers, table
from harness.units import bytes_text, signed_bytes

TEMPLATE: Final = """
{% if table %}
<p>Head’s peak {{ "exceeds its limit" if exceeded else "stays below its limit" }}. Peaks repeat so closely that a plain
threshold does; they are no part of the verdict on time.</p>
{{ table }}
{% else %}
<p class="nothing">The launches reported no memory figures.</p>
{% endif %}
"""


def section(comparison: Comparison) -> Section:
    """Return the memory of a comparison."""
    memory = comparison.memory
    return Section(
        anchor="memory",
        title="Memory",
        html=draw(
            TEMPLATE,
            table=None if memory is None else _table(memory, comparison.duel.device == "cuda"),
            exceeded=memory is not None and memory.exceeded,
        ),
    )


def _table(memory: Memory, cuda: bool) -> Markup:
    rows = [_row("Peak on the device" if cuda else "Peak", memory.base_peak_bytes, memory.head_peak_bytes)]
    if memory.base_rss_bytes is not None and memory.head_rss_bytes is not None:
        rows.append(_row("Resident set", memory.base_rss_bytes, memory.head_rss_bytes))
    rows.append(Row(cells=["Limit of head’s peak", "", bytes_text(memory.limit_bytes), ""]))
    columns = [Column(title="Largest of all ranks and launches", kind="name"), *numbers("Base", "Head", "Difference")]
    return table("Memory", columns, rows)


def _row(label: str, base: int, head: int) -> Row:
    return Row(cells=[label, bytes_text(base), bytes_text(head), signed_bytes(head - base)])
