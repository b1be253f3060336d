"""Reports of existing traces: one by itself (`stepduel analyze`), or two range by range (`stepduel diff`)."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Sequence
from pathlib import PurePath
from typing import Final

import numpy as np

from harness.analysis.analyze import TraceAnalysis
from harness.analysis.difference import NO_VERDICT, DiffSide, TraceDiff
from harness.analysis.path_summary import PathSummary
from harness.measured import TreeRange
from harness.report import figures
from harness.report.page import Page, Section, names
from harness.report.sections import (
    attribution,
    copies,
    environment,
    findings,
    gpu,
    headline,
    range_trees,
    ranges,
    reproduce,
    step_gpu,
)
from harness.report.sections import steps as run_order
from harness.units import milliseconds, percent, plural, signed_ms, signed_percent

MOST_MOVED: Final = 3
TREE_NOTE: Final = (
    "Medians over the kept steps. Repeated calls of a range are one box, and its own time comes last in it."
)


def render_analysis(found: TraceAnalysis) -> str:
    """Return the report of one trace as one HTML file. Equal input gives equal bytes."""
    sources = [PurePath(source).name for source in found.trace.info.sources]
    return Page(
        kind="Trace",
        heading=names(sources, 60),
        lead=_trace_lead(found, sources),
        sections=(
            ranges.section(range_rows(found), "A typical step: medians over the kept steps of all ranks."),
            range_trees.section(trees(found), TREE_NOTE),
            run_order.section(list(_panels(found)), "Steps as the trace holds them, in milliseconds."),
            gpu.section({"": found}, None),
            *((step_gpu.section(found), copies.section(found.ranges)) if len(found.trace.operations) else ()),
            findings.of_trace(found.findings),
            environment.of_run(_trace_facts(found)),
            reproduce.section([("Read it again:", f"stepduel analyze {shlex.join(found.trace.info.sources)}")], []),
        ),
    ).render()


def render_diff(found: TraceDiff) -> str:
    """Return the report of two traces as one HTML file. It explains and gives no verdict."""
    sides = _told_apart([side.sources[0] if side.sources else "?" for side in (found.base, found.head)])
    command = f"stepduel diff {shlex.join([*found.base.sources[:1], *found.head.sources[:1]])}"
    return Page(
        kind="Difference",
        heading=f"{sides[0]} and {sides[1]}",
        lead=_diff_lead(found, sides),
        sections=(
            attribution.section(found.ranges, "Own time of each range, mean per step."),
            environment.of_run([*_side_facts("base", found.base), *_side_facts("head", found.head)]),
            reproduce.section([("Read both again:", command)], []),
        ),
    ).render()


def _told_apart(sources: Sequence[str]) -> list[str]:
    """File names, or whole paths where those are equal."""
    short = [PurePath(source).name for source in sources]
    return short if len(set(short)) == len(short) else list(sources)


def range_rows(found: TraceAnalysis) -> Sequence[PathSummary]:
    """Return the table of a typical step, or of the whole capture, as one step, where there are no steps."""
    return found.per_step or [
        PathSummary(
            path=item.path,
            name=item.name,
            depth=item.depth,
            calls_per_step=item.calls,
            median_ns=item.total_ns,
            p90_ns=item.total_ns,
            self_median_ns=item.self_ns,
            gpu_median_ns=item.gpu_ns,
        )
        for item in found.ranges
    ]


def trees(found: TraceAnalysis) -> list[range_trees.Tree]:
    """Return the typical step as a tree to draw; none where the trace has no steps."""
    if not found.per_step:
        return []
    items = [
        TreeRange(
            path=item.path,
            name=item.name,
            depth=item.depth,
            total_ns=item.median_ns,
            self_ns=item.self_median_ns,
            calls=item.calls_per_step,
        )
        for item in found.per_step
    ]
    kept = int(found.steps.kept.sum())
    return [range_trees.Tree(side="", caption=f"over {plural(kept, 'step')}", ranges=items)]


def _trace_lead(found: TraceAnalysis, sources: Sequence[str]) -> Section:
    info, trace, slowest = found.trace.info, found.trace, found.slowest_rank
    captured = f"{(trace.last_ns - trace.first_ns) / 1e9:,.3f} s captured"
    writer = f"nsys {info.nsys_version}" if info.nsys_version else info.collector
    tiles = []
    if found.ranks:
        behind = slowest or found.ranks[0]
        ranks = f"the slowest of {len(found.ranks)} ranks is {behind.rank}" if slowest else "one rank"
        tiles.append(
            headline.Tile(
                title="Step time, mean" if found.steps.name else "Capture",
                value=f"{milliseconds(behind.mean_ns)} ms",
                detail=f"median {milliseconds(behind.median_ns)} ms; {plural(behind.steps, 'step')} kept; {ranks}"
                if found.steps.name
                else ranks,
                wide=True,
            )
        )
        took = f"{milliseconds(behind.mean_ns)} ms"
        sentence = (
            f"A step takes {took}." if found.steps.name else f"No range repeats like a step; {took} were captured."
        )
        if found.gpu.busy_ns:
            busy = behind.gpu_busy_ns / behind.median_ns
            tiles.append(headline.Tile(title="GPU busy", value=percent(busy), detail="of the median step"))
    else:
        sentence = "No range repeats like a step."
    own = sorted(range_rows(found), key=lambda row: -row.self_median_ns)[:MOST_MOVED]
    rows = [(row.name, f"{milliseconds(row.self_median_ns)} ms") for row in own]
    tiles.insert(1, headline.Tile(title="Most own time", rows=rows, detail="without the ranges inside", wide=True))
    costs = [(one.rule, f"{milliseconds(one.ns_per_step)} ms a step") for one in found.findings[:MOST_MOVED]]
    detail = "" if costs else "no rule found waste"
    tiles.append(headline.Tile(title="Findings", rows=costs, detail=detail, wide=bool(costs)))
    return headline.section(
        crumb=names(sources, 60),
        sentence=sentence,
        description=f"{writer}, {plural(len(trace.ranks), 'rank')}, {captured}",
        lines=found.warnings,
        tiles=tiles,
    )


def _diff_lead(found: TraceDiff, sides: Sequence[str]) -> Section:
    share = f" ({signed_percent(found.delta_ns / found.base.step_ns)})" if found.base.step_ns else ""
    moved = [
        (part.path, figures.typographic(f"{signed_ms(part.delta_ns)} ms")) for part in found.ranges if part.delta_ns
    ]
    return headline.section(
        crumb=f"{sides[0]} → {sides[1]}",
        sentence=figures.typographic(f"The mean step differs by {signed_ms(found.delta_ns)} ms{share}."),
        lines=[f"{NO_VERDICT[0].upper()}{NO_VERDICT[1:]}.", *found.warnings],
        pill="no verdict",
        role="undecided",
        tiles=[
            headline.Tile(
                title="Step time, mean",
                value=f"{milliseconds(found.base.step_ns)} → {milliseconds(found.head.step_ns)} ms",
                detail=f"over {found.base.steps} and {found.head.steps} steps",
                wide=True,
            ),
            headline.Tile(title="What differs most", rows=moved[:MOST_MOVED], wide=True),
        ],
    )


def _panels(found: TraceAnalysis) -> Iterator[run_order.Panel]:
    """One panel a rank, in the order of its steps; dropped ones at the start are drawn as warm-up."""
    steps = found.steps
    for rank in np.unique(steps.rank).tolist() if steps.name is not None else []:
        rows = np.flatnonzero(steps.rank == rank).tolist()
        warmup = next((at for at, row in enumerate(rows) if steps.dropped[row] is None), len(rows))
        times_ns = [int(steps.duration_ns[row]) for row in rows]
        line = run_order.Line(side="head", rank=rank, order=range(len(rows)), times_ns=times_ns)
        yield run_order.Panel(title=f"Rank {rank}", warmup=warmup, lines=[line])


def _trace_facts(found: TraceAnalysis) -> list[tuple[str, str]]:
    info = found.trace.info
    return [
        ("files", names(info.sources)),
        ("written by", f"nsys {info.nsys_version}" if info.nsys_version else info.collector),
        ("step", found.steps.name or "none found"),
        ("GPU work goes to", f"ranges by {found.rule}"),
        ("machines", str(info.host_count)),
    ]


def _side_facts(which: str, side: DiffSide) -> list[tuple[str, str]]:
    return [
        (f"{which}’s trace", names(side.sources)),
        (
            f"{which}’s steps",
            f"{side.steps} kept, {side.dropped_steps} left out, called {side.step or '(whole capture)'}",
        ),
        (f"{which}’s ranks", str(side.ranks)),
    ]
