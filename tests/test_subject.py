"""Subjects, on real git repositories: what is resolved and exported, and that the user's repository is untouched."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from harness.errors import UsageError
from harness.subject import (
    NoEngineError,
    TreeCache,
    cache_folder,
    clean,
    merge_base,
    resolve_commit,
    resolve_pair,
    resolve_subject,
    uncommitted,
    working_tree,
)

FACTORY = "toy_engine.core:build"
ROOT = Path(__file__).resolve().parents[1]

pytestmark = pytest.mark.skipif(shutil.which("git") is None, reason="git is not installed")


def git(folder: Path, *arguments: str) -> str:
    done = subprocess.run(["git", "-C", str(folder), *arguments], capture_output=True, text=True, check=True)
    return done.stdout.strip()


def write(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return path


def commit(folder: Path, subject: str, **files: str) -> str:
    """Commit `files` (`__` stands for `/`, `_py` for `.py`) and return the hash."""
    for name, text in files.items():
        write(folder / name.replace("__", "/").replace("_py", ".py"), text)
    git(folder, "add", "--all")
    git(folder, "commit", "--allow-empty", "-m", subject)
    return git(folder, "rev-parse", "HEAD")


@pytest.fixture(autouse=True)
def own_git_configuration(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    config = write(
        tmp_path / "gitconfig",
        '[user]\nname = T\nemail = t@t\n[init]\ndefaultBranch = main\n[protocol "file"]\nallow = always\n',
    )
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", str(config))
    monkeypatch.setenv("GIT_CONFIG_NOSYSTEM", "1")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    """Three commits; the first has no engine."""
    folder = tmp_path / "user"
    folder.mkdir()
    git(folder, "init", "--quiet")
    commit(folder, "start", README="hello\n")
    commit(folder, "engine: always switch", toy_engine__core_py="SPEED = 1\n")
    commit(folder, "engine: skip the switch", toy_engine__core_py="SPEED = 2\n")
    return folder


@pytest.fixture
def trees() -> Iterator[TreeCache]:
    with TreeCache() as cache:
        yield cache


def snapshot(folder: Path) -> dict[str, tuple[int, int, bytes]]:
    """Mode, modification time and content of every file in `folder`, `.git` included."""
    found: dict[str, tuple[int, int, bytes]] = {}
    for path in sorted(folder.rglob("*")):
        about = path.lstat()
        content = path.read_bytes() if path.is_file() and not path.is_symlink() else b""
        found[str(path.relative_to(folder))] = (about.st_mode, about.st_mtime_ns, content)
    return found


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
def test_any_revision_that_git_understands(repository: Path, trees: TreeCache, revision: str) -> None:
    git(repository, "tag", "-a", "v1", "-m", "release", "HEAD~1")
    expected = git(repository, "rev-list", "-1", revision)
    subject = resolve_subject(revision, FACTORY, repository, trees)
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
def test_what_is_no_revision_is_refused_and_runs_nothing(repository: Path, trees: TreeCache, revision: str) -> None:
    before = snapshot(repository)
    with pytest.raises(UsageError, match=r"revision|^'"):
        resolve_subject(revision, FACTORY, repository, trees)
    assert snapshot(repository) == before
    assert not list(repository.parent.rglob("pwned"))


def test_the_export_holds_every_file_of_the_revision_as_git_has_it(repository: Path, trees: TreeCache) -> None:
    write(repository / "run.sh", "#!/bin/sh\n").chmod(0o755)
    (repository / "link").symlink_to("toy_engine/core.py")
    write(repository / ".gitattributes", "hidden export-ignore\nversion export-subst\n")
    write(repository / "hidden", "git archive would leave this out\n")
    write(repository / "version", "$Format:%H$\n")
    write(repository / "Ünïcode dir/ä b.txt", "x")
    head = commit(repository, "odd files")
    write(repository / ".git/info/sparse-checkout", "/toy_engine/\n")
    git(repository, "config", "core.sparseCheckout", "true")
    root = resolve_subject("HEAD", FACTORY, repository, trees).engine_root
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
    with TreeCache() as trees:
        base, head = resolve_pair(None, None, FACTORY, repository, trees)
        resolve_subject("HEAD~1", FACTORY, repository, trees)
        assert base.engine_root is not None
        assert (base.engine_root / "toy_engine/core.py").read_text() == "SPEED = 2\n"
        assert head.engine_root == repository
        assert (head.dirty, head.revision) == (True, base.revision)
    clean()
    assert snapshot(repository) == before


def test_equal_trees_are_exported_once(repository: Path, trees: TreeCache) -> None:
    first = resolve_subject("HEAD", FACTORY, repository, trees)
    again = commit(repository, "an empty commit")
    second = resolve_subject("HEAD", FACTORY, repository, trees)
    assert second.engine_root == first.engine_root
    assert (second.revision, second.identity()) == (again, second.identity())
    assert second.identity() != first.identity()
    assert [path.name for path in cache_folder().iterdir()] == [git(repository, "rev-parse", "HEAD^{tree}")]


RESOLVE = """
import sys, time
from pathlib import Path
from harness.subject import TreeCache, resolve_subject
with TreeCache() as trees:
    print(resolve_subject(sys.argv[2], sys.argv[3], Path(sys.argv[1]), trees).engine_root, flush=True)
    time.sleep(float(sys.argv[4]))
"""


def resolver(repository: Path, revision: str, hold_s: float) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", RESOLVE, str(repository), revision, FACTORY, str(hold_s)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=ROOT, start_new_session=True)


def test_processes_that_export_at_once_share_one_tree(repository: Path) -> None:
    for number in range(200):
        write(repository / f"data/{number}.txt", str(number))
    commit(repository, "many files")
    processes = [resolver(repository, "HEAD", 0.0) for _ in range(4)]
    roots = {process.communicate(timeout=60)[0].strip() for process in processes}
    assert [process.returncode for process in processes] == [0] * 4
    assert len(roots) == 1
    assert git(repository, f"--work-tree={roots.pop()}", "status", "--porcelain") == ""
    assert len(list(cache_folder().iterdir())) == 1


def test_a_killed_export_is_never_used_and_is_cleaned(repository: Path, trees: TreeCache) -> None:
    git(repository, "config", "filter.slow.smudge", "sleep 60; cat")
    write(repository / ".gitattributes", "written_last filter=slow\n")
    commit(repository, "a file that takes long to write", written_last="content\n")
    process = resolver(repository, "HEAD", 0.0)
    deadline = time.monotonic() + 30
    while not list(cache_folder().glob(".building-*/tree/toy_engine")):
        assert time.monotonic() < deadline
        time.sleep(0.02)
    os.killpg(process.pid, signal.SIGKILL)
    process.communicate()
    left = list(cache_folder().iterdir())
    assert [path.name.startswith(".building-") for path in left] == [True]
    git(repository, "config", "filter.slow.smudge", "cat")
    root = resolve_subject("HEAD", FACTORY, repository, trees).engine_root
    assert root is not None
    assert (root / "written_last").read_text() == "content\n"
    assert clean().removed == 1
    assert list(cache_folder().iterdir()) == [root]


def test_clean_keeps_what_is_in_use_until_its_user_is_gone_even_killed(repository: Path) -> None:
    process = resolver(repository, "HEAD", 60.0)
    assert process.stdout is not None
    root = Path(process.stdout.readline().strip())
    with TreeCache() as trees:
        resolve_subject("HEAD~1", FACTORY, repository, trees)
    done = clean()
    assert (done.removed, done.in_use) == (1, 1)
    assert done.freed_bytes == len("hello\n") + len("SPEED = 1\n")
    assert (root / "toy_engine/core.py").exists()
    os.killpg(process.pid, signal.SIGKILL)
    process.communicate()
    assert clean().removed == 1
    assert list(cache_folder().iterdir()) == []
    assert clean().removed == 0


def test_submodules_and_lfs_files_are_told(repository: Path, trees: TreeCache, tmp_path: Path) -> None:
    other = tmp_path / "other"
    other.mkdir()
    git(other, "init", "--quiet")
    commit(other, "library", lib_py="")
    git(repository, "submodule", "--quiet", "add", str(other), "third_party/lib")
    pointer = "version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 5\n"
    commit(repository, "submodule and LFS", weights=pointer)
    subject = resolve_subject("HEAD", FACTORY, repository, trees)
    assert subject.notes == (
        "submodule third_party/lib is left empty",
        "1 Git LFS files are pointers, without their content",
    )
    assert subject.engine_root is not None
    assert list((subject.engine_root / "third_party/lib").iterdir()) == []
    assert resolve_subject("HEAD~1", FACTORY, repository, trees).notes == ()


def test_a_revision_without_the_engine_says_so_instead_of_measuring_another(repository: Path, trees: TreeCache) -> None:
    with pytest.raises(NoEngineError, match=r"'HEAD~2' .* has no package 'toy_engine'"):
        resolve_subject("HEAD~2", FACTORY, repository, trees)


def test_the_engine_is_found_where_the_user_stands(repository: Path, trees: TreeCache) -> None:
    commit(repository, "move it", project__src__toy_engine__core_py="SPEED = 9\n")
    git(repository, "rm", "-rq", "toy_engine")
    commit(repository, "only in the subfolder")
    project = repository / "project"
    subject = resolve_subject("HEAD", FACTORY, project, trees)
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


def test_base_defaults_to_where_the_branch_left_main(repository: Path) -> None:
    main = git(repository, "rev-parse", "HEAD")
    git(repository, "checkout", "-q", "-b", "feature")
    commit(repository, "feature work", toy_engine__core_py="SPEED = 4\n")
    assert merge_base(repository) == main
    git(repository, "checkout", "-q", "main")
    assert merge_base(repository) == git(repository, "rev-parse", "HEAD~1")  # clean main: against its parent
    write(repository / "toy_engine/core.py", "SPEED = 5\n")
    assert merge_base(repository) == main
    clone = repository.parent / "clone"
    git(repository.parent, "clone", "--quiet", str(repository), str(clone))
    commit(clone, "ahead of origin", toy_engine__core_py="SPEED = 6\n")
    assert merge_base(clone) == main


def test_no_base_to_find(repository: Path, tmp_path: Path) -> None:
    git(repository, "branch", "-q", "-m", "trunk")
    with pytest.raises(UsageError, match="no main branch"):
        merge_base(repository)
    alone = tmp_path / "alone"
    alone.mkdir()
    git(alone, "init", "--quiet")
    commit(alone, "only", toy_engine__core_py="")
    with pytest.raises(UsageError, match="only commit"):
        merge_base(alone)
    with pytest.raises(UsageError, match="no git repository"):
        merge_base(tmp_path)


def test_overrides_alone_compare_one_code_with_itself(repository: Path, trees: TreeCache) -> None:
    base, head = resolve_pair(None, None, FACTORY, repository, trees, head_overrides=["engine.lora_rank=16"])
    assert (base.name, head.name) == (".", ".")
    assert (base.overrides, head.overrides) == ((), ("engine.lora_rank=16",))
    assert base.identity() != head.identity()


def test_an_engine_that_lies_nowhere_near_is_taken_as_installed(repository: Path) -> None:
    subject = working_tree("json:loads", repository)
    assert (subject.name, subject.engine_root, subject.revision) == ("installed", None, None)


def test_a_bare_repository_and_a_linked_worktree_serve_too(repository: Path, trees: TreeCache, tmp_path: Path) -> None:
    bare, linked = tmp_path / "bare.git", tmp_path / "linked"
    git(tmp_path, "clone", "--quiet", "--bare", str(repository), str(bare))
    git(repository, "worktree", "add", "--quiet", "--detach", str(linked), "HEAD~1")
    assert resolve_subject("main", FACTORY, bare, trees).revision == git(repository, "rev-parse", "main")
    assert resolve_subject("HEAD", FACTORY, linked, trees).revision == git(repository, "rev-parse", "main~1")


def test_a_shallow_clone_is_named_as_the_cause(repository: Path, tmp_path: Path) -> None:
    shallow = tmp_path / "shallow"
    git(tmp_path, "clone", "--quiet", "--depth=1", f"file://{repository}", str(shallow))
    with pytest.raises(UsageError, match="unshallow"):
        resolve_commit(shallow, "HEAD~1")


def test_a_cache_that_cannot_be_written_is_a_usage_error(
    repository: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(write(tmp_path / "file", "")))
    with TreeCache() as trees, pytest.raises(UsageError, match="cannot export"):
        resolve_subject("HEAD", FACTORY, repository, trees)


def test_the_cache_follows_the_xdg_specification(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    for value in ("", "relative/path"):
        monkeypatch.setenv("XDG_CACHE_HOME", value)
        assert cache_folder() == tmp_path / ".cache/stepduel/trees"
