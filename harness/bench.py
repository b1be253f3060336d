"""One subject, one scenario, one launch: run it, read its trace, store every row, and say where the step goes.

Whatever happens after the engine accepted the plan is a result and is stored: a launch that fails keeps its logs, the
steps it did, and what its ranks had traced. A plan that the engine refuses leaves nothing behind.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import cached_property
from pathlib import Path
from statistics import fmean, median
from typing import Any, ClassVar

import harness
from harness import documents, names
from harness.analysis.path_summary import PathSummary
from harness.analysis.steps import StepTable, summarise
from harness.collectors.base import Collector
from harness.collectors.choice import choose
from harness.collectors.registry import collect_trace, collectors
from harness.environment import load_average, read_environment
from harness.errors import LaunchError, StepduelError, TraceError, UsageError
from harness.launch import Launch, LaunchFailedError, Pace, Ready, StepReport, interrupted_once, scenario_request
from harness.launch.failure import tail
from harness.launch.rows import launch_steps, step_records
from harness.metrics import METRICS
from harness.scenario import Scenario
from harness.store import RESULTS, RunRecord, StepRecord, Store, check_writable, new_run_id
from harness.subject import LiveFolder, Subject, SubjectCache, missing_hint

SCHEMA = "stepduel/bench/2"
EXIT_INTERRUPTED = 130

Progress = Callable[[str, int], None]
"""Told what the launch is doing, and how many steps of any kind are done."""


@dataclass(frozen=True, kw_only=True)
class BenchResult:
    """One run as it was stored, and what its trace says. Figures are over measured steps, slowest rank of each."""

    ALSO_IN_DOCUMENT: ClassVar = (
        "durations_ns",
        "step_mean_ns",
        "step_median_ns",
        "tokens_per_s",
        "figures",
        "losses",
        "trace",
    )

    run: RunRecord
    exit_code: int
    description: str
    """Of the scenario."""
    warmup_steps: int
    reports: Path
    steps: tuple[StepRecord, ...]
    ranges: tuple[PathSummary, ...]
    """In tree order; empty where nothing was traced."""
    collector_reason: str
    log_tail: tuple[str, ...] = ()

    @property
    def measured(self) -> tuple[StepRecord, ...]:
        """The measured steps, in the order they ran, ranks ascending within each."""
        return tuple(step for step in self.steps if step.measured)

    @property
    def durations_ns(self) -> list[int]:
        """Of each measured step, the time of its slowest rank."""
        slowest: dict[int, int] = {}
        for step in self.measured:
            slowest[step.sequence] = max(step.duration_ns, slowest.get(step.sequence, 0))
        return list(slowest.values())

    @property
    def step_mean_ns(self) -> float | None:
        """Time paid: the total of `durations_ns` over their number. None without a measured step."""
        return fmean(self.durations_ns) if self.durations_ns else None

    @property
    def step_median_ns(self) -> float | None:
        """Median measured step: of the step range, as the table of ranges has it, where there is a trace.

        Without one, of `durations_ns`, which the workers report; None without a measured step.
        """
        traced = next((item.median_ns for item in self.ranges if item.path == names.STEP), None)
        return traced or (median(self.durations_ns) if self.durations_ns else None)

    @property
    def tokens_per_s(self) -> float | None:
        """Tokens of all ranks over the time of the measured steps; None where the engine counts none."""
        tokens = [step.tokens for step in self.measured if step.tokens is not None]
        return sum(tokens) / (sum(self.durations_ns) / 1e9) if tokens else None

    @property
    def figures(self) -> dict[str, float | None]:
        """Every metric, over all ranks and steps; None where no step tells it."""
        return {name: metric.of_steps(self.steps) for name, metric in METRICS.items()}

    @property
    def losses(self) -> list[float | None]:
        """Mean over the ranks that tell one, of each measured step."""
        told: dict[int, list[float]] = {}
        for step in self.measured:
            told.setdefault(step.sequence, []).extend([] if step.loss is None else [step.loss])
        return [fmean(losses) if losses else None for losses in told.values()]

    @property
    def trace(self) -> Path | None:
        """The trace, below the reports folder."""
        return None if self.run.trace is None else self.reports / self.run.trace

    def document(self) -> dict[str, Any]:
        """Return the result as the JSON document `stepduel/bench/2`."""
        return documents.document(SCHEMA, self)


@dataclass(frozen=True, kw_only=True)
class _Started:
    """When a run began, and how busy the machine was with other things then."""

    at: datetime = field(default_factory=lambda: datetime.now(UTC))
    load_average: float = field(default_factory=load_average)

    @cached_property
    def run_id(self) -> str:
        """The run's id, drawn once."""
        return new_run_id(self.at)


@dataclass(kw_only=True)
class _Attempt:
    """What a launch did until it ended, however it ended."""

    ready: Ready | None = None
    reports: list[StepReport] = field(default_factory=list)
    reason: str | None = None
    log_tail: tuple[str, ...] = ()
    exit_code: int = 0

    def fail(self, error: BaseException) -> None:
        """Keep why it ended; the first reason stays."""
        if self.reason is not None:
            return
        if isinstance(error, KeyboardInterrupt):
            self.reason, self.exit_code = "interrupted", EXIT_INTERRUPTED
        else:
            self.reason = " ".join(str(error).split())
            self.exit_code = LaunchError.exit_code
        if isinstance(error, LaunchFailedError):
            self.log_tail = _without_end(error.log_tail, self.reason)


def run_bench(
    scenario: Scenario, subject: Subject, *, collector: str, reports: Path, progress: Progress
) -> BenchResult:
    """Run `scenario` once and store the run, a failed or interrupted one too; a second interrupt changes nothing.

    Raises UsageError, having written nothing, when the collector or the database cannot be used or the engine refuses
    the plan.
    """
    with interrupted_once():
        return _run(scenario, subject, collector, reports, progress)


def _run(scenario: Scenario, subject: Subject, collector: str, reports: Path, progress: Progress) -> BenchResult:
    check_writable(reports / RESULTS)
    chosen = choose(collector, collectors(), os.environ)
    environment, started = read_environment(), _Started()
    logs = reports / "logs" / started.run_id
    try:
        logs.mkdir(parents=True)
    except OSError as error:
        raise UsageError(f"cannot make {logs}: {error.strerror}; choose another folder with --reports") from error
    attempt = _Attempt()
    progress("building the engine", 0)
    try:
        _drive(scenario, subject, chosen.collector, logs, attempt, progress)
    except (LaunchError, KeyboardInterrupt) as error:
        attempt.fail(error)
    except StepduelError as error:
        _remove(logs, reports)
        hint = missing_hint(str(error), subject.checkout)
        if hint is not None:
            raise UsageError(f"{error}; {hint}") from error
        raise
    progress("reading the trace" if attempt.reason is None else "keeping what there is", len(attempt.reports))
    trace = reports / "traces" / f"{started.run_id}.sqlite"
    table = _collect(chosen.collector, logs, scenario, trace, attempt)
    run = _run_record(scenario, subject, chosen.collector, started, attempt, has_trace=trace.exists())
    steps = [
        record
        for report in attempt.reports
        for record in step_records(report, measured=report.index >= scenario.run.warmup_steps)
    ]
    with Store(reports / RESULTS) as store:
        store.add_run(run, environment, steps, [] if table is None else table.rows())
    return BenchResult(
        run=run,
        exit_code=attempt.exit_code,
        description=scenario.description,
        warmup_steps=scenario.run.warmup_steps,
        reports=reports,
        steps=tuple(steps),
        ranges=() if table is None else tuple(summarise(table)),
        collector_reason=chosen.reason,
        log_tail=attempt.log_tail,
    )


def _drive(
    scenario: Scenario, subject: Subject, collector: Collector, logs: Path, attempt: _Attempt, progress: Progress
) -> None:
    """Take the launch from its start to its stop, noting in `attempt` how far it came."""
    pace = Pace(warmup_steps=scenario.run.warmup_steps, steps=scenario.run.steps)
    with ExitStack() as open_until_done:
        home = LiveFolder(subject=subject, folder=open_until_done.enter_context(SubjectCache()).private() / "side")
        launch = open_until_done.enter_context(Launch(scenario_request(scenario, home.fresh(), collector, pace, logs)))
        attempt.ready = launch.wait_ready()
        for index in range(scenario.run.warmup_steps + scenario.run.steps):
            progress("warm-up" if index < scenario.run.warmup_steps else "measuring", index)
            attempt.reports.append(launch.step())
        progress("finishing", len(attempt.reports))
        outcome = launch.stop()
        if not outcome.clean_exit:
            how = "did not end" if outcome.exit_status is None else f"ended with status {outcome.exit_status}"
            log = logs / "torchrun.log"
            attempt.log_tail = tail(log)
            raise LaunchError(f"every step was done, but the launch {how} after its stop (log: {log})")


def _collect(collector: Collector, logs: Path, scenario: Scenario, trace: Path, attempt: _Attempt) -> StepTable | None:
    """Make `trace` and return its step table; None where there is none. A launch that should have one fails then."""
    if not collector.abilities.traces:
        return None
    try:
        collect_trace(collector, logs, scenario.run.ranks, trace, keep_rank_files=attempt.reason is not None)
        return launch_steps(trace, warmup_steps=scenario.run.warmup_steps)
    except (LaunchError, TraceError, KeyboardInterrupt) as error:
        attempt.fail(error)
        return None


def _run_record(
    scenario: Scenario, subject: Subject, collector: Collector, started: _Started, attempt: _Attempt, *, has_trace: bool
) -> RunRecord:
    ready = attempt.ready
    return RunRecord(
        id=started.run_id,
        started_at=started.at.isoformat(timespec="milliseconds"),
        scenario=scenario.name,
        scenario_hash=scenario.hash,
        scenario_document=scenario.document(),
        subject=subject.name,
        revision=subject.revision,
        dirty=subject.dirty,
        collector=collector.name,
        device=ready.device if ready else None,
        ranks=scenario.run.ranks,
        status="completed" if attempt.reason is None else "failed",
        reason=attempt.reason,
        harness_version=harness.__version__,
        load_average=started.load_average,
        trace=f"traces/{started.run_id}.sqlite" if has_trace else None,
        logs=f"logs/{started.run_id}",
        engine_versions={**subject.versions(), **{k: v for k, v in ready.versions.items() if v}} if ready else {},
        engine=ready.engine_description if ready else {},
    )


def _without_end(log_tail: Sequence[str], reason: str) -> tuple[str, ...]:
    """Leave out the last lines of a log that the reason repeats: a traceback ends with its exception."""
    lines = list(log_tail)
    while lines and " ".join(lines[-1].split()) in reason:
        lines.pop()
    return tuple(lines)


def _remove(logs: Path, reports: Path) -> None:
    """Remove a refused launch's folder, and those above it that were made for it."""
    shutil.rmtree(logs, ignore_errors=True)
    for folder in (logs.parent, reports):
        with suppress(OSError):  # not empty: it holds other results
            folder.rmdir()
