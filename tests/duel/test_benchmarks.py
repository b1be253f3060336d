"""The long benchmarks on the toy: they scale the slowdown to the step, go on from their results, and count right."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from itertools import product
from pathlib import Path

import pytest
import subject_python
from duel_bench import SCENARIO

BENCHMARKS = Path(__file__).resolve().parents[2] / "benchmarks"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "toy.py").write_text("def build(): ...\n")
    (tmp_path / "toy.toml").write_text(SCENARIO)
    subject_python.install(tmp_path)
    return tmp_path


def run(folder: Path, benchmark: str, *arguments: str) -> str:
    """Run a benchmark in `folder` with the stand-in for the subject's Python; return what it prints."""
    code = f"""
import runpy, sys
sys.executable = {str(folder / "subject-python")!r}
sys.argv[0] = {benchmark!r}
sys.path.insert(0, {str(BENCHMARKS)!r})
runpy.run_path({str(BENCHMARKS / benchmark)!r}, run_name="__main__")
"""
    command = [sys.executable, "-c", code, "--scenario", "toy.toml", "--reports", "reports", *arguments]
    # `-c` puts the folder it runs in on the path; the harness comes from where the tests have it.
    environment = {**os.environ, "PYTHONPATH": str(BENCHMARKS.parent)}
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    return done.stdout


def table(text: str) -> list[list[str]]:
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in text.splitlines() if line.startswith("|")]


def test_gate_power_scales_the_slowdown_and_resumes(folder: Path) -> None:
    arguments = ("--condition", "idle", "--same-code", "1", "--slowed", "1")
    said = run(folder, "gate_power.py", *arguments)
    rows = table(said)
    header, counted = rows[0], {row[1]: row for row in rows[2:]}
    assert list(counted) == ["0%", "2%", "5%", "13%"]
    assert counted["13%"][header.index("slower")] == "1"
    stored = [json.loads(line) for line in (folder / "reports" / "duels.jsonl").read_text().splitlines()]
    assert stored[0]["injected"] == 0
    assert stored[0]["forward_share"] == pytest.approx(0.5, abs=0.01)
    for row in stored:
        assert row["ratio"] == pytest.approx(1 + row["injected"], abs=0.012)
    assert table(run(folder, "gate_power.py", *arguments)) == rows
    assert (folder / "reports" / "duels.jsonl").read_text().count("\n") == 4


def test_lockstep_noise_runs_every_order_and_resumes(folder: Path) -> None:
    run(folder, "lockstep_noise.py", "--pairs", "1", "--steps", "4")
    rows = table(run(folder, "lockstep_noise.py", "--pairs", "2", "--steps", "4"))
    kinds = product(("idle", "one core busy"), ("any", "same"), ("after", "blocks", "lockstep"))
    assert [row[:4] for row in rows[2:]] == [[*kind, "2"] for kind in kinds]
    (path,) = (folder / "reports").iterdir()
    stored = [json.loads(line) for line in path.read_text().splitlines()]
    assert len(stored) == 2 * 2 * 2 * 3
    assert all(len(row["base_ns"]) == len(row["head_ns"]) == 4 for row in stored)
