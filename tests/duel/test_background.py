"""Duels of real loops whose sides differ in what they do in the background: that must not come free."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from duel_bench import git

from harness.cli.__main__ import run

SCENARIO = """
description = "a loop with something in the background"

[run]
warmup_steps = 2
timeout_s = 60

[engine]
factory = "loader_engine:build"
"""


def compared(tmp_path: Path, capsys: pytest.CaptureFixture[str], *overrides: str) -> dict[str, Any]:
    """Duel the loop against itself under other settings, and return the document."""
    repo = tmp_path / "repo"
    repo.mkdir()
    shutil.copy(Path(__file__).with_name("loader_engine.py"), repo)
    git(repo, "init", "-q", "-b", "main")
    git(repo, "add", ".")
    git(repo, "commit", "-q", "-m", "engine: a loader")
    scenario = tmp_path / "loader.toml"
    scenario.write_text(SCENARIO)
    own = ["--repo", str(repo), "--reports", str(tmp_path / "reports"), "--seed", "7", "--steps", "20", "--json"]
    assert run(["compare", str(scenario), ".", ".", *own, *overrides]) == 0
    found: dict[str, Any] = json.loads(capsys.readouterr().out)
    return found


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_a_loop_that_waits_for_its_loader_is_slower(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Items of 200 ms by four workers for steps of 20 ms: 2.1 to 2.3 times as slow in launches that step alone."""
    found = compared(tmp_path, capsys, "--head-set", "engine.item_ms=200")
    assert found["verdict"]["state"] == "slower"
    assert 1.6 < found["verdict"]["ratio"] < 2.5
    assert found["turn_steps"] == 17
    turns = [pair["turn_steps"] for pair in found["pairs"]]
    assert turns[0] == 1
    assert turns == sorted(turns)
    assert found["ranges"][0]["path"] == "step/train_batch"


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_a_loop_whose_loader_computes_is_slower(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Two cores make 80 ms of work a step instead of 25: twice as slow in launches that step alone."""
    computes = ("--set", "engine.work=compute")
    found = compared(tmp_path, capsys, *computes, "--head-set", "engine.item_ms=60")
    assert found["verdict"]["state"] == "slower"
    assert 1.4 < found["verdict"]["ratio"] < 2.5
    assert found["cores"] is None, "bound to one core, each step would wait for its own workers"
    assert found["ranges"][0]["path"] == "step/train_batch"


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_a_thread_that_burns_a_core_is_slower(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Two threads of Python share one interpreter lock: a step that computes gets half of it."""
    computes = ("--set", "engine.work=compute", "--set", "engine.workers=0")
    found = compared(tmp_path, capsys, *computes, "--head-set", "engine.burning=true")
    assert found["verdict"]["state"] == "slower"
    assert 1.6 < found["verdict"]["ratio"] < 2.5
    assert found["ranges"][0]["path"] == "step/train_batch"
