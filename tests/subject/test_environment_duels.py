"""Commits that change a dependency, whole: real launches, each side in the environment of its own lock."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from repositories import commit, git, isolate, write
from wheels import build_loans, build_wheel, only_index

from harness.subject.installing import find_uv

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]

ROOT = Path(__file__).resolve().parents[2]
LIBRARY = """
import time

VERSION = {version!r}

def move():
    until = time.perf_counter() + {spin_s}
    while time.perf_counter() < until:
        pass
"""
ENGINE = """
import types

import library
import torch

def build():
    def train_batch(batch):
        library.move()
        return batch.sum()

    return types.SimpleNamespace(
        description={"library": library.VERSION},
        batch=lambda step: torch.full((4,), float(step)),
        train_batch=train_batch,
    )
"""
SCENARIO = """
description = "uses a library"
[run]
warmup_steps = 1
[engine]
factory = "trainer:build"
[subject]
environment = "lock"
"""


@pytest.fixture
def repo(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    isolate(monkeypatch, tmp_path)
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    index = only_index(monkeypatch, tmp_path / "index")
    build_loans(index)
    for version, spin_s in (("1.0", 0.02), ("2.0", 0.04)):
        build_wheel(index, "library", version, {"library.py": LIBRARY.format(version=version, spin_s=spin_s)})
    monkeypatch.setenv("UV_CONFIG_FILE", str(write(tmp_path / "uv.toml", f'no-index = true\nfind-links = ["{index}"]')))
    monkeypatch.setenv("UV_CACHE_DIR", str(tmp_path / "uv"))
    write(tmp_path / "toy.toml", SCENARIO)
    repo = tmp_path / "repo"
    repo.mkdir()
    git(repo, "init", "--quiet")
    for version in ("1.0", "2.0"):
        commit(repo, version, **{"trainer.py": ENGINE, "requirements.txt": f"torch\nnvtx\nlibrary=={version}\n"})
        git(repo, "tag", f"v{version}")
    return repo


def stepduel(repo: Path, *arguments: str, code: int | None = 0, json_wanted: bool = True) -> Any:
    more = ["--json"] if json_wanted else []
    command = [sys.executable, "-m", "harness.cli", *arguments, *more, "--reports", "../r"]
    done = subprocess.run(command, cwd=repo, capture_output=True, text=True, check=False)
    assert done.returncode == code or (code is None and done.stdout), done.stderr
    return json.loads(done.stdout) if json_wanted else done.stdout


def test_a_bump_of_a_dependency_is_measured_and_named(repo: Path) -> None:
    wanted = ("compare", "../toy.toml", "v1.0", "v2.0", "--pairs", "2", "--steps", "6")
    found = stepduel(repo, *wanted, code=None)
    assert found["verdict"]["ratio"] > 1.2, found["verdict"]
    told = [found["pairs"][0][f"{side}_launch"]["engine"]["library"] for side in ("base", "head")]
    assert told == ["1.0", "2.0"]
    assert found["environment_changes"] == [{"name": "library", "base": "1.0", "head": "2.0"}]
    shown = stepduel(repo, "report", found["duel"]["id"], code=None, json_wanted=False)
    assert "environments differ: library 1.0 → 2.0" in shown


def test_bench_runs_in_the_lock_s_environment(repo: Path) -> None:
    assert stepduel(repo, "bench", "../toy.toml", "v1.0", "--steps", "2")["run"]["engine"]["library"] == "1.0"


def test_an_interpreter_a_side_is_the_same_without_a_lock(repo: Path, tmp_path: Path) -> None:
    pythons = []
    for version in ("1.0", "2.0"):
        folder = tmp_path / version
        subprocess.run([find_uv(), "venv", "--quiet", "--python", sys.executable, folder], check=True)
        install = [
            find_uv(),
            "pip",
            "install",
            "--quiet",
            "--python",
            str(folder),
            "torch",
            "nvtx",
            f"library=={version}",
        ]
        subprocess.run(install, check=True)
        pythons.append(str(folder / "bin/python"))
    found = stepduel(
        repo, "compare", "../toy.toml", "v2.0", "v2.0", "--base-python", pythons[0], "--head-python", pythons[1],
        "--pairs", "2", "--steps", "6", code=None,
    )  # fmt: skip
    assert found["verdict"]["ratio"] > 1.2, found["verdict"]
    assert found["environment_changes"] == [{"name": "library", "base": "1.0", "head": "2.0"}]
