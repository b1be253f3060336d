"""`stepduel bench`: the main job, from a scenario to a table that says where the step goes."""

from __future__ import annotations

import json
import math
import shlex
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import click
from rich.table import Table
from rich.text import Text

from harness import names
from harness.cli.bench_checks import check_installed, warning_of_disturbance
from harness.cli.html_reports import write_bench
from harness.cli.options import (
    collector_option,
    html_option,
    json_option,
    ranks_option,
    reports_option,
    set_option,
    steps_option,
    subject_options,
)
from harness.cli.output import clean, print_json, stderr_console, stdout_console, tree_labels
from harness.cli.subjects import subject_cache, tell_of_subjects
from harness.cli.trace_tables import elided
from harness.collectors.choice import AUTO
from harness.collectors.registry import DEFAULT, names_where
from harness.errors import UsageError
from harness.metrics import METRICS
from harness.scenario import RunSettings, load_scenario
from harness.store import RESULTS
from harness.subject import prepare_subject
from harness.subject.releases import RELEASE, WHEEL
from harness.units import bytes_text, count_text, milliseconds, percent, plural, tokens_per_s_text

if TYPE_CHECKING:
    from harness.analysis.path_summary import PathSummary
    from harness.bench import BenchResult, Progress

BAR_WIDTH = 20
COLUMN_GAP = 2
MIN_NAME_WIDTH = 18
WIDE = 110
"""Columns from which a table has room for bars."""


@click.command()
@click.argument("name", metavar="SCENARIO")
@click.argument("subject", default=".")
@set_option("Override a key: engine.lora_rank=16.")
@ranks_option("Processes of a launch")
@steps_option("; overrides run.steps", least=1)
@click.option(
    "--python-functions-trace",
    "functions",
    type=click.Path(path_type=Path, exists=True, dir_okay=False),
    help="Probe the functions in a JSON file of nsys' option of that name, too.",
)
@collector_option("--collector", "What traces the launch.", AUTO, *names_where(), default=AUTO)
@reports_option("traces, logs and results.db")
@subject_options
@html_option
@json_option
def bench(
    name: str,
    subject: str,
    overrides: tuple[str, ...],
    ranks: int | None,
    steps: int | None,
    functions: Path | None,
    collector: str,
    reports: Path,
    repo: Path,
    python: str | None,
    allow_mismatch: bool,
    html: Path | None,
    as_json: bool,
) -> int:
    """Run a scenario, trace its ranges, and say where the step goes.

    SCENARIO is a name (`stepduel scenarios` lists them) or the path of a TOML file. SUBJECT is . (unless given), a git
    revision or a release, as in compare.
    """
    given = {"run.ranks": ranks, "run.steps": steps}
    probes = [] if functions is None else _probe_overrides(functions)
    scenario = load_scenario(name, [*probes, *overrides, *(f"{key}={value}" for key, value in given.items() if value)])
    with subject_cache() as cache:
        code = prepare_subject(scenario, subject, repo, cache, python=python, allow_mismatch=allow_mismatch)
        if code.name == "installed" and code.python == Path(sys.executable):
            check_installed(scenario.factory, repo)
        tell_of_subjects(code)
        from harness.bench import run_bench  # numpy and the trace reader too: a mistyped name need not wait for them

        _warn_of_period(scenario.run)
        total = scenario.run.warmup_steps + scenario.run.steps
        with warning_of_disturbance(), _progress(scenario.name, total) as progress:
            result = run_bench(scenario, code, collector=collector, reports=reports, progress=progress)
    if html is not None:
        write_bench(result, html)
    if as_json:
        print_json(result.document())
    else:
        _print(result, _next_commands(result, name, repo))
    return result.exit_code


def _warn_of_period(run: RunSettings) -> None:
    """Say that a launch is too short for what the scenario says comes periodically."""
    from harness.stats.periods import FEWEST_TIMES

    if run.period > 1 and run.steps < FEWEST_TIMES * run.period:
        text = f"warning: {run.steps} steps show no period of {run.period}: --steps {FEWEST_TIMES * run.period} does"
        stderr_console().print(Text(text, style="yellow"), soft_wrap=True)


def _probe_overrides(path: Path) -> list[str]:
    """Return the functions in NVIDIA's annotation file as overrides that make each a probe."""
    from harness.worker.plan import parse_probes

    try:
        entries = json.loads(path.read_text(encoding="utf-8"))
        if not isinstance(entries, list):
            raise UsageError(f"expected a list of objects, not {type(entries).__name__}")
        probes = parse_probes(entries)
    except (OSError, ValueError, UsageError) as error:
        raise UsageError(f"{path}: not in the form of nsys --python-functions-trace: {error}") from error
    return [f"probes.{probe.name}={json.dumps(probe.target)}" for probe in probes]


@contextmanager
def _progress(title: str, total: int) -> Iterator[Progress]:
    """Show how far the launch is: a bar on a terminal, two lines elsewhere.

    The bar is drawn between steps only. Rich's refreshing thread would take a core from the step being measured.
    """
    from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeElapsedColumn
    from rich.progress import Progress as Bar

    console = stderr_console()
    if not console.is_terminal:
        said: set[str] = set()

        def say(phase: str, done: int) -> None:  # noqa: ARG001 - a line says no count
            if phase not in said:
                console.print(f"{clean(title)}: {phase}", soft_wrap=True)
                said.add(phase)

        yield say
        return
    columns = (TextColumn("{task.description}", markup=False), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Bar(*columns, console=console, auto_refresh=False, transient=True) as bar:
        task = bar.add_task(clean(title), total=total)

        def draw(phase: str, done: int) -> None:
            bar.update(task, description=f"{clean(title)}: {phase}", completed=done, refresh=True)

        yield draw


def _print(result: BenchResult, next_commands: Sequence[str]) -> None:
    console = stdout_console()
    title = f"{clean(result.run.scenario)}  {clean(result.description)}"
    console.print(Text(title, style="bold"), soft_wrap=True)
    for line in (
        _device_line(result),
        f"collector {result.run.collector}: {result.collector_reason}",
        _code_line(result),
    ):
        console.print(Text(clean(line), style="dim"))
    console.print()
    if result.run.status == "failed":
        _print_failure(result)
    if result.ranges:
        console.print(_range_table(result.ranges, console.width), crop=False)
        console.print(Text("medians, each by itself; share: of the time of all steps, adds up", style="dim"))
        console.print()
    for label, value in [*_summary(result), *zip(("next", ""), next_commands, strict=False)]:
        name = f"{label:<10}" if len(label) < 10 else f"{label}  "
        console.print(Text.assemble((name, "dim"), clean(value)), soft_wrap=True)


def _device_line(result: BenchResult) -> str:
    run = result.run
    memory = str(run.engine.get("device_memory", ""))
    emulated = ": emulated device memory, the link is RAM" if memory.startswith("emulated") else ""
    ranks = f"{run.ranks} rank" + ("s" if run.ranks > 1 else "")
    return f"{run.device or 'no device'}{emulated}; {ranks}"


def _code_line(result: BenchResult) -> str:
    run = result.run
    if run.subject.startswith((RELEASE, WHEEL)):
        return run.subject
    if run.revision is None:
        return "engine as installed" if run.subject == "installed" else "engine outside a git repository"
    return f"revision {run.revision[:12]}" + (" with uncommitted changes" if run.dirty else "")


def _print_failure(result: BenchResult) -> None:
    console = stdout_console()
    console.print(Text(f"FAILED  {clean(result.run.reason or '')}", style="bold red"), soft_wrap=True)
    for line in result.log_tail:
        console.print(Text(f"  | {clean(line)}", style="dim"), soft_wrap=True)
    console.print()


def _range_table(ranges: tuple[PathSummary, ...], width: int) -> Table:
    """Return the range tree as a table: ms per step, and bytes where something moved. Names give way, figures never."""
    titles = ["range, ms per step", "calls", "median", "p90", "share", "self", "moved"]
    figures = [_figures(item) for item in ranges]
    widths = [max(map(len, column)) for column in zip(titles[1:], *figures, strict=True)]
    taken = sum(widths) + COLUMN_GAP * len(widths)
    bars = width >= WIDE
    room = max(width - taken - (COLUMN_GAP + BAR_WIDTH if bars else 0), MIN_NAME_WIDTH)
    labels = [elided(label, room, keep_start=True) for label in tree_labels([item.path for item in ranges])]
    # Wider than a narrow terminal, which then wraps it.
    forced = taken + max(map(len, [titles[0], *labels])) if taken + room > width else None
    table = Table(box=None, pad_edge=False, padding=(0, COLUMN_GAP, 0, 0), header_style="dim", width=forced)
    table.add_column(titles[0], no_wrap=True)
    for title in titles[1:]:
        table.add_column(title, justify="right", no_wrap=True)
    if bars:
        table.add_column("share of the step", no_wrap=True)
    for label, cells, item in zip(labels, figures, ranges, strict=True):
        style = "bold" if item.path == names.STEP else ""
        bar = [Text("█" * round((item.share or 0.0) * BAR_WIDTH), style="cyan")] if bars else []
        table.add_row(*(Text(cell, style=style) for cell in (label, *cells)), *bar)
    return table


def _figures(item: PathSummary) -> tuple[str, ...]:
    moved = item.moved_bytes_per_step
    return (
        count_text(item.calls_per_step),
        milliseconds(item.median_ns),
        milliseconds(item.p90_ns),
        percent(item.share or 0.0),
        milliseconds(item.self_median_ns),
        "" if moved is None else bytes_text(moved),
    )


def _summary(result: BenchResult) -> list[tuple[str, str]]:
    lines: list[tuple[str, str]] = []
    if result.step_mean_ns is not None and result.step_median_ns is not None:
        steps = f"{len(result.durations_ns)} steps after {result.warmup_steps} of warm-up"
        took = f"{milliseconds(result.step_mean_ns)} ms mean, {milliseconds(result.step_median_ns)} ms median"
        lines.append(("step", f"{took} of {steps}"))
    if result.tokens_per_s is not None:
        lines.append(("speed", tokens_per_s_text(result.tokens_per_s)))
    for name, value in result.figures.items():
        if value is not None:
            metric = METRICS[name]
            detail = metric.detail(result.run.device, result.run.ranks)
            lines.append((metric.title.lower(), f"{metric.text(value)}, {detail}"))
    losses = [loss for loss in result.losses if loss is not None]
    if losses:
        lost = sum(map(math.isnan, losses))
        diverged = f"; training has diverged: no number at {plural(lost, 'step')}" if lost else ""
        lines.append(("loss", f"{losses[0]:.6g} to {losses[-1]:.6g} over the measured steps{diverged}"))
    if result.trace is not None:
        lines.append(("trace", str(result.trace)))
    if result.run.logs is not None:
        lines.append(("logs", str(result.reports / result.run.logs)))
    lines.append(("database", f"{result.reports / RESULTS}, run {result.run.id}"))
    return lines


def _next_commands(result: BenchResult, given: str, repo: Path) -> list[str]:
    """Return what to run next; `given` is the scenario as the user named it, by name or path."""
    scenario = shlex.quote(given) + ("" if repo == Path() else f" --repo {shlex.quote(str(repo))}")
    if result.run.status == "failed":
        logs = result.reports / (result.run.logs or "")
        written = [log for log in (logs / "rank0.log", logs / "torchrun.log") if log.exists() and log.stat().st_size]
        return [f"less {shlex.quote(str(log))}" for log in written[:1]]
    if result.trace is None:
        return [f"stepduel bench {scenario} --collector {DEFAULT}"]
    compare = [f"stepduel compare {scenario} HEAD~1"] if result.run.revision else []
    # The worker's warm-up is in the trace; without the option it would count as measured.
    return [f"stepduel analyze {shlex.quote(str(result.trace))} --warmup-steps {result.warmup_steps}", *compare]
