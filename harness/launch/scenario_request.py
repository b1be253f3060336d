"""What to start for one launch of a scenario, the same for a bench and for either side of a duel."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path

from harness.launch.request import LaunchRequest
from harness.scenario import Scenario
from harness.subject import Subject


def scenario_request(
    scenario: Scenario,
    subject: Subject,
    *,
    launch_dir: Path,
    collector: str,
    exit_timeout_s: float,
    warmup_steps: int | None = None,
    steps: int | None = None,
    env: Mapping[str, str] | None = None,
) -> LaunchRequest:
    """Return the launch of `scenario` on `subject`, its files going to `launch_dir`.

    `warmup_steps` and `steps` replace the scenario's own. `exit_timeout_s` is how long the collector may take to write
    its report. The capture spans the measured steps.
    """
    run = scenario.run
    warmup = run.warmup_steps if warmup_steps is None else warmup_steps
    measured = run.steps if steps is None else steps
    return LaunchRequest(
        launch_dir=launch_dir,
        factory=scenario.factory,
        engine=scenario.engine,
        engine_root=subject.engine_root,
        measured_root=subject.measured_root,
        python=subject.python,
        ranks=run.ranks,
        mode=run.mode,
        seed=run.seed,
        warmup_steps=warmup,
        steps=measured,
        capture=(warmup, warmup + measured - 1),
        probes=[asdict(probe) for probe in scenario.probes],
        collector=collector,
        env=env or {},
        start_timeout_s=run.start_timeout_s,
        timeout_s=run.timeout_s,
        exit_timeout_s=exit_timeout_s,
    )
