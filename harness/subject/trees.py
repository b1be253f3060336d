"""Source trees of git revisions, kept in a cache folder: `$XDG_CACHE_HOME/stepduel/trees/<tree hash>`.

A revision is exported, not checked out with `git worktree add`: a worktree registers itself in the user's repository,
has to be pruned there, and stays locked when we are killed. An export touches nothing of the repository, and keyed by
git's hash of its content it serves every commit and clone with the same files. `git archive` would do for most
repositories but leaves out paths marked `export-ignore`; so git itself writes the files, from a private index, into a
folder of ours. Submodules become empty folders and Git LFS files stay pointers, and `Tree.notes` says so.

A tree is built aside and renamed, so a half-made one is never used. It is made read-only. Whoever uses a tree holds a
shared flock on its folder, which the kernel drops even after kill -9; `clean` removes what it can lock for itself.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import stat
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Self

from harness.errors import UsageError
from harness.subject.git import EXPORT_TIMEOUT_S, GitError, git

_ASIDE = "."
_LFS_POINTER = b"version https://git-lfs.github.com/spec/"
_LARGEST_LFS_POINTER_BYTES = 1024


def cache_folder() -> Path:
    """Return where trees are kept. A relative XDG_CACHE_HOME is ignored, as its specification wants."""
    base = os.environ.get("XDG_CACHE_HOME", "")
    return (Path(base) if Path(base).is_absolute() else Path.home() / ".cache") / "stepduel" / "trees"


@dataclass(frozen=True, kw_only=True)
class Tree:
    """An exported tree. `notes` name what is not in it although the revision has it."""

    folder: Path
    notes: tuple[str, ...]


@dataclass(kw_only=True)
class TreeCache:
    """Exports trees and keeps them from being cleaned until it is closed: use it in a `with` statement."""

    folder: Path = field(default_factory=cache_folder)
    _locks: contextlib.ExitStack = field(default_factory=contextlib.ExitStack, repr=False)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._locks.close()

    def tree(self, repository: Path, commit: str) -> Tree:
        """Return the files of `commit`, exported now or before. Raises `UsageError` when they cannot be written."""
        try:
            tree_hash = git(repository, "rev-parse", "--verify", f"{commit}^{{tree}}").decode().strip()
            target = self.folder / tree_hash
            self.folder.mkdir(parents=True, exist_ok=True)
            while not self._hold(target):
                self._export(repository, tree_hash, target)
            return Tree(folder=target, notes=_notes(repository, tree_hash, target))
        except (GitError, OSError) as error:
            raise UsageError(f"cannot export {commit[:12]} into {self.folder}: {error}") from error

    def _hold(self, tree: Path) -> bool:
        """Lock `tree` against cleaning until this cache is closed; False if it is not there."""
        descriptor = _lock(tree, fcntl.LOCK_SH)
        if descriptor is None:
            return False
        self._locks.callback(os.close, descriptor)
        return True

    def _export(self, repository: Path, tree_hash: str, target: Path) -> None:
        """Write the tree aside and rename it into place, unless another process was faster."""
        aside = Path(tempfile.mkdtemp(prefix=f"{_ASIDE}building-", dir=self.folder))
        lock = _lock(aside, fcntl.LOCK_SH)
        try:
            _write(repository, tree_hash, aside / "tree", index=aside / "index")
            try:
                (aside / "tree").rename(target)
            except OSError:
                if not target.exists():
                    raise
            else:
                target.chmod(0o555)  # only now: a folder that moves to another parent must be writable
        finally:
            _remove(aside)
            if lock is not None:
                os.close(lock)


def _write(repository: Path, tree_hash: str, folder: Path, *, index: Path) -> None:
    """Write the files of a tree into a new folder, through an index of our own, and take their write permission."""
    folder.mkdir()
    git_dir = os.fsdecode(git(repository, "rev-parse", "--absolute-git-dir")).strip()
    where = (f"--git-dir={git_dir}", f"--work-tree={folder}")
    command = ("read-tree", "-m", "-u", "--no-sparse-checkout", tree_hash)
    git(folder, *where, *command, timeout_s=EXPORT_TIMEOUT_S, extra={"GIT_INDEX_FILE": str(index)})
    for path in _walk(folder):
        if not path.is_symlink():
            path.chmod(stat.S_IMODE(path.stat().st_mode) & ~0o222)


def _notes(repository: Path, tree_hash: str, folder: Path) -> tuple[str, ...]:
    """Say which submodules and Git LFS files the export lacks."""
    submodules: list[str] = []
    pointers = 0
    for entry in git(repository, "ls-tree", "-r", "-z", "--full-tree", tree_hash).split(b"\0"):
        if not entry:
            continue
        about, _, name = entry.partition(b"\t")
        if about.startswith(b"160000"):
            submodules.append(os.fsdecode(name))
        elif about.startswith(b"100") and _is_lfs_pointer(folder / os.fsdecode(name)):
            pointers += 1
    notes = [f"submodule {name} is left empty" for name in submodules]
    if pointers:
        notes.append(f"{pointers} Git LFS files are pointers, without their content")
    return tuple(notes)


def _is_lfs_pointer(path: Path) -> bool:
    try:
        if path.stat().st_size > _LARGEST_LFS_POINTER_BYTES:
            return False
        with path.open("rb") as file:
            return file.read(len(_LFS_POINTER)) == _LFS_POINTER
    except FileNotFoundError:
        return False


def _lock(folder: Path, kind: int) -> int | None:
    """Open and lock `folder`; None if it is gone, was removed meanwhile, or is used by others (`LOCK_NB`)."""
    try:
        descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    except FileNotFoundError:
        return None
    try:
        fcntl.flock(descriptor, kind)
        # Between opening and locking, `clean` may have moved the folder away: then the lock is on a dead one.
        if os.path.samestat(os.fstat(descriptor), folder.stat()):
            return descriptor
    except (BlockingIOError, FileNotFoundError):
        pass
    os.close(descriptor)
    return None


def _walk(folder: Path) -> Iterator[Path]:
    """Every path below `folder`, without following links."""
    for root, folders, files in os.walk(folder):
        for name in (*folders, *files):
            yield Path(root, name)


def _remove(folder: Path) -> None:
    # Write permission on a folder is needed to empty it; files do not need theirs.
    folder.chmod(0o700)
    for path in _walk(folder):
        if path.is_dir() and not path.is_symlink():
            path.chmod(0o700)
    shutil.rmtree(folder)


@dataclass(frozen=True, kw_only=True)
class Cleaned:
    """What `clean` did."""

    removed: int
    in_use: int
    freed_bytes: int


def clean(folder: Path | None = None) -> Cleaned:
    """Remove cached trees that nobody uses, and what killed exports left behind. Raises `UsageError`."""
    folder = folder or cache_folder()
    removed = in_use = freed = 0
    try:
        for path in sorted(folder.iterdir()) if folder.is_dir() else []:
            descriptor = _lock(path, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if descriptor is None:
                in_use += path.exists()
                continue
            try:
                # Moved away first: a tree that is being removed must not be found by its hash.
                doomed = Path(tempfile.mkdtemp(prefix=f"{_ASIDE}removed-", dir=folder))
                path.rename(doomed)
                freed += sum(file.lstat().st_size for file in _walk(doomed) if not file.is_dir())
                _remove(doomed)
                removed += 1
            finally:
                os.close(descriptor)
    except OSError as error:
        raise UsageError(f"cannot clean {folder}: {error}") from error
    return Cleaned(removed=removed, in_use=in_use, freed_bytes=freed)
