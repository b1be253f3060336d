"""What the GPU did in each step: busy, idle and where the host was then, communicating, and accounted for."""

from __future__ import annotations

from typing import Final

import numpy as np
from markupsafe import Markup

from harness.analysis.analyze import TraceAnalysis
from harness.report.page import Section, draw, path
from harness.report.tables import Column, Row, numbers, table
from harness.trace.model import Int64Array
from harness.units import milliseconds, percent

MOST_ROWS: Final = 60
NONE: Final = "–"

TEMPLATE: Final = """
{% if table %}
<p>{{ note }}</p>
{{ table }}
{% if left_out %}<p class="note">{{ left_out }} later steps are left out.</p>{% endif %}
{% else %}
<p class="nothing">{{ nothing }}</p>
{% endif %}
"""
NOTE: Final = (
    "Busy is when any operation ran, idle when none did. Coverage is the share of the GPU time launched in the step "
    "that found a range."
)
SLOWEST: Final = " Of each step the slowest rank is shown."
COMMUNICATION: Final = " Communication (NCCL) is exposed where no other GPU work ran beside it, else overlapped."


def section(found: TraceAnalysis) -> Section:
    """Return a row a kept step, or one a rank where the whole capture counts as one."""
    steps = found.steps
    rows = np.flatnonzero(steps.kept) if len(found.trace.operations) else np.empty(0, dtype=np.int64)
    many_ranks = len(found.ranks) > 1 and steps.name is not None
    if many_ranks:
        rows = _slowest_ranks(found, rows)
    note = NOTE + SLOWEST * many_ranks + COMMUNICATION * found.step_gpu.has_communication
    html = draw(
        TEMPLATE,
        note=note,
        nothing="No GPU work was traced." if not len(found.trace.operations) else "No step was kept.",
        table=_table(found, rows[:MOST_ROWS]) if len(rows) else None,
        left_out=f"{len(rows) - MOST_ROWS:,}" if len(rows) > MOST_ROWS else "",
    )
    return Section(anchor="step-gpu", title="The GPU in each step", html=html)


def _slowest_ranks(found: TraceAnalysis, rows: Int64Array) -> Int64Array:
    """Of each step index, the row of the rank that took longest; in the order of steps."""
    steps = found.steps
    order = rows[np.lexsort((-steps.duration_ns[rows], steps.index[rows]))]
    _, first = np.unique(steps.index[order], return_index=True)
    return order[first]


def _table(found: TraceAnalysis, rows: Int64Array) -> Markup:
    communicates = found.step_gpu.has_communication
    columns = [
        Column(title="Step" if found.steps.name is not None else "Capture", kind="name"),
        *numbers("ms", "GPU busy ms", "Busy", "Idle ms"),
        *numbers(*("Exposed ms", "Overlapped ms") * communicates),
        *numbers("Coverage"),
        Column(title="Host, while idle, longest in", kind="path"),
    ]
    return table("GPU in each step", columns, [_row(found, row, communicates) for row in rows.tolist()])


def _row(found: TraceAnalysis, row: int, communicates: bool) -> Row:
    steps, gpu = found.steps, found.step_gpu
    duration, busy, coverage = int(steps.duration_ns[row]), int(gpu.busy_ns[row]), float(gpu.coverage[row])
    label = f"rank {steps.rank[row]}"
    if steps.name is not None:
        label = f"{steps.index[row]}, {label}" if len(found.ranks) > 1 else f"{steps.index[row]}"
    communication = (gpu.communication_exposed_ns, gpu.communication_overlapped_ns)
    where = gpu.idle_in[row]
    cells: list[str | Markup] = [
        label,
        milliseconds(duration),
        milliseconds(busy),
        percent(busy / duration) if duration else NONE,
        milliseconds(int(gpu.idle_ns[row])) if busy else NONE,
        *(milliseconds(int(times[row])) for times in communication if communicates),
        NONE if np.isnan(coverage) else percent(coverage),
        NONE if where is None else path(where, 90),
    ]
    return Row(cells=cells)
