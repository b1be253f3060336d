"""GPU work where a trace holds some: busy and idle time, copies, exposed communication, kernels."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from harness.analysis.analyze import TraceAnalysis
from harness.metrics import bytes_text, milliseconds, percent
from harness.report.page import Section, draw

MOST_KERNELS: Final = 12
EXPOSED: Final = "exposed_communication"

TEMPLATE: Final = """
{% if not sides %}
<p class="nothing">{{ nothing }}</p>
{% else %}
<div class="scroll" role="region" aria-label="GPU time" tabindex="0"><table>
<thead><tr><th scope="col">A step’s median{{ " on the slowest rank" if ranks }}</th>{% for side in sides %}<th scope="col" class="n">{{ side or "this trace" }}</th>{% endfor %}</tr></thead>
<tbody>
{% for row in rows %}<tr><th scope="row">{{ row[0] }}</th>{% for cell in row[1] %}<td class="n">{{ cell }}</td>{% endfor %}</tr>
{% endfor %}
</tbody></table></div>
<h3>Copies, whole capture</h3>
{% if copies %}
<div class="scroll" role="region" aria-label="Copies" tabindex="0"><table>
<thead><tr><th scope="col">Kind</th>{% for side in sides %}<th scope="col" class="n">{{ side }} count</th><th scope="col" class="n">{{ side }} bytes</th><th scope="col" class="n">{{ side }} ms</th>{% endfor %}</tr></thead>
<tbody>
{% for row in copies %}<tr><th scope="row">{{ row[0] | name }}</th>{% for cell in row[1] %}<td class="n">{{ cell }}</td>{% endfor %}</tr>
{% endfor %}
</tbody></table></div>
{% else %}<p class="nothing">No copy was traced.</p>{% endif %}
<h3>Kernels, whole capture</h3>
{% if kernels %}
<div class="scroll" role="region" aria-label="Kernels" tabindex="0"><table>
<thead><tr><th scope="col">Kernel</th>{% for side in sides %}<th scope="col" class="n">{{ side }} calls</th><th scope="col" class="n">{{ side }} ms</th>{% endfor %}</tr></thead>
<tbody>
{% for row in kernels %}<tr><th scope="row" class="path">{{ row[0] | name(90) }}</th>{% for cell in row[1] %}<td class="n">{{ cell }}</td>{% endfor %}</tr>
{% endfor %}
</tbody></table></div>
{% else %}<p class="nothing">No kernel was traced.</p>{% endif %}
{% endif %}
"""


def section(analyses: Mapping[str, TraceAnalysis], device: str | None) -> Section:
    """Return the GPU figures of each side that has GPU work in its trace. The empty name is a trace by itself."""
    traced = {side: found for side, found in analyses.items() if len(found.trace.operations)}
    found = list(traced.values())
    nothing = f"No GPU work was traced: the launches ran on {device or 'no device'}." + (
        " “stepduel compare --explain nsys” traces one launch pair more." if device == "cuda" else ""
    )
    return Section(
        anchor="gpu",
        title="GPU",
        html=draw(
            TEMPLATE,
            sides=list(traced),
            nothing=nothing,
            ranks=any(len(one.ranks) > 1 for one in found),
            rows=_rows(found) if found else [],
            copies=_copies(found),
            kernels=_kernels(found),
        ),
    )


def _rows(found: Sequence[TraceAnalysis]) -> list[tuple[str, list[str]]]:
    rows: list[tuple[str, list[str]]] = []
    slowest = [one.slowest_rank or (one.ranks[0] if one.ranks else None) for one in found]
    if all(rank is not None for rank in slowest):
        known = [rank for rank in slowest if rank is not None]
        rows.append(("Step, ms", [milliseconds(rank.median_ns) for rank in known]))
        rows.append(("GPU busy, ms", [milliseconds(rank.gpu_busy_ns) for rank in known]))
        rows.append(("GPU busy", [percent(rank.gpu_busy_ns / rank.median_ns) for rank in known]))
        rows.append(("GPU idle, ms", [milliseconds(rank.median_ns - rank.gpu_busy_ns) for rank in known]))
    rows.append(("Exposed communication, ms a step", [_exposed(one) for one in found]))
    rows.append(("Kernels, ms in all", [milliseconds(one.gpu.kernel_ns) for one in found]))
    rows.append(("Copies and memsets, ms in all", [milliseconds(one.gpu.copy_ns) for one in found]))
    if any(one.gpu.graph_ns for one in found):
        rows.append(("CUDA graphs, ms in all", [milliseconds(one.gpu.graph_ns) for one in found]))
    rows.append(("GPU time that found its range", [percent(one.coverage.get(one.rule, 0.0)) for one in found]))
    return rows


def _exposed(found: TraceAnalysis) -> str:
    return next((milliseconds(f.ns_per_step) for f in found.findings if f.rule == EXPOSED), "0")


def _copies(found: Sequence[TraceAnalysis]) -> list[tuple[str, list[str]]]:
    tables = [{total.kind: total for total in one.copies} for one in found]
    return [
        (
            kind,
            [
                cell
                for table in tables
                for cell in (
                    (f"{table[kind].count:,}", bytes_text(table[kind].bytes), milliseconds(table[kind].total_ns))
                    if kind in table
                    else ("–",) * 3
                )
            ],
        )
        for kind in dict.fromkeys(kind for table in tables for kind in table)
    ]


def _kernels(found: Sequence[TraceAnalysis]) -> list[tuple[str, list[str]]]:
    tables = [{total.name: total for total in one.kernels} for one in found]
    cost = {name: max(t[name].total_ns for t in tables if name in t) for table in tables for name in table}
    largest = sorted(cost, key=lambda name: (-cost[name], name))[:MOST_KERNELS]
    return [
        (
            name,
            [
                cell
                for table in tables
                for cell in (
                    (f"{table[name].calls:,}", milliseconds(table[name].total_ns)) if name in table else ("–",) * 2
                )
            ],
        )
        for name in largest
    ]
