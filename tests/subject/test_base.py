"""Which commit is BASE when nobody names one, on real repositories as CI and people have them."""

from __future__ import annotations

from pathlib import Path

import pytest
from repositories import FACTORY, commit, git, isolate, make_repository, write

from harness.errors import UsageError
from harness.subject import Engine, SubjectCache, default_base, is_ancestor, resolve_subject


@pytest.fixture
def repository(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    isolate(monkeypatch, tmp_path)
    return make_repository(tmp_path / "user")


def at(folder: Path, revision: str) -> str:
    return git(folder, "rev-parse", revision)


def branch(folder: Path, name: str) -> str:
    """Check a new branch out and commit to it; return the commit."""
    git(folder, "checkout", "-q", "-b", name)
    return commit(folder, f"work of {name}", toy_engine__core_py=f"SPEED = '{name}'\n")


def clone(repository: Path, name: str, *options: str) -> Path:
    folder = repository.parent / name
    git(repository.parent, "clone", "--quiet", *options, f"file://{repository}", str(folder))
    return folder


def test_a_branch_is_held_against_where_it_left_main(repository: Path) -> None:
    main = at(repository, "main")
    branch(repository, "feature")
    assert default_base(repository) == main
    write(repository / "toy_engine/core.py", "SPEED = 5\n")
    assert default_base(repository) == main, "uncommitted work belongs to the branch"
    git(repository, "stash", "-q")
    git(repository, "checkout", "-q", "main")
    commit(repository, "main goes on")
    git(repository, "checkout", "-q", "feature")
    assert default_base(repository) == main


def test_a_push_to_main_is_held_against_its_parent(repository: Path) -> None:
    assert default_base(repository) == at(repository, "HEAD~1")
    write(repository / "build.log", "left by a build")
    write(repository / "toy.egg-info/PKG-INFO", "left by a build")
    assert default_base(repository) == at(repository, "HEAD~1"), "untracked files make no tree dirty"


@pytest.mark.parametrize("staged", [False, True])
def test_a_dirty_main_is_held_against_head(repository: Path, staged: bool) -> None:
    write(repository / "toy_engine/core.py", "SPEED = 5\n")
    if staged:
        git(repository, "add", ".")
    assert default_base(repository) == at(repository, "HEAD")


def test_a_new_file_counts_once_it_is_added(repository: Path) -> None:
    write(repository / "toy_engine/new.py", "")
    git(repository, "add", "toy_engine/new.py")
    assert default_base(repository) == at(repository, "HEAD")


def test_a_merge_is_held_against_what_it_was_merged_into(repository: Path) -> None:
    branch(repository, "feature")
    git(repository, "checkout", "-q", "main")
    main = commit(repository, "main goes on", other_py="X = 1\n")
    git(repository, "merge", "-q", "--no-ff", "-m", "merge", "feature")
    assert default_base(repository) == main


def test_what_a_pull_request_checks_out_is_held_against_the_tip_of_its_base(repository: Path) -> None:
    """Hosts check the merge of both out, detached; its first parent is the base branch's tip."""
    branch(repository, "feature")
    git(repository, "checkout", "-q", "main")
    main = commit(repository, "main goes on", other_py="X = 1\n")
    git(repository, "checkout", "-q", "--detach")
    git(repository, "merge", "-q", "--no-ff", "-m", "merge", "feature")
    ci = clone(repository, "ci")
    git(ci, "fetch", "--quiet", "origin", at(repository, "HEAD"))
    git(ci, "checkout", "-q", "--detach", "FETCH_HEAD")
    assert default_base(ci) == main


def test_a_forced_push_is_held_against_what_it_is_made_on(repository: Path) -> None:
    first = at(repository, "main")
    branch(repository, "feature")
    ci = clone(repository, "ci", "--branch", "feature")
    git(repository, "commit", "-q", "--amend", "-m", "again")
    git(ci, "fetch", "--quiet", "--force", "origin", "feature")
    git(ci, "checkout", "-q", "--detach", "FETCH_HEAD")
    assert default_base(ci) == first
    # Main itself, rewritten: its new parent, not what was there before.
    git(repository, "checkout", "-q", "main")
    git(repository, "reset", "-q", "--hard", "HEAD~1")
    commit(repository, "another", toy_engine__core_py="SPEED = 7\n")
    git(ci, "fetch", "--quiet", "--force", "origin", "+main:refs/remotes/origin/main")
    git(ci, "checkout", "-q", "--detach", "origin/main")
    assert default_base(ci) == at(repository, "HEAD~1") == at(ci, "HEAD~1")


def test_a_rebased_base_is_no_ancestor(repository: Path) -> None:
    branch(repository, "feature")
    assert is_ancestor(repository, "main", ".")
    git(repository, "checkout", "-q", "main")
    git(repository, "commit", "-q", "--amend", "-m", "rewritten")
    git(repository, "checkout", "-q", "feature")
    assert not is_ancestor(repository, "main", ".")
    assert default_base(repository) == at(repository, "main~1"), "the newest commit that both have"


def test_a_named_head_has_its_own_base(repository: Path) -> None:
    main = at(repository, "main")
    work = branch(repository, "feature")
    git(repository, "checkout", "-q", "main")
    write(repository / "toy_engine/core.py", "dirty\n")
    assert default_base(repository, work) == main
    assert default_base(repository, "main") == at(repository, "main~1")


def test_commits_ahead_of_origin_are_a_branch(repository: Path) -> None:
    folder = clone(repository, "clone")
    commit(folder, "ahead of origin", toy_engine__core_py="SPEED = 6\n")
    assert default_base(folder) == at(repository, "main")


@pytest.mark.parametrize("untracked", [False, True])
def test_a_clone_of_depth_1_has_no_base_and_says_what_to_fetch(repository: Path, untracked: bool) -> None:
    shallow = clone(repository, "shallow", "--depth", "1")
    if untracked:
        write(shallow / "build.log", "")
    with pytest.raises(UsageError, match=r"lacks the parent of \w{12}.*git fetch --deepen 1.*fetch-depth: 2"):
        default_base(shallow)
    git(shallow, "fetch", "--quiet", "--deepen", "1")
    assert default_base(shallow) == at(repository, "HEAD~1")


def test_a_shallow_branch_that_shares_no_commit_says_so(repository: Path) -> None:
    branch(repository, "feature")
    commit(repository, "more work")
    git(repository, "checkout", "-q", "main")
    shallow = clone(repository, "shallow", "--depth", "1", "--branch", "feature", "--no-single-branch")
    with pytest.raises(UsageError, match=r"share no commit.*git fetch --unshallow"):
        default_base(shallow)


def test_a_partial_clone_fetches_what_it_exports(repository: Path) -> None:
    git(repository, "config", "uploadpack.allowFilter", "true")
    git(repository, "config", "uploadpack.allowAnySHA1InWant", "true")
    partial = clone(repository, "partial", "--filter=blob:none")
    base = default_base(partial)
    assert base == at(repository, "HEAD~1")
    engine = Engine(factory=FACTORY)
    with SubjectCache() as cache:
        subject = resolve_subject(base, engine, partial, cache)
    assert subject.revision == base
    other = clone(repository, "cut-off", "--filter=blob:none")
    git(repository, "commit", "-q", "--allow-empty", "-m", "more")
    commit(repository, "new", toy_engine__new_py="X = 'never fetched'\n")
    git(other, "fetch", "--quiet", "--filter=blob:none", "origin")
    repository.rename(repository.parent / "gone")
    with SubjectCache() as cache, pytest.raises(UsageError, match="cannot export "):
        resolve_subject("origin/main", engine, other, cache)


def test_no_base_to_find(repository: Path, tmp_path: Path) -> None:
    git(repository, "branch", "-q", "-m", "trunk")
    with pytest.raises(UsageError, match="no main branch"):
        default_base(repository)
    alone = tmp_path / "alone"
    alone.mkdir()
    git(alone, "init", "--quiet")
    commit(alone, "only", toy_engine__core_py="")
    with pytest.raises(UsageError, match="only commit"):
        default_base(alone)
    with pytest.raises(UsageError, match="no git repository"):
        default_base(tmp_path)
