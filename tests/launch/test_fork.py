"""A forked rank is what torchrun's rank is, as far as an engine can tell, and its children are as well."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from harness.launch import Launch, LaunchFailedError, LaunchRequest, Ready, request
from harness.worker.plan import Plan

ENGINE = """
import gc, multiprocessing, os, random, signal, subprocess, sys, threading

AT_IMPORT = {
    "modules": sorted(sys.modules), "gc_counts": gc.get_count()[1:], "gc_thresholds": gc.get_threshold(),
    "gc_frozen": gc.get_freeze_count(), "gc_enabled": gc.isenabled(),
}

import numpy, torch
from torch.utils.data import DataLoader


class Engine:
    def __init__(self, workers=0, start=None):
        loader = DataLoader(range(4), num_workers=workers, multiprocessing_context=start)
        self.description = {
            **AT_IMPORT, "argv": sys.argv, "path": sys.path, "cwd": os.getcwd(),
            "main": sys.modules["__main__"].__file__,
            "flags": str(sys.flags), "start_method": multiprocessing.get_start_method(allow_none=True),
            "signals": {n.name: str(signal.getsignal(n)) for n in signal.valid_signals() if hasattr(n, "name")},
            "blocked": sorted(signal.pthread_sigmask(signal.SIG_BLOCK, [])),
            "threads": sorted(t.name for t in threading.enumerate()), "os_threads": len(os.listdir("/proc/self/task")),
            "leads_session": os.getsid(0) == os.getpid(), "stdin": os.readlink("/proc/self/fd/0"),
            "torch_threads": torch.get_num_threads(), "drawn": [random.random(), float(torch.rand(()))],
            "numpy_seeded": [int(n) for n in numpy.random.get_state()[1][:1]] == [0],
            "environment": dict(os.environ), "loaded": [int(n) for batch in loader for n in batch],
            "child_is_marked": "STEPDUEL_LAUNCH" in subprocess.check_output(["env"], text=True),
        }

    def batch(self, step):
        return torch.ones(2, requires_grad=True)

    def forward_backward(self, batch):
        return batch.sum()

    def optimizer_step(self):
        pass


def build(workers=0, start="fork"):
    return Engine(workers, start if workers else None)
"""

OWN = {"MASTER_PORT", "STEPDUEL_LAUNCH", "_"} | {
    f"TORCHELASTIC_{name}" for name in ("RUN_ID", "ERROR_FILE", "SIGNALS_TO_HANDLE")
}
"""Variables that differ from launch to launch, or that only `torch.distributed.elastic` reads."""


def launched(
    root: Path, name: str, engine: Mapping[str, Any], *, torchrun: bool, ranks: int
) -> tuple[Ready, list[str]]:
    (root / "asked.py").write_text(ENGINE)
    plan = Plan(launch_dir=root / name, engine_root=root, factory="asked:build", engine=engine)
    # Anything around the launch, such as nsys, gets torchrun.
    around = (lambda argv, env, _: (["env", *argv], env)) if torchrun else None
    with Launch(LaunchRequest(plan=plan, ranks=ranks, wrap=around)) as launch:
        ready = launch.wait_ready()
        launch.step()
        assert launch.stop().clean_exit
    return ready, launch.command


@pytest.mark.slow
def test_an_engine_cannot_tell_a_forked_rank_from_torchruns(tmp_path: Path) -> None:
    seen = {}
    for name, torchrun in (("torchrun", True), ("fork", False)):
        ready, command = launched(tmp_path, name, {}, torchrun=torchrun, ranks=2)
        assert ("torch.distributed.run" in command) == torchrun
        seen[name] = dict(ready.engine_description)
    told, forked = seen["torchrun"], seen["fork"]
    environments = [seen[name].pop("environment") for name in ("torchrun", "fork")]
    assert {key: value for key, value in environments[0].items() if key not in OWN} == {
        key: value for key, value in environments[1].items() if key not in OWN
    }
    more = set(forked.pop("modules")) ^ set(told.pop("modules"))
    assert more == {"harness.worker.fork"}
    plans = [seen[name].pop("argv") for name in ("torchrun", "fork")]
    assert [Path(plan).parent.name for _, plan in plans] == ["torchrun", "fork"]
    assert plans[0][0] == plans[1][0]
    assert json.dumps(told, indent=1) == json.dumps(forked, indent=1)


@pytest.mark.slow
@pytest.mark.parametrize("start", ["fork", "spawn", "forkserver"])
def test_a_forked_rank_has_loader_workers(start: str, tmp_path: Path) -> None:
    ready, _ = launched(tmp_path, "launch", {"workers": 2, "start": start}, torchrun=False, ranks=1)
    assert ready.engine_description["loaded"] == [0, 1, 2, 3]


def test_torchrun_starts_what_may_use_a_gpu(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    driver = tmp_path / "driver"
    monkeypatch.setattr(request, "_GPU_DRIVERS", (str(driver),))

    def starts(engine: dict[str, Any]) -> str:
        plan = Plan(launch_dir=tmp_path, factory="asked:build", engine=engine)
        command, _ = LaunchRequest(plan=plan).command(tmp_path / "plan.json")
        return "torchrun" if "torch.distributed.run" in command else "fork"

    assert starts({}) == "fork"
    driver.touch()
    assert (starts({}), starts({"device": "cuda"}), starts({"device": "cpu"})) == ("torchrun", "torchrun", "fork")


@pytest.mark.slow
def test_torchrun_says_who_failed_as_the_parent_of_forked_ranks_does(tmp_path: Path) -> None:
    root = Path(__file__).parent / "engine_root"
    told = []
    for name, wrap in (("torchrun", lambda argv, env, _: (["env", *argv], env)), ("fork", None)):
        engine = {"fault": "kill", "on_rank": 1, "at_step": 0}
        plan = Plan(launch_dir=tmp_path / name, engine_root=root, factory="toy_engine:build", engine=engine)
        with Launch(LaunchRequest(plan=plan, ranks=2, wrap=wrap)) as launch:
            launch.wait_ready()
            with pytest.raises(LaunchFailedError) as caught:
                launch.step()
        told.append((caught.value.reason, caught.value.rank, str(caught.value).partition(" (log")[0]))
    assert told[0] == told[1] == ("rank_died", 1, told[0][2])
