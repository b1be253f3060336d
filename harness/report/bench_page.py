"""The report of one launch (`stepduel bench`): where the step goes, and what is wasted."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from typing import Final, Protocol

from harness.analysis.analyze import TraceAnalysis
from harness.analysis.path_summary import PathSummary
from harness.metrics import METRICS
from harness.report.page import Page, Section
from harness.report.sections import environment, findings, gpu, headline, range_trees, ranges, reproduce, steps
from harness.report.trace_page import TREE_NOTE, trees
from harness.store import RunRecord, StepRecord
from harness.units import milliseconds, plural, tokens_per_s_text

MOST_RANGES: Final = 3
LOG_LINES: Final = 12
RANGES_NOTE: Final = (
    "Medians over the measured steps, each on its slowest rank. Shares are of the time of all of them, and add up."
)


class Run(Protocol):
    """What `stepduel bench` returns, as far as its report needs it. Reports lie below the commands that make them."""

    @property
    def run(self) -> RunRecord: ...
    @property
    def description(self) -> str: ...
    @property
    def warmup_steps(self) -> int: ...
    @property
    def steps(self) -> Sequence[StepRecord]: ...
    @property
    def ranges(self) -> Sequence[PathSummary]: ...
    @property
    def durations_ns(self) -> Sequence[int]: ...
    @property
    def step_mean_ns(self) -> float | None: ...
    @property
    def step_median_ns(self) -> float | None: ...
    @property
    def tokens_per_s(self) -> float | None: ...
    @property
    def figures(self) -> Mapping[str, float | None]: ...
    @property
    def losses(self) -> Sequence[float | None]: ...
    @property
    def log_tail(self) -> Sequence[str]: ...


def render_bench(result: Run, analysis: TraceAnalysis | None = None, *, folder: str = ".") -> str:
    """Return the report of one launch as one HTML file. `analysis` is of its trace, where there is one.

    `folder` is the reports folder as seen from the file's own, for links to the trace and the logs.
    """
    run = result.run
    found = findings.of_trace(analysis.findings) if analysis else findings.section(None, None)
    return Page(
        kind="Bench" if run.status == "completed" else "Failed bench",
        heading=run.scenario,
        identity=run.id,
        lead=_lead(result),
        sections=(
            ranges.section(result.ranges, RANGES_NOTE),
            range_trees.section([] if analysis is None else trees(analysis), TREE_NOTE),
            steps.section(_panels(result), "Steps of each rank in the order they ran, in milliseconds."),
            gpu.section({} if analysis is None else {"": analysis}, run.device),
            found,
            environment.of_run(_facts(run)),
            reproduce.section(*_reproduce(run, folder)),
        ),
    ).render()


def _lead(result: Run) -> Section:
    run = result.run
    description = f"{result.description}, {run.device or 'no device'}, {plural(run.ranks, 'rank')}"
    if run.status == "failed":
        lines = [run.reason or "", *result.log_tail[-LOG_LINES:]]
        return headline.section(
            crumb=run.scenario,
            description=description,
            sentence="The launch failed.",
            lines=lines,
            pill="failed",
            role="invalid",
            tiles=_tiles(result),
        )
    step_ns = result.step_mean_ns
    sentence = "No step was measured." if step_ns is None else f"A step takes {milliseconds(step_ns)} ms."
    return headline.section(crumb=run.scenario, description=description, sentence=sentence, tiles=_tiles(result))


def _tiles(result: Run) -> list[headline.Tile]:
    tiles: list[headline.Tile] = []
    times_ns = sorted(result.durations_ns)
    if result.step_mean_ns is not None and result.step_median_ns is not None:
        spread = f"{milliseconds(times_ns[0])} to {milliseconds(times_ns[-1])} ms"
        steps_made = f"{plural(len(times_ns), 'step')} after {result.warmup_steps} of warm-up"
        value = f"{milliseconds(result.step_mean_ns)} ms"
        detail = f"median {milliseconds(result.step_median_ns)} ms, " if len(times_ns) > 1 else ""
        detail += f"{spread} over {steps_made}" if len(times_ns) > 1 else steps_made
        tiles.append(headline.Tile(title="Step time, mean", value=value, detail=detail, wide=True))
    own = sorted(result.ranges, key=lambda item: -item.self_median_ns)[:MOST_RANGES]
    if own:
        rows = [(item.path, f"{milliseconds(item.self_median_ns)} ms") for item in own]
        tiles.append(headline.Tile(title="Most own time", rows=rows, detail="without the ranges inside", wide=True))
    if result.tokens_per_s is not None:
        tiles.append(headline.Tile(title="Speed", value=tokens_per_s_text(result.tokens_per_s)))
    for name, figure in result.figures.items():
        if figure is not None:
            metric = METRICS[name]
            detail = metric.detail(result.run.device, result.run.ranks)
            tiles.append(headline.Tile(title=metric.title, value=metric.text(figure), detail=detail))
    losses = [loss for loss in result.losses if loss is not None]
    if losses:
        tiles.append(headline.Tile(title="Loss", value=f"{losses[0]:.6g} → {losses[-1]:.6g}", detail="first to last"))
    return tiles


def _panels(result: Run) -> list[steps.Panel]:
    by_rank: dict[int, list[StepRecord]] = {}
    for step in result.steps:
        by_rank.setdefault(step.rank, []).append(step)
    lines = [
        steps.Line(side="head", rank=rank, order=[s.sequence for s in own], times_ns=[s.duration_ns for s in own])
        for rank, own in sorted(by_rank.items())
    ]
    return [steps.Panel(title="One launch", warmup=result.warmup_steps, lines=lines)] if lines else []


def _facts(run: RunRecord) -> list[tuple[str, str]]:
    code = run.revision or run.subject
    return [
        ("code", f"{code}{' with uncommitted changes' if run.dirty else ''}"),
        ("device", run.device or "none"),
        ("ranks", str(run.ranks)),
        ("collector", run.collector),
        ("load before it", f"{run.load_average:.1f}"),
        *((f"engine’s {package}", version) for package, version in sorted(run.engine_versions.items())),
        *((f"engine: {key}", str(value)) for key, value in run.engine.items()),
        ("measured with", f"stepduel {run.harness_version}"),
        ("run", f"{run.id}, scenario hash {run.scenario_hash}"),
    ]


def _reproduce(run: RunRecord, folder: str) -> tuple[list[tuple[str, str]], list[reproduce.File]]:
    steps_asked = run.scenario_document.get("run", {}).get("steps")
    command = ["stepduel", "bench", run.scenario, "--ranks", str(run.ranks), "--collector", run.collector]
    command += [] if steps_asked is None else ["--steps", str(steps_asked)]
    commands = [("Measure again:", shlex.join(command))]
    if run.trace is not None:
        read = shlex.join(["stepduel", "analyze", run.trace])
        commands.append(("Read its trace, from within the reports folder:", read))
    files = [
        reproduce.File(label=label, path=path, folder=folder)
        for label, path in (("Trace", run.trace), ("Logs", f"{run.logs}/" if run.logs else None))
        if path
    ]
    return commands, files
