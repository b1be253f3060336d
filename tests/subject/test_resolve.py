"""Subjects, on real git repositories: which code a name stands for, and what tells code apart."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from repositories import FACTORY, commit, git, isolate, make_repository, snapshot, write

from harness.errors import UsageError
from harness.subject import (
    Engine,
    NoEngineError,
    SubjectCache,
    default_names,
    resolve_commit,
    resolve_subject,
    uncommitted,
    working_tree,
)

ENGINE = Engine(factory=FACTORY)

pytestmark = pytest.mark.skipif(shutil.which("git") is None, reason="git is not installed")


@pytest.fixture
def repository(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    isolate(monkeypatch, tmp_path)
    return make_repository(tmp_path / "user")


@pytest.fixture
def cache(repository: Path) -> Iterator[SubjectCache]:
    with SubjectCache() as opened:
        yield opened


@pytest.mark.parametrize(
    "revision",
    [
        "HEAD",
        "HEAD~1",
        "main",
        "HEAD^{/engine: always switch}",
        ":/skip the",
        "main@{0}",
        "v1",
        "v1^{}",
        "HEAD^{commit}",
    ],
)
def test_any_revision_that_git_understands(repository: Path, cache: SubjectCache, revision: str) -> None:
    git(repository, "tag", "-a", "v1", "-m", "release", "HEAD~1")
    expected = git(repository, "rev-list", "-1", revision)
    subject = resolve_subject(revision, ENGINE, repository, cache)
    assert (subject.name, subject.revision, subject.dirty) == (revision, expected, False)
    assert subject.engine_root is not None
    shown = git(repository, "show", f"{expected}:toy_engine/core.py")
    assert (subject.engine_root / "toy_engine/core.py").read_text().strip() == shown


@pytest.mark.parametrize(
    "revision",
    [
        "--upload-pack=touch pwned",
        "-h",
        "--output=pwned",
        "--all",
        "nonsense",
        "HEAD:README",
        "HEAD~2..HEAD",
        "^HEAD",
        "HEAD HEAD",
        "HEAD\nHEAD",
        "HEAD\0",
        "",
        " ",
        "$(touch pwned)",
        "HEAD~99",
        "../../etc",
    ],
)
def test_what_is_no_revision_is_refused_and_runs_nothing(repository: Path, cache: SubjectCache, revision: str) -> None:
    before = snapshot(repository)
    with pytest.raises(UsageError, match=r"revision|^'"):
        resolve_subject(revision, ENGINE, repository, cache)
    assert snapshot(repository) == before
    assert not list(repository.parent.rglob("pwned"))


def test_a_revision_without_the_engine_says_so_instead_of_measuring_another(
    repository: Path, cache: SubjectCache
) -> None:
    with pytest.raises(NoEngineError, match=r"'HEAD~2' .* has no package 'toy_engine'"):
        resolve_subject("HEAD~2", ENGINE, repository, cache)


def test_the_engine_is_found_where_the_user_stands(repository: Path, cache: SubjectCache) -> None:
    commit(repository, "move it", project__src__toy_engine__core_py="SPEED = 9\n")
    git(repository, "rm", "-rq", "toy_engine")
    commit(repository, "only in the subfolder")
    project = repository / "project"
    subject = resolve_subject("HEAD", ENGINE, project, cache)
    assert subject.engine_root is not None
    assert subject.engine_root.parts[-2:] == ("project", "src")
    assert working_tree(FACTORY, project).engine_root == project / "src"


def test_identity_changes_with_everything_that_is_measured(repository: Path) -> None:
    tree = working_tree(FACTORY, repository)
    assert (tree.dirty, tree.changes) == (False, None)
    seen = {
        tree.identity(),
        tree.identity({"torch": "2.6"}),
        working_tree(FACTORY, repository, overrides=["a=1"]).identity(),
    }
    core = write(repository / "toy_engine/core.py", "SPEED = 3\n")
    edited = working_tree(FACTORY, repository)
    seen.add(edited.identity())
    git(repository, "add", "toy_engine")
    assert working_tree(FACTORY, repository).identity() == edited.identity()  # staged is the same code
    core.chmod(0o755)
    seen.add(working_tree(FACTORY, repository).identity())
    extra = write(repository / "toy_engine/extra.py", "1\n")
    seen.add(working_tree(FACTORY, repository).identity())
    write(extra, "2\n")
    seen.add(working_tree(FACTORY, repository).identity())
    assert len(seen) == 7
    write(repository / ".gitignore", "*.log\n")
    before = uncommitted(repository)
    write(repository / "run.log", "ignored")
    assert uncommitted(repository) == before


def test_uncommitted_survives_odd_files_and_large_ones(repository: Path) -> None:
    (repository / "dangling").symlink_to("nowhere")
    write(repository / "new\nline", "")
    with (repository / "large.bin").open("wb") as file:
        file.truncate(1 << 33)  # sparse: reading 8 GiB would take long
    first = uncommitted(repository)
    assert first == uncommitted(repository)
    os.utime(repository / "large.bin", ns=(1, 1))
    assert uncommitted(repository) != first


def test_overrides_alone_compare_one_code_with_itself(repository: Path, cache: SubjectCache) -> None:
    assert default_names(None, None, repository, one_code=True) == (".", ".")
    base = resolve_subject(".", ENGINE, repository, cache)
    head = resolve_subject(".", ENGINE, repository, cache, overrides=["engine.lora_rank=16"])
    assert (base.overrides, head.overrides) == ((), ("engine.lora_rank=16",))
    assert base.identity() != head.identity()


def test_an_engine_that_lies_nowhere_near_is_taken_as_installed(repository: Path) -> None:
    subject = working_tree("json:loads", repository)
    assert (subject.name, subject.engine_root, subject.revision) == ("installed", None, None)


def test_a_bare_repository_and_a_linked_worktree_serve_too(
    repository: Path, cache: SubjectCache, tmp_path: Path
) -> None:
    bare, linked = tmp_path / "bare.git", tmp_path / "linked"
    git(tmp_path, "clone", "--quiet", "--bare", str(repository), str(bare))
    git(repository, "worktree", "add", "--quiet", "--detach", str(linked), "HEAD~1")
    assert resolve_subject("main", ENGINE, bare, cache).revision == git(repository, "rev-parse", "main")
    assert resolve_subject("HEAD", ENGINE, linked, cache).revision == git(repository, "rev-parse", "main~1")


def test_a_shallow_clone_is_named_as_the_cause(repository: Path, tmp_path: Path) -> None:
    shallow = tmp_path / "shallow"
    git(tmp_path, "clone", "--quiet", "--depth=1", f"file://{repository}", str(shallow))
    with pytest.raises(UsageError, match="unshallow"):
        resolve_commit(shallow, "HEAD~1")
