"""Source trees of git revisions, kept in the cache by git's hash of their content.

A revision is exported, not checked out with `git worktree add`: a worktree registers itself in the user's repository,
has to be pruned there, and stays locked when we are killed. An export touches nothing of the repository, and keyed by
git's hash of its content it serves every commit and clone with the same files. `git archive` would do for most
repositories but leaves out paths marked `export-ignore`; so git itself writes the files, from a private index, into a
folder of ours.

Submodules are exported from the user's clones of them, at the commit that the revision names, and Git LFS files take
their content from what `git lfs` has fetched. Nothing is fetched here; `Tree.notes` says what is not there.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import tempfile
from dataclasses import dataclass
from pathlib import Path

from harness.errors import UsageError
from harness.subject.cache import SubjectCache
from harness.subject.checkout import copy_tree
from harness.subject.git import EXPORT_TIMEOUT_S, GitError, git, line
from harness.units import some_of

_LFS_POINTER = b"version https://git-lfs.github.com/spec/"
_LARGEST_LFS_POINTER_BYTES = 1024


@dataclass(frozen=True, kw_only=True)
class Tree:
    """An exported tree. `key` tells its content; `notes` name what is not in it although the revision has it."""

    folder: Path
    key: str
    notes: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class _Part:
    """What comes into an exported tree from elsewhere: a submodule's tree, or a file of Git LFS."""

    name: str
    source: Path
    key: str


def export_tree(cache: SubjectCache, repository: Path, commit: str) -> Tree:
    """Return the files of `commit`, exported now or before. Raises `UsageError` when they cannot be written."""
    try:
        tree_hash = git(repository, "rev-parse", "--verify", f"{commit}^{{tree}}").decode().strip()

        def write(folder: Path, lock: int) -> None:
            _write(repository, tree_hash, folder, lock)

        folder = cache.entry("trees", tree_hash, write, read_only=True)
        parts, notes = _parts(cache, repository, tree_hash, folder)
        if not parts:
            return Tree(folder=folder, key=tree_hash, notes=notes)
        content = [tree_hash, [(part.name, part.key) for part in parts]]
        key = hashlib.sha256(json.dumps(content).encode()).hexdigest()[:40]

        def fill(whole: Path, _: int) -> None:
            whole.rmdir()
            copy_tree(folder, whole)
            for part in parts:
                target = whole / part.name
                if part.source.is_dir():
                    target.rmdir()
                    copy_tree(part.source, target)
                else:
                    shutil.copyfile(part.source, target)

        return Tree(folder=cache.entry("trees", key, fill, read_only=True), key=key, notes=notes)
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


def _parts(
    cache: SubjectCache, repository: Path, tree_hash: str, folder: Path
) -> tuple[tuple[_Part, ...], tuple[str, ...]]:
    """Return what a plain export lacks and is on this disk, and say what is not."""
    parts: list[_Part] = []
    notes: list[str] = []
    pointers: list[str] = []
    clones = _Clones(repository, tree_hash)
    for entry in git(repository, "ls-tree", "-r", "-z", "--full-tree", tree_hash).split(b"\0"):
        if not entry:
            continue
        about, _, encoded = entry.partition(b"\t")
        name = os.fsdecode(encoded)
        if about.startswith(b"160000"):
            commit = about.split()[2].decode()
            clone = clones.of(name)
            if clone is None:
                notes.append(f"submodule {name} is empty: run git submodule update --init {name}")
            elif line(clone, "rev-parse", "--verify", "--quiet", f"{commit}^{{commit}}") is None:
                notes.append(f"submodule {name} is empty: its clone lacks {commit[:12]}: run git -C {name} fetch")
            else:
                tree = export_tree(cache, clone, commit)
                parts.append(_Part(name=name, source=tree.folder, key=tree.key))
                notes += [f"in submodule {name}: {note}" for note in tree.notes]
        elif about.startswith(b"100") and (oid := _lfs_object(folder / name)) is not None:
            content = clones.git_dir / "lfs" / "objects" / oid[:2] / oid[2:4] / oid
            if content.is_file():
                parts.append(_Part(name=name, source=content, key=oid))
            else:
                pointers.append(name)
    if pointers:
        notes.append(f"files of Git LFS without their content: {some_of(pointers)}: run git lfs fetch --all")
    return tuple(parts), tuple(notes)


class _Clones:
    """Where the submodules of a tree are cloned to: git keeps them by name, and .gitmodules tells a path's name."""

    def __init__(self, repository: Path, tree_hash: str) -> None:
        self.git_dir = Path(line(repository, "rev-parse", "--path-format=absolute", "--git-common-dir") or "")
        top = line(repository, "rev-parse", "--show-toplevel")
        self._top = Path(top) if top else None
        asked = ("config", "--null", "--blob", f"{tree_hash}:.gitmodules", "--get-regexp", r"^submodule\..*\.path$")
        found = [entry.partition("\n") for entry in (line(repository, *asked) or "").split("\0") if entry.strip()]
        self._names = {path: key.strip()[len("submodule.") : -len(".path")] for key, _, path in found}

    def of(self, path: str) -> Path | None:
        """Return a repository with the submodule's commits; None if there is none."""
        for place in (
            self.git_dir / "modules" / self._names.get(path, path),
            *([self._top / path / ".git"] if self._top else []),
        ):
            folder = place.parent if place.name == ".git" else place
            if place.exists() and line(folder, "rev-parse", "--git-dir") is not None:
                return folder
        return None


def _lfs_object(path: Path) -> str | None:
    """Return the hash of a pointer's content; None where the file is none."""
    try:
        if path.stat().st_size > _LARGEST_LFS_POINTER_BYTES:
            return None
        text = path.read_bytes()
    except FileNotFoundError:
        return None
    found = re.search(rb"^oid sha256:([0-9a-f]{64})$", text, re.MULTILINE) if text.startswith(_LFS_POINTER) else None
    return found[1].decode() if found else None
