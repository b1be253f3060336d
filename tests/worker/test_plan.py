"""The plan: every key is checked, and NVIDIA's form of a list of functions is understood."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from harness.errors import UsageError
from harness.launch import LaunchRequest
from harness.worker.plan import Plan, ProbeSpec, parse_plan, parse_probes


def document(**changes: Any) -> dict[str, Any]:
    plan: dict[str, Any] = {
        "plan": 1,
        "engine_root": None,
        "measured_root": None,
        "factory": "module:build",
        "engine": {"layers": 2},
        "mode": "train",
        "seed": 0,
        "warmup_steps": 2,
        "steps": 10,
        "capture": None,
        "probes": [],
        "collector": "recorder",
        "launch_dir": "/tmp/launch",
        "control_socket": "/tmp/launch/control",
        "start_timeout_s": 120,
        "timeout_s": 1.5,
    }
    return plan | changes


def test_what_a_launch_writes_is_what_the_worker_reads(tmp_path: Path) -> None:
    request = LaunchRequest(
        launch_dir=tmp_path,
        engine_root=tmp_path,
        measured_root=tmp_path.parent,
        factory="a.b:c",
        engine={"x": [1, 2], "y": {"z": True}},
        mode="eval",
        seed=3,
        warmup_steps=1,
        steps=4,
        capture=(1, 4),
        probes=[{"name": "n", "target": "a.n", "result": "moved_bytes"}],
        collector="none",
        start_timeout_s=5,
        timeout_s=0.5,
    )
    plan = Plan.read(request.write_plan(tmp_path / "control"))
    assert plan == Plan(
        engine_root=tmp_path,
        measured_root=tmp_path.parent,
        factory="a.b:c",
        engine={"x": [1, 2], "y": {"z": True}},
        mode="eval",
        seed=3,
        warmup_steps=1,
        steps=4,
        capture=(1, 4),
        probes=(ProbeSpec(name="n", target="a.n", result="moved_bytes"),),
        collector="none",
        launch_dir=tmp_path,
        control_socket=tmp_path / "control",
        start_timeout_s=5.0,
        timeout_s=0.5,
    )


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"factry": 1}, "unknown key 'factry'. Did you mean 'factory'?"),
        ({"plan": 2}, "plan is 2"),
        ({"mode": "predict"}, "allowed: one of train, eval"),
        ({"collector": "perf"}, "allowed: one of recorder, kineto, nsys, none"),
        ({"steps": True}, "steps is True; expected int"),
        ({"engine": []}, "engine is []; expected dict"),
        ({"timeout_s": 0}, "allowed: above 0"),
        ({"capture": [3, 2]}, "[first, last] step"),
        ({"probes": ["gc.collect"]}, "expected an object"),
        ({"probes": [{"name": "x"}]}, "expected a name and a target"),
        ({"probes": [{"name": "x", "target": "y", "result": "bytes"}]}, "moved_bytes, collected_objects"),
    ],
)
def test_a_bad_plan_is_refused_by_its_key(changes: dict[str, Any], said: str) -> None:
    with pytest.raises(UsageError) as caught:
        parse_plan(document(**changes))
    assert said in str(caught.value)


def test_a_missing_key_and_a_broken_file_are_refused(tmp_path: Path) -> None:
    broken = document()
    del broken["factory"]
    with pytest.raises(UsageError, match="key 'factory' is missing"):
        parse_plan(broken)
    (tmp_path / "plan.json").write_text("{")
    with pytest.raises(UsageError, match="no plan"):
        Plan.read(tmp_path / "plan.json")


def test_nvidias_form_gives_one_probe_a_function() -> None:
    entries = json.loads("""
        [{"_comment": "as in nsys' PythonFunctionsTrace folder", "domain": "PyTorch", "color": "E8B795",
          "module": "torch.amp", "functions": ["GradScaler.scale", {"function": "GradScaler.step", "color": "black"}]}]
    """)
    assert parse_probes(entries) == (
        ProbeSpec(name="torch.amp.GradScaler.scale", target="torch.amp.GradScaler.scale"),
        ProbeSpec(name="torch.amp.GradScaler.step", target="torch.amp.GradScaler.step"),
    )
    with pytest.raises(UsageError, match="a module and a list of functions"):
        parse_probes([{"functions": ["a"]}])
    with pytest.raises(UsageError, match="function 3 of module m"):
        parse_probes([{"module": "m", "functions": [3]}])
