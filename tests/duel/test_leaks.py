"""Duels of a real loop whose head keeps memory, or takes longer, step by step: said, and where."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from duel_bench import git

from harness.cli.__main__ import run

SCENARIO = """
description = "a loop that keeps what it should not"

[run]
warmup_steps = 2
timeout_s = 60

[engine]
factory = "leaking_engine:build"
"""

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]


def duel(tmp_path: Path, capsys: pytest.CaptureFixture[str], *more: str) -> dict[str, Any]:
    repo = tmp_path / "repo"
    repo.mkdir()
    shutil.copy(Path(__file__).with_name("leaking_engine.py"), repo)
    git(repo, "init", "-q", "-b", "main")
    git(repo, "add", ".")
    git(repo, "commit", "-q", "-m", "engine: a leak")
    scenario = tmp_path / "leak.toml"
    scenario.write_text(SCENARIO)
    own = ["--repo", str(repo), "--reports", str(tmp_path / "reports"), "--seed", "7", "--pairs", "3", "--json"]
    run(["compare", str(scenario), ".", ".", *own, *more])
    found: dict[str, Any] = json.loads(capsys.readouterr().out)
    return {**found, **{figure["name"]: figure for figure in found["launch_figures"]}}


def test_the_range_that_keeps_memory_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    found = duel(tmp_path, capsys, "--steps", "30", "--head-set", "engine.keep_bytes=300000")
    leak = found["allocated_bytes_per_step"]
    assert leak["grows"]
    assert leak["low"] - 100 < 3e5 < leak["high"] + 100
    assert leak["where"]["path"] == "step/optimizer_step"
    assert leak["where"]["low"] <= leak["where"]["delta"] == pytest.approx(3e5, rel=0.01)
    assert not found["children_bytes_per_step"]["grows"]
    run(["report", "--reports", str(tmp_path / "reports")])
    assert "most of it in optimizer_step: 3" in " ".join(capsys.readouterr().out.split())


def test_a_loader_worker_that_keeps_memory_is_told_as_a_child(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    loader = ("--base-set", "engine.loader_keeps_bytes=1", "--head-set", "engine.loader_keeps_bytes=2000000")
    found = duel(tmp_path, capsys, "--steps", "30", *loader)
    assert found["children_bytes_per_step"]["delta"] == pytest.approx(2e6, rel=0.1)
    assert found["children_bytes_per_step"]["grows"]
    assert not found["allocated_bytes_per_step"]["grows"]


def test_a_step_that_gets_slower_is_said_in_the_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """1 % of the step a step, which is 30 % by the last one."""
    found = duel(tmp_path, capsys, "--steps", "30", "--set", "engine.step_ms=50", "--head-set", "engine.slower_us=500")
    slowing = found["verdict"]["slowing"]
    assert slowing["ci_ns"][0] < 5e5 < slowing["ci_ns"][1]
    assert "gets slower by" in found["verdict"]["line"]
    assert "by step 10,000" in found["verdict"]["line"]
