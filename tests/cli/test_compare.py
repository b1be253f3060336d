"""Duels of real launches: torch, torchrun, gloo and the recorder. Two starts each, so they are few."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from contextlib import ExitStack
from pathlib import Path

import pytest
from child_process import asleep

from harness.launch import Launch, LaunchRequest
from harness.worker.plan import Plan

ROOT = Path(__file__).resolve().parents[2]

pytestmark = pytest.mark.slow

ENGINE = """
import time
import torch
import torch.distributed as dist

class Engine:
    def __init__(self, spin_ms):
        self.spin_ms = spin_ms
        self.weight = torch.ones(4, requires_grad=True)

    def batch(self, step):
        return torch.full((4,), float(step))

    def forward_backward(self, batch):
        loss = (self.weight * batch).sum()
        loss.backward()
        dist.all_reduce(self.weight.grad)
        return loss

    def optimizer_step(self):
        until = time.perf_counter() + self.spin_ms / 1000
        while time.perf_counter() < until:
            pass

def build(spin_ms: float = 20.0):
    return Engine(spin_ms)
"""


@pytest.fixture
def engine_root(tmp_path: Path) -> Path:
    root = tmp_path / "repo"
    root.mkdir()
    (root / "spinning.py").write_text(ENGINE)
    return root


def test_two_ranks_a_side_with_a_slower_head(tmp_path: Path, engine_root: Path) -> None:
    scenario = tmp_path / "spinning.toml"
    run = 'description = "spins"\n[run]\nranks = 2\nwarmup_steps = 1\n'
    scenario.write_text(f'{run}[engine]\nfactory = "spinning:build"\nspin_ms = 20\n')
    command = [sys.executable, "-m", "harness.cli", "compare", str(scenario), "--repo", str(engine_root)]
    command += [".", ".", "--head-set", "engine.spin_ms=40", "--pairs", "2", "--steps", "6", "--json"]
    done = subprocess.run([*command, "--reports", str(tmp_path / "r")], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode in (0, 3), done.stderr
    found = json.loads(done.stdout)
    assert found["verdict"]["ratio"] > 1.2  # twice the spinning, on a machine that may be busy with other things
    assert found["same_work"]["within_tolerance"]
    assert found["same_work"]["steps_compared"] >= 2 * 7
    assert found["duel"]["ranks"] == 2
    slower = max(found["ranges"], key=lambda part: part["delta_ns"])
    assert slower["path"] == "step/optimizer_step"
    deltas = sum(part["delta_ns"] for part in found["ranges"])
    assert deltas == pytest.approx(found["head"]["step_ns"] - found["base"]["step_ns"], abs=1e-6)
    assert found["base"]["versions"]["torch"]
    assert all(pair["start_ns"] > 0 and pair["conditions"]["load_average"] >= 0 for pair in found["pairs"])


def test_the_side_whose_turn_it_is_not_uses_no_processor(tmp_path: Path, engine_root: Path) -> None:
    with ExitStack() as stack:
        launches = [
            stack.enter_context(
                Launch(
                    LaunchRequest(
                        plan=Plan(
                            launch_dir=tmp_path / side,
                            engine_root=engine_root,
                            factory="spinning:build",
                            engine={"spin_ms": 100.0},
                            steps=20,
                            rank_side="harness.collectors.recorder",
                        ),
                        ranks=2,
                    )
                )
            )
            for side in ("base", "head")
        ]
        head_pids = [launch.wait_ready().pids for launch in launches][1]
        for launch in launches:
            launch.step()
        for _ in range(10):
            launches[0].request_step()
            while not asleep(head_pids):  # what its last step left to do ends; a rank that spins fails by timeout
                time.sleep(0.001)
            launches[0].await_step()
