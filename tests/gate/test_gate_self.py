"""Which commit this project holds itself against in CI, in every shape that a clone has there."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest
from duel_bench import git

SCRIPT = Path(__file__).resolve().parents[2] / ".ci" / "gate-self"


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A repository with one commit, which has no engine yet."""
    folder = tmp_path / "project"
    (folder / ".ci").mkdir(parents=True)
    shutil.copy(SCRIPT, folder / ".ci")
    git(folder, "init", "-q", "-b", "main")
    commit(folder, "first")
    return folder


def commit(folder: Path, subject: str) -> str:
    (folder / "file").write_text(subject)
    git(folder, "add", ".")
    git(folder, "commit", "-q", "-m", subject)
    return git(folder, "rev-parse", "HEAD")


def add_engine(folder: Path) -> str:
    (folder / "engine_under_test").mkdir()
    (folder / "engine_under_test" / "__init__.py").touch()
    return commit(folder, "engine")


def gate_self(folder: Path, status: int = 0) -> tuple[int, str]:
    """Run the script with a gate that prints its command line and ends with `status`."""
    stand_in = folder.parent / "stepduel"
    stand_in.write_text(f'#!/bin/sh\necho "$@"\nexit {status}\n')
    stand_in.chmod(0o755)
    done = subprocess.run(
        [folder / ".ci" / "gate-self"],
        env={**os.environ, "STEPDUEL": str(stand_in), "GIT_CEILING_DIRECTORIES": str(folder.parent)},
        capture_output=True,
        text=True,
        check=False,
    )
    return done.returncode, done.stdout.strip() + done.stderr


def base_of(folder: Path) -> str:
    status, out = gate_self(folder)
    assert status == 0, out
    words = out.split()
    assert words[0] == "gate", out
    assert words[3:] == ["--scenario", "smoke", "--budget", "80s"]
    return words[2]


def test_on_the_main_branch_the_commit_before_head_is_the_base(project: Path) -> None:
    engine = add_engine(project)
    commit(project, "second")
    assert base_of(project) == engine


def test_on_a_branch_it_is_where_the_branch_left(project: Path) -> None:
    engine = add_engine(project)
    git(project, "switch", "-q", "-c", "topic")
    commit(project, "second")
    commit(project, "third")
    assert base_of(project) == engine


def test_a_merge_base_without_the_engine_gives_way_to_the_commit_before_head(project: Path) -> None:
    git(project, "switch", "-q", "-c", "topic")
    engine = add_engine(project)
    commit(project, "second")
    assert base_of(project) == engine


def test_a_base_whose_engine_cannot_run_is_for_the_gate_to_judge(project: Path) -> None:
    first = git(project, "rev-parse", "HEAD")
    add_engine(project)
    assert base_of(project) == first


@pytest.mark.parametrize("depth", [1, 2])
def test_a_shallow_clone_without_a_second_commit_is_skipped_with_a_hint(project: Path, depth: int) -> None:
    engine = add_engine(project)
    commit(project, "second")
    clone = project.parent / "clone"
    git(project.parent, "clone", "-q", f"--depth={depth}", project.as_uri(), str(clone))
    if depth == 2:
        assert base_of(clone) == engine
        return
    status, out = gate_self(clone, status=1)
    assert status == 0
    assert "skipped" in out
    assert "fetch-depth: 2" in out


def test_a_first_commit_and_a_folder_without_git_are_skipped(project: Path) -> None:
    assert gate_self(project, status=1) == (
        0,
        "gate-self: skipped: HEAD is the first commit, there is none to compare with",
    )
    shutil.rmtree(project / ".git")
    status, out = gate_self(project, status=1)
    assert (status, out) == (0, "gate-self: skipped: no git repository, or no commit yet")


@pytest.mark.parametrize("status", [1, 2, 3, 4])
def test_the_gates_answer_is_the_answer(project: Path, status: int) -> None:
    add_engine(project)
    commit(project, "second")
    assert gate_self(project, status=status)[0] == status


@pytest.mark.parametrize(("detail", "status"), [("no_steps: no launch pair", 0), ("different_work: losses part", 3)])
def test_only_a_machine_too_busy_for_one_launch_pair_is_forgiven(project: Path, detail: str, status: int) -> None:
    add_engine(project)
    commit(project, "second")
    (project / "reports" / "gate").mkdir(parents=True)
    (project / "reports" / "gate" / "gate.json").write_text(f'      "detail": "{detail}",\n')
    assert gate_self(project, status=3)[0] == status
