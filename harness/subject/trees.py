"""Source trees of git revisions, kept in the cache by git's hash of their content.

A revision is exported, not checked out with `git worktree add`: a worktree registers itself in the user's repository,
has to be pruned there, and stays locked when we are killed. An export touches nothing of the repository, and keyed by
git's hash of its content it serves every commit and clone with the same files. `git archive` would do for most
repositories but leaves out paths marked `export-ignore`; so git itself writes the files, from a private index, into a
folder of ours. Submodules become empty folders and Git LFS files stay pointers, and `Tree.notes` says so.
"""

from __future__ import annotations

import os
import tempfile
from dataclasses import dataclass
from pathlib import Path

from harness.errors import UsageError
from harness.subject.cache import SubjectCache
from harness.subject.git import EXPORT_TIMEOUT_S, GitError, git

_LFS_POINTER = b"version https://git-lfs.github.com/spec/"
_LARGEST_LFS_POINTER_BYTES = 1024


@dataclass(frozen=True, kw_only=True)
class Tree:
    """An exported tree. `notes` name what is not in it although the revision has it."""

    folder: Path
    notes: tuple[str, ...]


def export_tree(cache: SubjectCache, repository: Path, commit: str) -> Tree:
    """Return the files of `commit`, exported now or before. Raises `UsageError` when they cannot be written."""
    try:
        tree_hash = git(repository, "rev-parse", "--verify", f"{commit}^{{tree}}").decode().strip()

        def write(folder: Path, lock: int) -> None:
            _write(repository, tree_hash, folder, lock)

        folder = cache.entry("trees", tree_hash, write, read_only=True)
        return Tree(folder=folder, notes=_notes(repository, tree_hash, folder))
    except (GitError, OSError) as error:
        raise UsageError(f"cannot export {commit[:12]} into {cache.folder}: {error}") from error


def _write(repository: Path, tree_hash: str, folder: Path, lock: int) -> None:
    """Write the files of a tree into a new folder, through an index of our own."""
    git_dir = os.fsdecode(git(repository, "rev-parse", "--absolute-git-dir")).strip()
    where = (f"--git-dir={git_dir}", f"--work-tree={folder}")
    command = ("read-tree", "-m", "-u", "--no-sparse-checkout", tree_hash)
    with tempfile.TemporaryDirectory(prefix="index-", dir=folder.parent) as private:
        extra = {"GIT_INDEX_FILE": str(Path(private, "index"))}
        git(folder, *where, *command, timeout_s=EXPORT_TIMEOUT_S, extra=extra, inherited=(lock,))


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
