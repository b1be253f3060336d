"""What training scripts do of their own accord: signals, process groups, ports, generators, names that change."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from duel_bench import git

from harness.subject.missing import rename_hint

ROOT = Path(__file__).resolve().parents[2]

LOOP = """
import os, random, signal, socket, time, types
import numpy, torch
import torch.distributed as dist

def requeue(*_):
    open(os.environ["REQUEUED"], "w").close()

def build(width=8, fault="", seed=0):
    held = []
    if fault == "group":
        dist.init_process_group("gloo")
    if fault == "port":
        held.append(socket.socket())
        held[0].bind(("127.0.0.1", int(os.environ["FIXED_PORT"])))
        held[0].listen()
    for number in (signal.SIGUSR1, signal.SIGUSR2, signal.SIGTERM, signal.SIGHUP):
        if fault == "hang":
            signal.signal(number, requeue)
    weight = torch.ones(width, requires_grad=True)

    def forward_backward(batch):
        if fault == "hang":
            linger_here()
        drawn = {"seeded": lambda: numpy.random.rand() + random.random(),
                 "unseeded": lambda: numpy.random.default_rng().random()}.get(fault, lambda: 1.0)()
        loss = (weight * batch).sum() * float(drawn)
        loss.backward()
        return loss.detach()

    return types.SimpleNamespace(
        held=held, batch=lambda step: torch.ones(width), forward_backward=forward_backward, optimizer_step=lambda: None
    )

def linger_here():
    time.sleep(100)
"""
SCENARIO = """
description = "a guest"
[run]
warmup_steps = 1
steps = 4
timeout_s = 2
[engine]
factory = "loop:build"
width = 8
"""


@pytest.fixture
def repo(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """Two commits; the second one renames the factory and its key."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    monkeypatch.setenv("REQUEUED", str(tmp_path / "requeued"))
    folder = tmp_path / "repo"
    folder.mkdir()
    git(folder, "init", "-q", "-b", "main")
    for tag, loop in (("base", LOOP), ("head", LOOP.replace("build(width", "make(hidden").replace("width", "hidden"))):
        (folder / "loop.py").write_text(loop)
        git(folder, "add", ".")
        git(folder, "commit", "-q", "-m", tag)
        git(folder, "tag", tag)
    (tmp_path / "loop.toml").write_text(SCENARIO)
    return folder


def stepduel(repo: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "harness.cli", *arguments, "--reports", "../r"]
    return subprocess.run(command, cwd=repo, capture_output=True, text=True, check=False)


@pytest.mark.slow
def test_a_hang_is_told_without_any_signal_that_the_guest_may_handle(repo: Path, tmp_path: Path) -> None:
    done = stepduel(repo, "bench", "../loop.toml", "base", "--set", "engine.fault=hang")
    assert done.returncode == 4, done.stderr
    assert "launch hung: no step within 2 s (rank 0 in step 0); its stack is in " in done.stdout
    assert "in linger_here" in done.stdout, "the file holds what the message promises"
    assert not (tmp_path / "requeued").exists()


@pytest.mark.slow
def test_a_second_process_group_is_explained(repo: Path) -> None:
    done = stepduel(repo, "bench", "../loop.toml", "base", "--set", "engine.fault=group")
    assert done.returncode == 4
    assert "the harness has made the process group: guard yours by `if not torch.distributed.is_init" in done.stdout


@pytest.mark.slow
def test_a_port_that_both_sides_bind_names_the_way_out(repo: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import socket

    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        monkeypatch.setenv("FIXED_PORT", str(free.getsockname()[1]))
    sides = ("base", "base", "--set", "engine.fault=port", "--pairs", "2", "--steps", "4")
    done = stepduel(repo, "compare", "../loop.toml", *sides)
    assert "Address already in use: another process has that port; where it is the other side" in done.stdout
    assert "--interleave blocks" in done.stdout
    done = stepduel(repo, "compare", "../loop.toml", *sides, "--interleave", "blocks", "--json")
    assert json.loads(done.stdout)["pairs"], done.stderr


@pytest.mark.slow
@pytest.mark.parametrize(("fault", "parts"), [("seeded", False), ("unseeded", True)])
def test_one_code_that_draws_numbers_is_itself_or_says_that_it_is_not(repo: Path, fault: str, parts: bool) -> None:
    short = ("--set", f"engine.fault={fault}", "--pairs", "2", "--steps", "4", "--json")
    found = json.loads(stepduel(repo, "aa", "../loop.toml", "base", *short).stdout)
    assert found["same_work"]["within_tolerance"] != parts
    if parts:
        assert found["verdict"]["reason"] == "different_work"
        assert "both sides are one code, so it parts from itself" in found["verdict"]["detail"]
        assert "run.seed does not seed" in found["verdict"]["detail"]


@pytest.mark.slow
def test_a_name_that_changed_can_be_given_to_one_side(repo: Path) -> None:
    head = ("--set", "engine.factory=loop:make", "--set", "engine.width=", "--set", "engine.hidden=8")
    short = ("compare", "../loop.toml", "base", "head", *head, "--pairs", "2", "--steps", "4")
    done = stepduel(repo, *short)
    assert done.returncode == 3
    assert "base cannot run the scenario: factory 'loop:make': loop has no 'make'; if base has" in done.stdout
    assert "--base-set engine.factory=loop:NAME" in done.stdout
    factory = ("--base-set", "engine.factory=loop:build")
    done = stepduel(repo, *short, *factory)
    assert "--base-set engine.hidden= leaves that out of base" in " ".join(done.stdout.split())
    done = stepduel(repo, *short, *factory, "--base-set", "engine.hidden=", "--base-set", "engine.width=8", "--json")
    found = json.loads(done.stdout)
    assert found["same_work"]["within_tolerance"], found["verdict"]


def test_hints_are_for_names_alone() -> None:
    assert rename_hint("factory 'a.b:c': importing a.b failed: ModuleNotFoundError", "head", "v2") == (
        "if v2 has another name for it: --head-set engine.factory=a.b:NAME"
    )
    assert rename_hint("engine.width is 'x' (str); expected int", "head", "v2") is None
