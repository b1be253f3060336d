"""Releases and checkouts of a library, whole: real launches in an environment made for them, from a local index."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from wheels import build_loans, build_wheel, only_index

from harness.store import Duels, Store

pytestmark = pytest.mark.slow

ROOT = Path(__file__).resolve().parents[2]

LIBRARY = """
import time

SPIN_S = {spin_s}

def move():
    until = time.perf_counter() + SPIN_S
    while time.perf_counter() < until:
        pass
"""

ADAPTER = """
import types

import torch
from toylibrary import work

def build():
    weight = torch.ones(4, requires_grad=True)

    def train_batch(batch):
        work.move()
        return (weight * batch).sum()

    return types.SimpleNamespace(batch=lambda step: torch.full((4,), float(step)), train_batch=train_batch)
"""

SCENARIO = """
description = "a library of two speeds"
[run]
warmup_steps = 1
[engine]
factory = "adapter:build"
[subject]
package = "toylibrary"
requirements = ["torch==2.13.0", "nvtx==0.2.17"]
[probes]
move = "toylibrary.work.move"
"""


@pytest.fixture
def folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    index = only_index(monkeypatch, tmp_path / "index")
    build_loans(index)
    for version, spin_s in (("1.0", 0.02), ("2.0", 0.04)):
        requires = ["nvtx<1"] if version == "1.0" else ["nvtx>=1"]
        files = {"toylibrary/__init__.py": "", "toylibrary/work.py": LIBRARY.format(spin_s=spin_s)}
        build_wheel(index, "toylibrary", version, files, requires=requires)
    (tmp_path / "adapter.py").write_text(ADAPTER)
    (tmp_path / "toy.toml").write_text(SCENARIO)
    return tmp_path


def stepduel(folder: Path, name: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "harness.cli", name, "toy.toml", *arguments, "--json"]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)


def test_two_releases_in_one_environment(folder: Path) -> None:
    sides = ("release:toylibrary==1.0", "release:toylibrary==2.0")
    refused = stepduel(folder, "compare", *sides)
    assert refused.returncode == 2
    assert "toylibrary==2.0 contradicts" in refused.stderr
    assert "nvtx 0.2.17 (asks for >=1)" in refused.stderr
    done = stepduel(folder, "compare", *sides, "--allow-mismatch", "--pairs", "2", "--steps", "6", "--reports", "r")
    assert done.returncode in (0, 3), done.stderr
    assert "warning: release:toylibrary==2.0 runs with nvtx 0.2.17" in done.stderr
    found = json.loads(done.stdout)
    assert found["verdict"]["ratio"] > 1.2  # twice the spinning, on a machine that may be busy with other things
    assert found["same_work"]["within_tolerance"]
    assert max(found["ranges"], key=lambda part: part["delta_ns"])["path"] == "step/train_batch/move"
    assert (found["base"]["versions"]["toylibrary"], found["head"]["versions"]["toylibrary"]) == ("1.0", "2.0")
    with Store(folder / "r/results.db") as store:
        duel = Duels(store).duel(found["duel"]["id"])
    assert duel.head["mismatches"] == ["nvtx 0.2.17 (asks for >=1)"]
    assert duel.base["environment"] == duel.head["environment"]
    assert duel.base["identity"] != duel.head["identity"]


def test_a_checkout_of_the_library_runs_there_too(folder: Path) -> None:
    package = folder / "checkout/src/toylibrary"
    package.mkdir(parents=True)
    (package / "work.py").write_text(LIBRARY.format(spin_s=0.04))
    done = stepduel(folder, "bench", ".", "--repo", "checkout", "--steps", "2", "--collector", "recorder")
    assert done.returncode == 0, done.stderr
    assert "step/train_batch/move" in {item["path"] for item in json.loads(done.stdout)["ranges"]}
