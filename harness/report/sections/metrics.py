"""The metrics of both sides beside their time, and the limits that head is held to."""

from __future__ import annotations

from typing import Final

from markupsafe import Markup

from harness.comparison import Comparison, LaunchFigureChange, MetricChange
from harness.report import figures
from harness.report.page import Section, draw
from harness.report.tables import Column, Row, numbers, table
from harness.units import signed

TEMPLATE: Final = """
{% if table %}
<p>
{% for change in limited %}
Head’s {{ change.metric.title | lower }} {{ "exceeds its limit" if change.exceeded else "stays within its limit" }}.
{% endfor %}
Such figures repeat so closely that a plain threshold does; they are no part of the verdict on time.</p>
{% for change in grown %}
<p>{{ change.line }}.</p>
{% endfor %}
{{ table }}
{% else %}
<p class="nothing">The launches reported no such figures.</p>
{% endif %}
"""


def section(comparison: Comparison) -> Section:
    """Return the metrics of a comparison."""
    device, ranks = comparison.duel.device, comparison.duel.ranks
    columns = [Column(title="Of all launches", kind="name"), *numbers("Base", "Head", "Difference", "Limit of head")]
    rows = [_row(change, device, ranks) for change in comparison.metrics]
    rows += [_launch_row(change) for change in comparison.launch_figures]
    return Section(
        anchor="metrics",
        title="Memory and other figures",
        html=draw(
            TEMPLATE,
            table=table("Memory and other figures", columns, rows) if rows else None,
            grown=[change for change in comparison.launch_figures if change.exceeded or change.grows],
            limited=[change for change in comparison.metrics if change.bound is not None],
        ),
    )


def _launch_row(change: LaunchFigureChange) -> Row:
    text = change.figure.text
    spread = "" if change.low is None or change.high is None else f" [{text(change.low)}, {text(change.high)}]"
    return Row(
        cells=[
            change.figure.title,
            text(change.base),
            text(change.head),
            figures.typographic(f"{signed(text(change.delta))}{spread}"),
            "" if change.bound is None else text(change.base + change.bound),
        ]
    )


def _row(change: MetricChange, device: str | None, ranks: int) -> Row:
    text = change.metric.text
    label = Markup('{} <span class="muted">{}</span>').format(change.metric.title, change.metric.detail(device, ranks))
    difference = signed(text(change.head - change.base))
    return Row(
        cells=[
            label,
            text(change.base),
            text(change.head),
            difference,
            "" if change.bound is None else text(change.bound),
        ]
    )
