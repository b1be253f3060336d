"""Launches under the collectors: torchrun, the real worker and a small engine, with the stand-in for nsys around it."""

from __future__ import annotations

import os
import shlex
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest

from harness import names
from harness.collectors.kineto import Kineto
from harness.collectors.nsys import Nsys
from harness.errors import LaunchError
from harness.launch import Launch, LaunchFailedError, LaunchOutcome, LaunchRequest
from harness.launch.supervisor import marked_processes
from harness.trace.model import Trace
from harness.trace.reader import read_trace
from harness.worker.plan import Plan

pytestmark = pytest.mark.slow

ROOT = Path(__file__).resolve().parents[2]
WARMUP, STEPS = 1, 3
ENGINE = """
import time
import torch.distributed as dist

class Engine:
    def batch(self, step):
        return step
    def train_batch(self, batch):
        # Rank 1 is far behind: a capture that ended with rank 0's last step would cut rank 1's.
        time.sleep(0.01 + 0.2 * dist.get_rank())
        return 1.0 / (1 + batch)

def build_engine():
    return Engine()
"""


@pytest.fixture
def request_of(tmp_path: Path) -> LaunchRequest:
    engine_root = tmp_path / "subject"
    engine_root.mkdir()
    (engine_root / "small_engine.py").write_text(ENGINE)
    able = Nsys.abilities
    plan = Plan(
        launch_dir=tmp_path / "launch",
        factory="small_engine:build_engine",
        engine_root=engine_root,
        warmup_steps=WARMUP,
        steps=STEPS,
        capture=(WARMUP, WARMUP + STEPS - 1),
        rank_side=able.rank_side,
        settle_s=able.settle_s,
        ends_in_order=able.ends_in_order,
    )
    return LaunchRequest(plan=plan, ranks=2, env={"OMP_NUM_THREADS": "1"}, exit_timeout_s=60)


def nsys_env(tmp_path: Path, mode: str = "") -> dict[str, str]:
    """This process' environment with the stand-in as STEPDUEL_NSYS."""
    double = ROOT / "tests" / "doubles" / "nsys.py"
    program = tmp_path / "nsys"
    program.write_text(f'#!/bin/sh\nNSYS_DOUBLE={mode} exec {sys.executable} {shlex.quote(str(double))} "$@"\n')
    program.chmod(0o755)
    return {**os.environ, "STEPDUEL_NSYS": str(program)}


def run(launch: Launch) -> LaunchOutcome:
    with launch:
        launch.wait_ready()
        for _ in range(WARMUP + STEPS):
            launch.step()
        return launch.stop()


def steps_by_rank(trace: Trace) -> dict[int, int]:
    counts: dict[int, int] = {}
    ranks = trace.rank_of(trace.ranges.global_tid)
    for index in range(len(trace.ranges)):
        if trace.strings[trace.ranges.name_id[index]] == names.STEP and trace.ranges.closed[index]:
            counts[int(ranks[index])] = counts.get(int(ranks[index]), 0) + 1
    return counts


def test_nsys_collects_every_rank_from_the_first_measured_step_to_the_last(
    request_of: LaunchRequest, tmp_path: Path
) -> None:
    collector = Nsys(env=nsys_env(tmp_path))
    launch = Launch(replace(request_of, wrap=collector.wrap))
    outcome = run(launch)
    assert outcome.clean_exit
    assert launch.command[1] == "profile", "the exact command is kept with the launch"
    trace = read_trace(collector.collect(launch.launch_dir, 2, tmp_path / "run.sqlite"))
    assert steps_by_rank(trace) == {0: STEPS, 1: STEPS}
    captures = [i for i in range(len(trace.ranges)) if trace.strings[trace.ranges.name_id[i]] == names.CAPTURE]
    assert len(captures) == 1, "rank 0 alone opens it"


def test_an_nsys_that_dies_at_the_start_ends_the_launch_with_its_last_words(
    request_of: LaunchRequest, tmp_path: Path
) -> None:
    with (
        pytest.raises(LaunchFailedError, match="RuntimeException"),
        Launch(replace(request_of, wrap=Nsys(env=nsys_env(tmp_path, "crash_at_start")).wrap)) as launch,
    ):
        launch.wait_ready()


def test_an_nsys_that_hangs_at_exit_is_ended_and_never_passes(request_of: LaunchRequest, tmp_path: Path) -> None:
    collector = Nsys(env=nsys_env(tmp_path, "hang_at_exit"))
    launch = Launch(replace(request_of, ranks=1, exit_timeout_s=2, wrap=collector.wrap))
    started = time.monotonic()
    outcome = run(launch)
    assert not outcome.clean_exit
    assert outcome.exit_status is None
    assert time.monotonic() - started < 120
    with pytest.raises(LaunchError, match="nsys left no report"):
        collector.collect(launch.launch_dir, 1, tmp_path / "run.sqlite")
    assert not marked_processes(launch.launch_id), "no process is left"


def test_kineto_on_a_cpu_traces_the_ranges(request_of: LaunchRequest, tmp_path: Path) -> None:
    collector = Kineto(env={"CUDA_VISIBLE_DEVICES": ""})
    plan = replace(request_of.plan, rank_side=collector.abilities.rank_side, settle_s=0.0, ends_in_order=False)
    env = {**request_of.env, "CUDA_VISIBLE_DEVICES": ""}
    launch = Launch(replace(request_of, plan=plan, ranks=1, env=env, wrap=collector.wrap))
    assert run(launch).clean_exit
    trace = read_trace(collector.collect(launch.launch_dir, 1, tmp_path / "run.sqlite"))
    assert trace.info.collector == "kineto"
    assert steps_by_rank(trace) == {0: WARMUP + STEPS}
