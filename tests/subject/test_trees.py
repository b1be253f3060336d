"""Exported revisions, on real git repositories: complete, shared, safe from kills, and the repository untouched."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, ExitStack
from pathlib import Path

import pytest
from child_process import PIPE, child
from repositories import FACTORY, commit, git, isolate, make_repository, snapshot, write

from harness.errors import UsageError
from harness.subject import Engine, SubjectCache, cache_folder, clean, default_names, resolve_subject

ENGINE = Engine(factory=FACTORY)
ROOT = Path(__file__).resolve().parents[2]

pytestmark = pytest.mark.skipif(shutil.which("git") is None, reason="git is not installed")


@pytest.fixture
def repository(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    isolate(monkeypatch, tmp_path)
    return make_repository(tmp_path / "user")


@pytest.fixture
def cache(repository: Path) -> Iterator[SubjectCache]:
    with SubjectCache() as opened:
        yield opened


def trees() -> Path:
    return cache_folder() / "trees"


def test_the_export_holds_every_file_of_the_revision_as_git_has_it(repository: Path, cache: SubjectCache) -> None:
    write(repository / "run.sh", "#!/bin/sh\n").chmod(0o755)
    (repository / "link").symlink_to("toy_engine/core.py")
    write(repository / ".gitattributes", "hidden export-ignore\nversion export-subst\n")
    write(repository / "hidden", "git archive would leave this out\n")
    write(repository / "version", "$Format:%H$\n")
    write(repository / "Ünïcode dir/ä b.txt", "x")
    head = commit(repository, "odd files")
    write(repository / ".git/info/sparse-checkout", "/toy_engine/\n")
    git(repository, "config", "core.sparseCheckout", "true")
    root = resolve_subject("HEAD", ENGINE, repository, cache).engine_root
    assert root is not None
    assert git(repository, f"--work-tree={root}", "status", "--porcelain", "--untracked-files=all") == ""
    names = [name for name in git(repository, "ls-tree", "-r", "-z", "--name-only", head).split("\0") if name]
    assert sorted(str(p.relative_to(root)) for p in root.rglob("*") if p.is_symlink() or not p.is_dir()) == sorted(
        names
    )
    assert (root / "version").read_text() == "$Format:%H$\n"
    assert os.access(root / "run.sh", os.X_OK)
    assert (root / "link").is_symlink()
    assert not any(p.stat().st_mode & 0o222 for p in [root, *root.rglob("*")] if not p.is_symlink())


def test_the_users_repository_is_left_untouched(repository: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for hook in ("post-checkout", "post-index-change", "reference-transaction"):
        write(repository / ".git/hooks" / hook, f"#!/bin/sh\ntouch '{repository}/hook-ran'\n").chmod(0o755)
    write(repository / "toy_engine/core.py", "SPEED = 3\n")
    git(repository, "add", "toy_engine")
    (repository / "hook-ran").unlink(missing_ok=True)
    write(repository / "untracked.py", "")
    # A file whose times differ from the index, and not by a racy instant, tempts git to write the index anew.
    os.utime(repository / "README", (1_600_000_000, 1_600_000_000))
    # As in a git hook: these would send git to the wrong place.
    monkeypatch.setenv("GIT_DIR", str(repository.parent / "elsewhere"))
    monkeypatch.setenv("GIT_INDEX_FILE", str(repository.parent / "index"))
    before = snapshot(repository)
    with SubjectCache() as cache:
        names = default_names(None, None, repository, one_code=False)
        base, head = (resolve_subject(name, ENGINE, repository, cache) for name in names)
        resolve_subject("HEAD~1", ENGINE, repository, cache)
        assert base.engine_root is not None
        assert (base.engine_root / "toy_engine/core.py").read_text() == "SPEED = 2\n"
        assert head.engine_root is not None
        assert not head.engine_root.is_relative_to(repository)
        assert (head.engine_root / "toy_engine/core.py").read_text() == "SPEED = 3\n"
        assert (head.engine_root / "untracked.py").exists()
        assert (head.dirty, head.revision) == (True, base.revision)
    clean()
    assert snapshot(repository) == before


def test_equal_trees_are_exported_once(repository: Path, cache: SubjectCache) -> None:
    first = resolve_subject("HEAD", ENGINE, repository, cache)
    again = commit(repository, "an empty commit")
    second = resolve_subject("HEAD", ENGINE, repository, cache)
    assert second.engine_root == first.engine_root
    assert (second.revision, second.identity()) == (again, second.identity())
    assert second.identity() != first.identity()
    assert [path.name for path in trees().iterdir()] == [git(repository, "rev-parse", "HEAD^{tree}")]


RESOLVE = """
import sys, time
from pathlib import Path
from harness.subject import Engine, SubjectCache, resolve_subject
with SubjectCache() as cache:
    print(resolve_subject(sys.argv[2], Engine(factory=sys.argv[3]), Path(sys.argv[1]), cache).engine_root, flush=True)
    time.sleep(float(sys.argv[4]))
"""


def resolver(repository: Path, revision: str, hold_s: float) -> AbstractContextManager[subprocess.Popen[str]]:
    return child(
        [sys.executable, "-c", RESOLVE, str(repository), revision, FACTORY, str(hold_s)], stdout=PIPE, cwd=ROOT
    )


def test_processes_that_export_at_once_share_one_tree(repository: Path) -> None:
    for number in range(200):
        write(repository / f"data/{number}.txt", str(number))
    commit(repository, "many files")
    with ExitStack() as stack:
        processes = [stack.enter_context(resolver(repository, "HEAD", 0.0)) for _ in range(4)]
        roots = {process.communicate(timeout=60)[0].strip() for process in processes}
    assert [process.returncode for process in processes] == [0] * 4
    assert len(roots) == 1
    assert git(repository, f"--work-tree={roots.pop()}", "status", "--porcelain") == ""
    assert len(list(trees().iterdir())) == 1


def test_a_killed_export_is_never_used_and_is_cleaned(repository: Path, cache: SubjectCache) -> None:
    git(repository, "config", "filter.slow.smudge", "sleep 60; cat")
    write(repository / ".gitattributes", "written_last filter=slow\n")
    commit(repository, "a file that takes long to write", written_last="content\n")
    with resolver(repository, "HEAD", 0.0):  # and kill it, with git
        deadline = time.monotonic() + 30
        while not list(trees().glob(".building-*/content/toy_engine")):
            assert time.monotonic() < deadline
            time.sleep(0.02)
    left = list(trees().iterdir())
    assert [path.name.startswith(".building-") for path in left] == [True]
    git(repository, "config", "filter.slow.smudge", "cat")
    while (
        clean()["trees"].removed == 0
    ):  # the killed git may take a moment to die, and holds on to the folder till then
        assert time.monotonic() < deadline
        time.sleep(0.02)
    root = resolve_subject("HEAD", ENGINE, repository, cache).engine_root
    assert root is not None
    assert (root / "written_last").read_text() == "content\n"
    assert list(trees().iterdir()) == [root]  # what was left is gone, too


def test_clean_keeps_what_is_in_use_until_its_user_is_gone_even_killed(repository: Path) -> None:
    with resolver(repository, "HEAD", 60.0) as process:  # and kill it
        assert process.stdout is not None
        root = Path(process.stdout.readline().strip())
        with SubjectCache() as cache:
            resolve_subject("HEAD~1", ENGINE, repository, cache)
        done = clean()["trees"]
        assert (done.removed, done.in_use) == (1, 1)
        assert done.freed_bytes == len("hello\n") + len("SPEED = 1\n")
        assert (root / "toy_engine/core.py").exists()
    assert clean()["trees"].removed == 1
    assert list(trees().iterdir()) == []
    assert clean()["trees"].removed == 0


def with_submodule(repository: Path, tmp_path: Path) -> Path:
    """Commit a submodule, and another commit that moves it on; return its own repository."""
    other = tmp_path / "other"
    other.mkdir()
    git(other, "init", "--quiet")
    commit(other, "library", lib_py="VERSION = 1\n")
    git(repository, "submodule", "--quiet", "add", "--name", "the library", str(other), "third_party/lib")
    commit(repository, "submodule")
    commit(repository / "third_party/lib", "library, faster", lib_py="VERSION = 2\n")
    commit(repository, "submodule moved on")
    return other


def test_submodules_are_those_of_the_commit(repository: Path, cache: SubjectCache, tmp_path: Path) -> None:
    with_submodule(repository, tmp_path)
    for revision, version in (("HEAD~1", 1), ("HEAD", 2)):
        subject = resolve_subject(revision, ENGINE, repository, cache)
        assert subject.engine_root is not None
        assert (subject.engine_root / "third_party/lib/lib.py").read_text() == f"VERSION = {version}\n"
        assert subject.notes == ()
    # The clone that git keeps serves too, where the folder has been taken away.
    git(repository, "submodule", "--quiet", "deinit", "--force", "third_party/lib")
    again = resolve_subject("HEAD~1", ENGINE, repository, cache)
    assert again.engine_root is not None
    assert (again.engine_root / "third_party/lib/lib.py").read_text() == "VERSION = 1\n"


def test_submodules_that_are_not_there_are_told(repository: Path, cache: SubjectCache, tmp_path: Path) -> None:
    with_submodule(repository, tmp_path)
    clone = tmp_path / "clone"
    git(tmp_path, "clone", "--quiet", str(repository), str(clone))
    subject = resolve_subject("HEAD~1", ENGINE, clone, cache)
    assert subject.notes == ("submodule third_party/lib is empty: run git submodule update --init third_party/lib",)
    git(clone, "checkout", "--quiet", "HEAD~1")
    git(clone, "submodule", "--quiet", "update", "--init")
    assert resolve_subject("HEAD", ENGINE, clone, cache).notes == ()
    lacking = resolve_subject("main", ENGINE, clone, cache)
    gone = git(repository, "rev-parse", "HEAD:third_party/lib")[:12]
    assert lacking.notes == (
        f"submodule third_party/lib is empty: its clone lacks {gone}: run git -C third_party/lib fetch",
    )
    assert lacking.engine_root is not None
    assert list((lacking.engine_root / "third_party/lib").iterdir()) == []


def test_files_of_git_lfs_are_filled_or_named(repository: Path, cache: SubjectCache) -> None:
    oid = "0123456789abcdef" * 4
    pointer = f"version https://git-lfs.github.com/spec/v1\noid sha256:{oid}\nsize 5\n"
    commit(repository, "LFS", weights=pointer)
    subject = resolve_subject("HEAD", ENGINE, repository, cache)
    assert subject.notes == ("files of Git LFS without their content: weights: run git lfs fetch --all",)
    write(repository / ".git/lfs/objects" / oid[:2] / oid[2:4] / oid, "12345")
    subject = resolve_subject("HEAD", ENGINE, repository, cache)
    assert subject.notes == ()
    assert subject.engine_root is not None
    assert (subject.engine_root / "weights").read_text() == "12345"
    assert resolve_subject("HEAD~1", ENGINE, repository, cache).notes == ()


def test_a_cache_that_cannot_be_written_is_a_usage_error(
    repository: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(write(tmp_path / "file", "")))
    with SubjectCache() as cache, pytest.raises(UsageError, match="cannot export"):
        resolve_subject("HEAD", ENGINE, repository, cache)


def test_the_cache_follows_the_xdg_specification(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    for value in ("", "relative/path"):
        monkeypatch.setenv("XDG_CACHE_HOME", value)
        assert cache_folder() == tmp_path / ".cache/stepduel"
