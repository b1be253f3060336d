"""`stepduel analyze`: where the time of a trace goes, and what is wasted."""

from __future__ import annotations

import os
from collections import Counter
from pathlib import Path
from typing import cast

import click
import numpy as np

from harness.analysis.analyze import RankSummary, TraceAnalysis
from harness.analysis.analyze import analyze as analyze_trace
from harness.analysis.document import analyze_document
from harness.analysis.findings.finding import Finding
from harness.analysis.range_totals import bandwidth, innermost_copies
from harness.cli.html_reports import write_analysis
from harness.cli.options import html_option, json_option
from harness.cli.output import clean, print_json, stdout_console
from harness.cli.step_options import step_options
from harness.cli.trace_tables import (
    WIDE,
    elided,
    kernel_label,
    print_paragraph,
    print_table,
)
from harness.collectors.nsys_reports import read_any
from harness.trace.model import Int64Array
from harness.trace.projection import ProjectionRule
from harness.units import bytes_text, gb_per_s, milliseconds, percent, plural

_STEP_ROWS = 20
_TREE_ROWS = 40
_TOP = 10
_COPY_ROWS = 8
_EVIDENCE_ROWS = 3


@click.command()
@click.argument("traces", metavar="TRACE…", nargs=-1, required=True, type=click.Path(path_type=Path))
@step_options
@html_option
@json_option
def analyze(
    traces: tuple[Path, ...], step_name: str | None, rule: str, warmup_steps: int, html: Path | None, as_json: bool
) -> None:
    """Say where the time of one trace goes, and what is wasted.

    TRACE is a SQLite export of Nsight Systems, or a trace of this tool. Several are read as one: a file a rank or node.
    """
    trace = read_any(traces, os.environ, streams=False)
    found = analyze_trace(trace, step_name=step_name, rule=cast(ProjectionRule, rule), warmup_steps=warmup_steps)
    if html is not None:
        write_analysis(found, html)
    if as_json:
        print_json(analyze_document(found))
        return
    _print_head(found, traces)
    _print_steps(found)
    _print_ranges(found)
    _print_gpu(found)
    _print_findings(found)
    for warning in found.warnings:
        click.echo(f"stepduel: warning: {clean(warning)}", err=True)


def _print_head(found: TraceAnalysis, traces: tuple[Path, ...]) -> None:
    info = found.trace.info
    writer = f"nsys {info.nsys_version}" if info.nsys_version else info.collector
    ranks = len(found.trace.ranks)
    parts = [
        ", ".join(path.name for path in traces),
        writer,
        f"{ranks} rank{'s' if ranks != 1 else ''}",
        f"{(found.trace.last_ns - found.trace.first_ns) / 1e9:,.3f} s captured",
    ]
    if len(found.trace.operations):
        parts.append(f"{found.gpu.busy_ns / 1e9:,.3f} s of GPU work")
    print_paragraph(" · ".join(parts))
    if len(found.trace.operations) and len(found.trace.ranges):
        shares = ", ".join(f"{percent(share or 0.0)} by {rule}" for rule, share in found.coverage.items())
        print_paragraph(f"GPU time that found a range: {shares}. Figures below go by {found.rule} (--rule).")
    stdout_console().print()


def _print_steps(found: TraceAnalysis) -> None:
    steps = found.steps
    if steps.name is None:
        return
    indexes = np.unique(steps.index[steps.kept])
    cells = [_step_cells(found, np.flatnonzero(steps.kept & (steps.index == at))) for at in indexes[:_STEP_ROWS]]
    print_table(f"Steps ({steps.name})", tuple(cells[0]) if cells else (), [tuple(row.values()) for row in cells])
    if len(indexes) > _STEP_ROWS:
        print_paragraph(f"… and {len(indexes) - _STEP_ROWS} more steps (--json has all)")
    if found.step_mean_ns is not None and found.step_median_ns is not None:
        took = (
            f"{milliseconds(found.step_mean_ns)} ms on average, {milliseconds(found.step_median_ns)} ms in the median"
        )
        print_paragraph(f"A step takes {took}.")
    reasons: dict[str, list[str]] = {}
    for row, reason in enumerate(steps.dropped):
        if reason is not None:
            duration = milliseconds(float(steps.duration_ns[row]))
            reasons.setdefault(reason, []).append(f"{steps.index[row]} of rank {steps.rank[row]} ({duration} ms)")
    for reason, dropped in reasons.items():
        more = f" and {len(dropped) - _TOP} more" if len(dropped) > _TOP else ""
        print_paragraph(f"Left out, {reason}: step {', '.join(dropped[:_TOP])}{more}")
    _print_idle_in(found)
    if found.slowest_rank is not None:
        _print_ranks(found, found.slowest_rank)
    stdout_console().print()


def _step_cells(found: TraceAnalysis, rows: Int64Array) -> dict[str, str]:
    """One step by column: of the only rank, or of several, of which GPU figures are those of the slowest."""
    steps, gpu = found.steps, found.step_gpu
    durations = steps.duration_ns[rows]
    slowest = int(rows[np.argmax(durations)])
    duration = milliseconds(float(durations.max()))
    cells = {"step": f"{steps.index[slowest]}"}
    if len(found.ranks) > 1:
        fastest = milliseconds(float(durations.min()))
        cells |= {"fastest ms": fastest, "slowest ms": duration, "of rank": f"{steps.rank[slowest]}"}
    else:
        cells["ms"] = duration
    if _has_gpu(found):
        busy = float(gpu.busy_ns[slowest])
        cells["GPU busy ms"] = milliseconds(busy)
        if not gpu.has_communication or stdout_console().width >= WIDE:
            cells["busy"] = percent(busy / max(float(durations.max()), 1))
        cells["idle ms"] = milliseconds(float(gpu.idle_ns[slowest])) if busy else "-"
    if gpu.has_communication:
        # NCCL's own time, while nothing else ran on the GPU: what a step waits for it.
        cells["exposed ms"] = milliseconds(float(gpu.communication_exposed_ns[slowest]))
    return cells


def _print_idle_in(found: TraceAnalysis) -> None:
    """Say where the host was in most steps while the GPU idled, and what `exposed ms` counts."""
    places = Counter(path for path in found.step_gpu.idle_in if path is not None)
    if places:
        path, count = places.most_common(1)[0]
        steps = int(found.steps.kept.sum())
        print_paragraph(f"While the GPU idled, the host was longest in {path} ({count} of {steps} steps).")
    if found.step_gpu.has_communication:
        print_paragraph("exposed: communication (NCCL) beside which no other GPU work ran.")


def _print_ranks(found: TraceAnalysis, slowest: RankSummary) -> None:
    headers = ("rank", "steps", "mean ms", "median ms", "GPU busy ms")[: 5 if _has_gpu(found) else 4]
    rows = [
        (f"rank {r.rank}", f"{r.steps}", *map(milliseconds, (r.mean_ns, r.median_ns, r.gpu_busy_ns)))[: len(headers)]
        for r in found.ranks
    ]
    print_table("Ranks", headers, rows)
    behind = slowest.mean_ns - min(r.mean_ns for r in found.ranks)
    print_paragraph(f"Slowest: rank {slowest.rank}, {milliseconds(behind)} ms behind the fastest.")


def _has_gpu(found: TraceAnalysis) -> bool:
    return len(found.trace.operations) > 0


def _print_ranges(found: TraceAnalysis) -> None:
    if found.steps.name is not None and found.per_step:
        _print_typical_step(found)
    else:
        _print_whole_capture(found)


def _print_typical_step(found: TraceAnalysis) -> None:
    least = sorted((p.median_ns for p in found.per_step), reverse=True)[:_TREE_ROWS][-1]
    shown = [p for p in found.per_step if p.median_ns >= least][:_TREE_ROWS]
    headers = ("range", "calls", "median ms", "p90 ms", "self ms", "GPU ms")
    columns = len(headers) if _has_gpu(found) else len(headers) - 1
    rows = [
        (
            f"{'  ' * p.depth}{p.name}",
            f"{p.calls_per_step:.4g}",
            milliseconds(p.median_ns),
            milliseconds(p.p90_ns),
            milliseconds(p.self_median_ns),
            milliseconds(p.gpu_median_ns or 0.0),
        )[:columns]
        for p in shown
    ]
    print_table("A typical step", headers[:columns], rows, keep_start=True)
    _print_left_out(len(found.per_step) - len(shown))


def _print_whole_capture(found: TraceAnalysis) -> None:
    if not found.ranges:
        return
    least = sorted((r.total_ns for r in found.ranges), reverse=True)[:_TREE_ROWS][-1]
    shown = [r for r in found.ranges if r.total_ns >= least][:_TREE_ROWS]
    headers = ("range", "calls", "total ms", "self ms", "GPU ms", "GPU ops", "h2d", "d2h", "sync ms")
    wide = stdout_console().width >= WIDE
    columns = 4 if not _has_gpu(found) else len(headers) if wide else 5
    rows = [
        (
            f"{'  ' * r.depth}{r.name}",
            f"{r.calls:,}",
            milliseconds(r.total_ns),
            milliseconds(r.self_ns),
            milliseconds(r.gpu_ns),
            f"{r.gpu_ops:,}",
            _size(r.h2d_bytes),
            _size(r.d2h_bytes),
            milliseconds(r.sync_ns),
        )[:columns]
        for r in shown
    ]
    print_table("Ranges, whole capture", headers[:columns], rows, keep_start=True)
    _print_left_out(len(found.ranges) - len(shown))


def _print_left_out(count: int) -> None:
    if count > 0:
        print_paragraph(f"… and {count} smaller (--json has all)")
        stdout_console().print()


def _print_gpu(found: TraceAnalysis) -> None:
    busy = max(found.gpu.kernel_ns, 1)
    kernels = [
        (kernel_label(k.name), f"{k.calls:,}", milliseconds(k.total_ns), percent(k.total_ns / busy))
        for k in found.kernels[:_TOP]
    ]
    print_table("Kernels, most time first", ("kernel", "calls", "total ms", "share"), kernels, keep_start=True)
    calls = [(a.name, f"{a.calls:,}", milliseconds(a.total_ns)) for a in found.api[:_TOP]]
    print_table("CUDA API calls", ("call", "calls", "total ms"), calls)
    copies = [
        (
            c.kind,
            f"{c.count:,}",
            _size(c.bytes),
            milliseconds(c.total_ns),
            gb_per_s(c.bytes / c.total_ns) if c.total_ns else "-",
            percent(c.pageable_bytes / c.bytes) if c.pageable_bytes else "-",
        )
        for c in found.copies
    ]
    print_table("Copies", ("kind", "count", "bytes", "total ms", "GB/s", "pageable"), copies)
    _print_copies_by_range(found)
    if found.gpu.graph_ns:
        print_paragraph(f"CUDA graph launches: {milliseconds(found.gpu.graph_ns)} ms of GPU time")
        stdout_console().print()


def _print_copies_by_range(found: TraceAnalysis) -> None:
    chosen = innermost_copies(found.ranges)
    rows = []
    for total, copy in chosen[:_COPY_ROWS]:
        speed, kind = bandwidth([copy]), " ".join((copy.direction, copy.memory or ""))
        rows.append((total.path, kind.strip(), _size(copy.bytes), gb_per_s(speed) if speed else "-"))
    print_table("Copies by range, whole capture", ("range", "copies", "bytes", "GB/s"), rows)
    _print_left_out(len(chosen) - len(rows))


def _print_findings(found: TraceAnalysis) -> None:
    if not found.findings:
        print_paragraph("Findings: none")
        return
    unit = "step" if found.steps.name is not None else "rank, whole capture"
    print_paragraph(f"Findings, by ms per {unit} (they overlap: do not add them up)", style="bold")
    for number, finding in enumerate(found.findings, start=1):
        _print_finding(number, finding)


def _print_finding(number: int, finding: Finding) -> None:
    stdout_console().print()
    print_paragraph(f"{number}. {finding.rule}, {milliseconds(finding.ns_per_step)} ms", style="bold")
    print_paragraph(finding.summary)
    width = stdout_console().width
    evidence = finding.evidence
    ranges = [(row, row.name, False) for row in evidence.ranges[:_EVIDENCE_ROWS]]
    calls = [(row, kernel_label(row.name), True) for row in evidence.calls[:_EVIDENCE_ROWS]]
    for row, name, keep_start in (*ranges, *calls):
        figures = f"  {plural(row.calls, 'call')}, {milliseconds(row.total_ns)} ms in all" + (
            f", {_size(row.bytes)}" if row.bytes else ""
        )
        room = max(width - len(figures) - 4, 16)
        print_paragraph(f"  - {elided(clean(name), room, keep_start=keep_start)}{figures}")
    print_paragraph(f"Try: {finding.advice}.")


def _size(count: int) -> str:
    """An amount of memory in a table; `-` for none."""
    return bytes_text(count) if count else "-"
