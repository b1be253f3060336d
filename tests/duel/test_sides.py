"""Each side is what its name says: real launches that tell where everything they use came from."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from duel_bench import git
from side_repository import OWN, make_repository, search_path

from harness.cli.__main__ import run

SCENARIO = """
description = "tells where it came from"

[run]
warmup_steps = 1
steps = 3
timeout_s = 60

[engine]
factory = "side_engine:build"
"""

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]


@pytest.fixture
def trainer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The engine's folder in its repository, which is the current one; its libraries are on PYTHONPATH."""
    repo = tmp_path / "repo"
    folders = make_repository(repo)
    monkeypatch.setenv("PYTHONPATH", search_path(folders))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    (tmp_path / "sides.toml").write_text(SCENARIO)
    monkeypatch.chdir(repo / "trainer")
    return repo / "trainer"


def state(repo: Path) -> list[tuple[str, int]]:
    """Every file of the user's folder, that of git left out, with its time."""
    files = (path for path in repo.rglob("*") if ".git" not in path.parts and path.is_file())
    return sorted((str(path), path.stat().st_mtime_ns) for path in files)


def compare(trainer: Path, capsys: pytest.CaptureFixture[str], *more: str) -> dict[str, Any]:
    top = trainer.parents[1]
    run(
        [
            "compare",
            str(top / "sides.toml"),
            *more,
            "--pairs",
            "2",
            "--steps",
            "3",
            "--json",
            "--reports",
            str(top / "r"),
        ]
    )
    found: dict[str, Any] = json.loads(capsys.readouterr().out)
    return found


def test_each_side_uses_its_own_files_and_leaves_the_users_alone(
    trainer: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before = state(trainer.parent)
    found = compare(trainer, capsys, "base", "head")
    assert found["verdict"]["state"] != "invalid", found["verdict"]
    assert state(trainer.parent) == before
    for pair in found["pairs"]:
        for side in ("base", "head"):
            told = pair[f"{side}_launch"]["engine"]
            assert {key: told[key] for key in OWN} == dict.fromkeys(OWN, side)
            assert told["namespace, two roots"] == f"{side} {side}"
            assert (told["git log"], told["git describe"], told["git status"]) == (side, side, "")
            assert (told["ignored data"], told[".env"]) == (2 << 20, "KEY=1")
            assert told["checkpoint of an earlier launch"] is False
            assert told["folder of extensions"] == side
    loaded = found["head"]["loaded"]
    assert {"trainer/pkg/__init__.py", "trainer/config.txt", "libs/blocks/src/blocks/__init__.py"} <= set(
        loaded["differing"]
    )
    assert set(loaded["shared"]) == {"trainer/data", "trainer/.env"}
    assert any(name.startswith("python") for name in loaded["started"])
    assert "git" in loaded["started"]
    assert list((trainer.parents[1] / "cache/stepduel/sides").iterdir()) == []


def test_the_working_tree_is_a_side_like_any_other(trainer: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (trainer / "config.txt").write_text("edited\n")
    (trainer / "checkpoints").mkdir()
    (trainer / "checkpoints/last.pt").write_bytes(b"the user's")
    before = state(trainer.parent)
    found = compare(trainer, capsys, "base", ".")
    base, head = (found["pairs"][0][f"{side}_launch"]["engine"] for side in ("base", "head"))
    assert (base["relative path"], head["relative path"]) == ("base", "edited")
    assert (base["editable sibling"], head["editable sibling"]) == ("base", "head")
    assert head["git status"] == "M trainer/config.txt"
    assert (base["checkpoint of an earlier launch"], head["checkpoint of an earlier launch"]) == (False, True)
    assert state(trainer.parent) == before


def test_a_tracked_file_of_the_working_tree_makes_it_invalid(trainer: Path, capsys: pytest.CaptureFixture[str]) -> None:
    found = compare(trainer, capsys, "base", "head", "--set", f"engine.open_also={trainer / 'config.txt'}")
    assert (found["verdict"]["state"], found["verdict"]["reason"]) == ("invalid", "mixed_sides")
    assert "base loaded trainer/config.txt of the working tree" in found["verdict"]["detail"]
    assert found["verdict"]["pairs"] == 1


def test_the_same_by_bench(trainer: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before = state(trainer.parent)
    top = trainer.parents[1]
    assert run(["bench", str(top / "sides.toml"), "--json", "--reports", str(top / "r")]) == 0
    told = json.loads(capsys.readouterr().out)["run"]["engine"]
    assert {key: told[key] for key in OWN} == dict.fromkeys(OWN, "head")
    assert state(trainer.parent) == before


def test_commits_that_differ_in_words_only_are_the_same_code(trainer: Path, capsys: pytest.CaptureFixture[str]) -> None:
    repo = trainer.parent
    (trainer / "plain.py").write_text(
        "import types, torch\n"
        "def build():\n"
        "    return types.SimpleNamespace(batch=lambda step: torch.ones(2), forward_backward=lambda x: x.sum(),\n"
        "                                 optimizer_step=lambda: None)\n"
    )
    git(repo, "add", ".")
    git(repo, "commit", "-q", "-m", "plain")
    (repo / "README.md").write_text("words\n")
    (repo / "trainer/test_plain.py").write_text("assert True\n")
    git(repo, "add", ".")
    git(repo, "commit", "-q", "-m", "words")
    found = compare(trainer, capsys, "HEAD~1", "HEAD", "--set", "engine.factory=plain:build")
    verdict = found["verdict"]
    assert (verdict["state"], verdict["reason"], verdict["pairs"]) == ("same", "identical_code", 1)
    assert verdict["line"].endswith("what differs is README.md, trainer/test_plain.py")
