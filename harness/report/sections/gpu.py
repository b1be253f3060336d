"""GPU work where a trace holds some: busy and idle time, copies, exposed communication, kernels."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Final, TypeVar

from markupsafe import Markup

from harness.analysis.analyze import TraceAnalysis
from harness.report.page import Section, draw
from harness.report.page import name as shown
from harness.report.tables import Column, Row, numbers, table
from harness.units import bytes_text, milliseconds, percent

MOST_KERNELS: Final = 12
EXPOSED: Final = "exposed_communication"
NONE: Final = "–"

TEMPLATE: Final = """
{% if times %}
{{ times }}
<h3>Copies, whole capture</h3>
{% if copies %}
{{ copies }}
{% else %}
<p class="nothing">No copy was traced.</p>
{% endif %}
<h3>Kernels, whole capture</h3>
{% if kernels %}
{{ kernels }}
{% else %}
<p class="nothing">No kernel was traced.</p>
{% endif %}
{% else %}
<p class="nothing">{{ nothing }}</p>
{% endif %}
"""
Total = TypeVar("Total")


def section(analyses: Mapping[str, TraceAnalysis], device: str | None) -> Section:
    """Return the GPU figures of each side that has GPU work in its trace. The empty name is a trace by itself."""
    traced = {side: found for side, found in analyses.items() if len(found.trace.operations)}
    nothing = f"No GPU work was traced; the launches ran on {device or 'no device that is known'}."
    if device == "cuda":
        nothing += " “stepduel compare --explain nsys” traces one launch pair more."
    return Section(
        anchor="gpu",
        title="GPU",
        html=draw(
            TEMPLATE,
            nothing=nothing,
            times=_times(traced) if traced else None,
            copies=_copies(traced),
            kernels=_kernels(traced),
        ),
    )


def _times(traced: Mapping[str, TraceAnalysis]) -> Markup:
    found = list(traced.values())
    rows: list[tuple[str, list[str]]] = []
    ranks = [rank for one in found if (rank := one.slowest_rank or (one.ranks[0] if one.ranks else None)) is not None]
    if len(ranks) == len(found):
        rows = [
            ("Median step, slowest rank, ms", [milliseconds(rank.median_ns) for rank in ranks]),
            ("GPU busy in it, ms", [milliseconds(rank.gpu_busy_ns) for rank in ranks]),
            ("GPU busy in it", [percent(rank.gpu_busy_ns / rank.median_ns) for rank in ranks]),
            ("GPU idle in it, ms", [milliseconds(rank.median_ns - rank.gpu_busy_ns) for rank in ranks]),
        ]
    rows.append(("Exposed communication, ms a step", [_exposed(one) for one in found]))
    rows.append(("Kernels, ms in all", [milliseconds(one.gpu.kernel_ns) for one in found]))
    rows.append(("Copies and memsets, ms in all", [milliseconds(one.gpu.copy_ns) for one in found]))
    if any(one.gpu.graph_ns for one in found):
        rows.append(("CUDA graphs, ms in all", [milliseconds(one.gpu.graph_ns) for one in found]))
    rows.append(("GPU time that found its range", [percent(one.coverage.get(one.rule) or 0.0) for one in found]))
    columns = [Column(title="", kind="name"), *numbers(*(side.capitalize() or "This trace" for side in traced))]
    return table("GPU time", columns, [Row(cells=[label, *cells]) for label, cells in rows])


def _exposed(found: TraceAnalysis) -> str:
    return next((milliseconds(f.ns_per_step) for f in found.findings if f.rule == EXPOSED), "0")


def _copies(traced: Mapping[str, TraceAnalysis]) -> Markup | None:
    tables = [{total.kind: total for total in one.copies} for one in traced.values()]
    kinds = list(dict.fromkeys(kind for totals in tables for kind in totals))
    titles = ("count", "bytes", "pageable", "ms")
    return _side_by_side(
        "Copies",
        "Kind",
        traced,
        titles,
        kinds,
        tables,
        lambda total: [
            f"{total.count:,}",
            bytes_text(total.bytes),
            bytes_text(total.pageable_bytes),
            milliseconds(total.total_ns),
        ],
    )


def _kernels(traced: Mapping[str, TraceAnalysis]) -> Markup | None:
    tables = [{total.name: total for total in one.kernels} for one in traced.values()]
    cost: dict[str, int] = {}
    for totals in tables:
        for name, total in totals.items():
            cost[name] = max(total.total_ns, cost.get(name, 0))
    largest = sorted(cost, key=lambda name: (-cost[name], name))[:MOST_KERNELS]
    return _side_by_side(
        "Kernels",
        "Kernel",
        traced,
        ("calls", "ms"),
        largest,
        tables,
        lambda total: [f"{total.calls:,}", milliseconds(total.total_ns)],
    )


def _side_by_side(
    label: str,
    first: str,
    sides: Mapping[str, TraceAnalysis],
    titles: Sequence[str],
    names: Sequence[str],
    tables: Sequence[Mapping[str, Total]],
    cells: Callable[[Total], list[str]],
) -> Markup | None:
    """A table with the same columns for each side; a dash where a side lacks the row."""
    if not names:
        return None
    columns = [
        Column(title=first, kind="path"),
        *numbers(*(f"{side} {title}".strip() for side in sides for title in titles)),
    ]
    rows = []
    for name in names:
        found = [cells(totals[name]) if name in totals else [NONE] * len(titles) for totals in tables]
        rows.append(Row(cells=[shown(name, 110), *(cell for side in found for cell in side)]))
    return table(label, columns, rows)
