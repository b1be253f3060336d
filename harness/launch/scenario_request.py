"""What to start for one launch of a scenario, the same for a bench and for either side of a duel."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

from harness.collectors.base import Collector
from harness.launch.request import LaunchRequest
from harness.scenario import Scenario
from harness.subject import Subject
from harness.worker.plan import Plan, ProbeSpec


@dataclass(frozen=True, kw_only=True)
class Pace:
    """Steps of a launch: `warmup_steps` are discarded, then `steps` are measured."""

    warmup_steps: int
    steps: int


def scenario_request(
    scenario: Scenario,
    subject: Subject,
    collector: Collector,
    pace: Pace,
    launch_dir: Path,
    env: Mapping[str, str] | None = None,
) -> LaunchRequest:
    """Return the launch of `scenario` on `subject`, its files going to `launch_dir`. It captures the measured steps."""
    run, able, home = scenario.run, collector.abilities, subject.home
    plan = Plan(
        factory=scenario.factory,
        engine=scenario.engine,
        engine_root=subject.engine_root,
        measured_root=subject.measured_root,
        side_root=home.root if home else None,
        working_tree=home.top if home else None,
        mode=run.mode,
        seed=run.seed,
        time_batch=run.time_batch,
        warmup_steps=pace.warmup_steps,
        steps=pace.steps,
        capture=(pace.warmup_steps, pace.warmup_steps + pace.steps - 1),
        probes=tuple(ProbeSpec(**asdict(probe)) for probe in scenario.probes),
        rank_side=able.rank_side,
        settle_s=able.settle_s,
        ends_in_order=able.ends_in_order,
        launch_dir=launch_dir,
        start_timeout_s=run.start_timeout_s,
        timeout_s=run.timeout_s,
    )
    return LaunchRequest(
        plan=plan,
        ranks=run.ranks,
        python=subject.python,
        env={**(env or {}), **(home.env if home else {})},
        cwd=home.cwd if home else None,
        wrap=collector.wrap,
        exit_timeout_s=collector.finish_timeout_s,
    )
