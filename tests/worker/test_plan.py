"""The plan: every key is checked, and NVIDIA's form of a list of functions is understood."""

from __future__ import annotations

import json
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import pytest

from harness.errors import UsageError
from harness.launch import LaunchRequest
from harness.worker.plan import Plan, ProbeSpec, parse_plan, parse_probes


def document(**changes: Any) -> dict[str, Any]:
    plan: dict[str, Any] = {
        "plan": 4,
        "engine_root": None,
        "measured_root": None,
        "side_root": None,
        "working_tree": None,
        "factory": "module:build",
        "engine": {"layers": 2},
        "mode": "train",
        "seed": 0,
        "time_batch": True,
        "warmup_steps": 2,
        "steps": 10,
        "capture": None,
        "probes": [],
        "rank_side": "harness.collectors.recorder",
        "settle_s": 0,
        "ends_in_order": False,
        "launch_dir": "/tmp/launch",
        "control_socket": "/tmp/launch/control",
        "start_timeout_s": 120,
        "timeout_s": 1.5,
    }
    return plan | changes


def test_what_a_launch_writes_is_what_the_worker_reads(tmp_path: Path) -> None:
    plan = Plan(
        engine_root=tmp_path,
        measured_root=tmp_path.parent,
        side_root=tmp_path,
        working_tree=tmp_path,
        factory="a.b:c",
        engine={"x": [1, 2], "y": {"z": True}},
        mode="eval",
        seed=3,
        time_batch=False,
        warmup_steps=1,
        steps=4,
        capture=(1, 4),
        probes=(ProbeSpec(name="n", target="a.n", result="moved_bytes"),),
        rank_side="harness.collectors.kineto",
        settle_s=0.25,
        ends_in_order=True,
        launch_dir=tmp_path,
        start_timeout_s=5.0,
        timeout_s=0.5,
    )
    defaults = Plan(factory="d", launch_dir=Path())
    given = [item.name for item in fields(Plan) if item.name != "control_socket"]
    assert all(getattr(plan, name) != getattr(defaults, name) for name in given)
    written = LaunchRequest(plan=plan).write_plan(tmp_path / "control")
    assert Plan.read(written) == replace(plan, control_socket=tmp_path / "control")


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"factry": 1}, "unknown key 'factry'. Did you mean 'factory'?"),
        ({"plan": 1}, "plan is 1; allowed: 4, from the same Stepduel"),
        ({"mode": "predict"}, "allowed: one of train, eval"),
        ({"rank_side": "perf"}, "allowed: null or a module of harness.collectors"),
        ({"ends_in_order": 1}, "ends_in_order is 1; expected bool"),
        ({"engine_root": 1}, "engine_root is 1; expected str or null"),
        ({"settle_s": "0.5"}, "settle_s is '0.5'; expected int or float"),
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
