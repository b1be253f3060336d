"""Where in a repository a package is looked for."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from repositories import FACTORY, commit, isolate, make_repository

from harness.errors import UsageError
from harness.scenario import SubjectSettings
from harness.subject import Engine, NoEngineError, SubjectCache, resolve_subject

PROJECT = "packages/train/pyproject.toml"


@pytest.fixture
def cache(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[SubjectCache]:
    isolate(monkeypatch, tmp_path)
    with SubjectCache() as opened:
        yield opened


@pytest.fixture
def repository(cache: SubjectCache, tmp_path: Path) -> Path:
    """Two commits; the second one moves the engine into a project below."""
    folder = make_repository(tmp_path / "user")
    (folder / "toy_engine/core.py").unlink()
    commit(folder, "moved", **{PROJECT: "[project]\n", "packages/train/src/toy_engine/core.py": "SPEED = 3\n"})
    return folder


def root_of(cache: SubjectCache, repository: Path, name: str, root: str | None = None) -> str:
    engine = Engine(factory=FACTORY, settings=SubjectSettings(root=root))
    subject = resolve_subject(name, engine, repository, cache)
    assert subject.engine_root is not None
    assert subject.checkout is not None
    return str(subject.engine_root.relative_to(subject.checkout.tree))


@pytest.mark.parametrize("name", ["HEAD", "."])
def test_the_one_project_that_has_it_is_found(cache: SubjectCache, repository: Path, name: str) -> None:
    assert root_of(cache, repository, name) == "packages/train/src"
    assert root_of(cache, repository, "HEAD~1") == "."


@pytest.mark.parametrize("name", ["HEAD", "."])
def test_of_several_one_must_be_named(cache: SubjectCache, repository: Path, name: str) -> None:
    commit(repository, "copied", **{"old/setup.py": "", "old/toy_engine/core.py": ""})
    complaint = r"several projects have a package 'toy_engine': old, packages/train/src: name one with \[subject\] root"
    with pytest.raises(UsageError, match=complaint):
        root_of(cache, repository, name)
    assert root_of(cache, repository, name, "old") == "old"
    assert root_of(cache, repository, name, "packages/train") == "packages/train/src"


def test_a_folder_of_that_name_that_is_no_project_is_not_taken(cache: SubjectCache, repository: Path) -> None:
    (repository / PROJECT).unlink()
    commit(repository, "no project", **{"tests/data/pyproject.toml": "", "tests/data/toy_engine/core.py": ""})
    with pytest.raises(NoEngineError, match="has no package 'toy_engine'"):
        root_of(cache, repository, "HEAD")


def test_a_root_that_is_not_there_is_refused(cache: SubjectCache, repository: Path) -> None:
    with pytest.raises(UsageError, match=r"subject\.root: 'nowhere': expected a folder of"):
        root_of(cache, repository, ".", "nowhere")
    with pytest.raises(NoEngineError):
        root_of(cache, repository, "HEAD", "nowhere")
