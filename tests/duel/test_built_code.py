"""Code that was built or generated, which git ignores and the working tree alone has: never measured as a change."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from duel_bench import git

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]

ROOT = Path(__file__).resolve().parents[2]

ENGINE = """
import types
import torch
try:
    from fastsum._c import total
except ImportError:
    from fastsum.slow import total

def build(needs_version=False):
    if needs_version:
        from fastsum._version import version
    return types.SimpleNamespace(
        batch=lambda step: torch.ones(4), forward_backward=lambda batch: total(batch), optimizer_step=lambda: None
    )
"""
TOTAL = "def total(batch):\n    return batch.sum()\n"
SCENARIO = """
description = "sums"
[run]
warmup_steps = 1
[engine]
factory = "fastsum.engine:build"
"""
BUILD = "subject.build=cp fastsum/slow.py fastsum/_c.py"
"""Stands for a compiler: what it makes is ignored, and importing it is what differs."""


@pytest.fixture
def repo(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    folder = tmp_path / "repo"
    (folder / "fastsum").mkdir(parents=True)
    for name, text in (("__init__", ""), ("engine", ENGINE), ("slow", TOTAL)):
        (folder / f"fastsum/{name}.py").write_text(text)
    (folder / ".gitignore").write_text("_c*\n_version.py\n")
    git(folder, "init", "-q", "-b", "main")
    git(folder, "add", ".")
    git(folder, "commit", "-q", "-m", "engine")
    (tmp_path / "sums.toml").write_text(SCENARIO)
    return folder


def compare(repo: Path, *more: str) -> tuple[dict[str, Any], str]:
    arguments = ("compare", "../sums.toml", *more, "--pairs", "2", "--steps", "4", "--json", "--reports", "../r")
    command = [sys.executable, "-m", "harness.cli", *arguments]
    done = subprocess.run(command, cwd=repo, capture_output=True, text=True, check=False)
    assert done.stdout, done.stderr
    return json.loads(done.stdout), done.stderr


def test_an_extension_that_the_working_tree_alone_has(repo: Path) -> None:
    (repo / "fastsum/_c.py").write_text(TOTAL)
    found, errors = compare(repo, "HEAD", ".")
    assert (found["verdict"]["state"], found["verdict"]["reason"]) == ("invalid", "unbuilt")
    assert "git ignores fastsum/_c.py, which head loaded" in found["verdict"]["detail"]
    assert "[subject] build" in found["verdict"]["detail"]
    assert "note: HEAD: lacks what git ignores in the working tree: fastsum/_c.py" in errors
    # With the command that makes it, both sides have it, and the user's folder stays as it is.
    (repo / "fastsum/_c.py").unlink()
    found, _ = compare(repo, "HEAD", ".", "--set", BUILD)
    assert found["verdict"]["state"] != "invalid", found["verdict"]
    assert not (repo / "fastsum/_c.py").exists()


def test_an_extension_with_another_abi_is_loaded_by_nobody(repo: Path) -> None:
    (repo / "fastsum/_c.cpython-37m-x86_64-linux-gnu.so").write_bytes(b"of another Python")
    found, _ = compare(repo, "HEAD", ".")
    assert found["verdict"]["state"] != "invalid", found["verdict"]


def test_a_generated_file_that_a_revision_lacks_is_named(repo: Path) -> None:
    (repo / "fastsum/_version.py").write_text("version = '1'\n")
    found, _ = compare(repo, "HEAD", ".", "--set", "engine.needs_version=true")
    assert (found["verdict"]["state"], found["verdict"]["reason"]) == ("invalid", "cannot_run")
    detail = found["verdict"]["detail"]
    assert "fastsum/_version.py is in the working tree but git ignores it, so a revision lacks it" in detail
