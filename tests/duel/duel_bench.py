"""Where the tests of duels run: a repository with a toy engine and a scenario for it."""

from __future__ import annotations

import json
import os
import sqlite3
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import subject_python

from harness.cli.__main__ import run

SCENARIO = """
description = "a toy that only reports"

[run]
warmup_steps = 1
timeout_s = 5
start_timeout_s = 30

[engine]
factory = "toy:build"
step_ms = 100
"""

POLICY = """
[tool.stepduel.gate]
scenarios = ["toy"]
pairs = 4
steps = 10
max_slowdown = "5%"
"""
"""The gate's policy of a project that has the toy."""


@dataclass(frozen=True, kw_only=True)
class Bench:
    """Where a test's duels run."""

    folder: Path
    repo: Path
    python: Path
    scenario: str
    reports: Path

    def arguments(self, *more: str) -> list[str]:
        """A compare of the working tree with itself, short, with a fixed order of steps."""
        return [
            "compare", self.scenario, ".", ".", "--repo", str(self.repo), "--reports", str(self.reports),
            "--seed", "7", "--steps", "10", *more,
        ]  # fmt: skip


def git(folder: Path, *arguments: str) -> str:
    identity = ["-c", "user.name=Test", "-c", "user.email=test@example.invalid", "-c", "commit.gpgsign=false"]
    done = subprocess.run(["git", *identity, *arguments], cwd=folder, check=True, capture_output=True, text=True)
    return done.stdout.strip()


def make_bench(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Bench:
    """Make the repository, and have launches run under the stand-in for the subject's Python."""
    repo = tmp_path / "repo"
    repo.mkdir()
    git(repo, "init", "-q", "-b", "main")
    (repo / "README").write_text("toy\n")
    git(repo, "add", ".")
    git(repo, "commit", "-q", "-m", "before the engine")
    (repo / "toy.py").write_text("def build(): ...\n")
    git(repo, "add", ".")
    git(repo, "commit", "-q", "-m", "engine: a toy")
    scenario = tmp_path / "toy.toml"
    scenario.write_text(SCENARIO)
    sockets = tmp_path / "s"
    sockets.mkdir()
    monkeypatch.setenv("TMPDIR", str(sockets))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr("tempfile.tempdir", None)
    python = subject_python.install(tmp_path)
    monkeypatch.setattr(sys, "executable", str(python))
    return Bench(folder=tmp_path, repo=repo, python=python, scenario=str(scenario), reports=tmp_path / "reports")


def compare(bench: Bench, capsys: pytest.CaptureFixture[str], *more: str) -> tuple[int, dict[str, Any]]:
    """Run a compare and return its exit code and document (empty when it printed none)."""
    status = run(bench.arguments("--json", *more))
    out = capsys.readouterr().out
    return status, json.loads(out) if out else {}


def rows(bench: Bench, query: str) -> list[tuple[Any, ...]]:
    connection = sqlite3.connect(bench.reports / "results.db")
    try:
        return connection.execute(query).fetchall()
    finally:
        connection.close()


def assert_nothing_left(bench: Bench) -> None:
    """No launch's process lives, no control socket is left."""
    for path in bench.reports.rglob("pid"):
        with pytest.raises(ProcessLookupError):
            os.kill(int(path.read_text()), 0)
    assert list((bench.folder / "s").iterdir()) == []
