"""The files of a side: a revision's or the working tree's, and which ignored files of the working tree go with them.

A side never runs in the user's folder, since then both sides would read the same configuration files and write over
each other's checkpoints. The working tree is copied once, when a command starts; what is edited later is not measured.
Files that git ignores are no part of a revision, but a script does not run without its data: they are shared by all
sides (`Ignored`), except code. Ignored code was built or generated from one state of the sources, and only the
working tree has that state.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path, PurePosixPath
from typing import Final

from harness.errors import UsageError
from harness.subject.git import GitError, git

LARGEST_COPIED_BYTES: Final = 1 << 20
"""An ignored file up to this is copied for every launch; a larger one is linked, and must not be written to."""
MOST_COPIED_BYTES: Final = 64 << 20
MOST_FILES: Final = 2000
"""A folder with more ignored files than this is linked as a whole."""
LARGEST_UNTRACKED_BYTES: Final = 64 << 20
"""An untracked file beyond this is data that nobody added to .gitignore: it is linked as well."""

# fmt: off
_CODE: Final = frozenset((
    ".a", ".c", ".cc", ".cpp", ".cu", ".cuh", ".cxx", ".h", ".hpp", ".o", ".pth", ".py", ".pyc", ".pyd", ".pyi", ".pyx",
    ".so", ".whl",
))
_NEVER: Final = frozenset((
    ".git", ".hypothesis", ".idea", ".ipynb_checkpoints", ".mypy_cache", ".nox", ".pytest_cache", ".ruff_cache", ".tox",
    ".vscode", "__pycache__", "node_modules",
))
"""Folders that no engine reads."""
# fmt: on
_OWN_RESULTS: Final = "results.db"
_ENVIRONMENTS: Final = ("pyvenv.cfg", "conda-meta")


@dataclass(frozen=True, kw_only=True)
class Ignored:
    """Ignored files of the working tree, as paths relative to its top. `copied` and `linked` go to every side."""

    copied: tuple[str, ...] = ()
    linked: tuple[str, ...] = ()
    code: tuple[str, ...] = ()
    """Built or generated code, which only the working tree's own side gets."""
    shared: tuple[str, ...] = ()
    """What `copied` and `linked` are in, as git names it: an ignored folder or file."""


@dataclass(frozen=True, kw_only=True)
class Checkout:
    """The files of one side, as they are before any launch, and the working tree that its user stands in."""

    tree: Path
    top: Path
    """Top folder of the working tree."""
    commit: str
    within: str
    """Where in it the command was started, a relative path."""
    ignored: Ignored = field(default_factory=Ignored)
    members: tuple[str, ...] = ()
    """Folders of it, relative, that the side's lock installs editable: they go on PYTHONPATH."""

    def moved(self, path: Path, root: Path) -> Path:
        """Return where `path`, a place in `tree`, lies in a copy of it at `root`; another path stays as it is."""
        return root / path.relative_to(self.tree) if path.is_relative_to(self.tree) else path


def top_folder(folder: Path) -> Path | None:
    """Return the top of the working tree around `folder`; None outside a repository."""
    try:
        return Path(os.fsdecode(git(folder, "rev-parse", "--show-toplevel")).removesuffix("\n")).resolve()
    except GitError:
        return None


def copy_working_tree(top: Path, target: Path, ignored: Ignored) -> Ignored:
    """Copy the files of the working tree into the empty folder `target`: tracked, untracked, and ignored code.

    Returns `ignored` with the untracked files that are too large to be copied. Raises `UsageError`.
    """
    large: list[str] = []
    for folder, names in _listings(top):
        found = []
        for name in names:
            path = folder / name
            if not path.is_symlink() and path.stat().st_size > LARGEST_UNTRACKED_BYTES and not _tracked(folder, name):
                large.append(str(path.relative_to(top)))
            else:
                found.append(os.path.relpath(path, top))
        _copy(top, found, target)
    _copy(top, ignored.code, target)
    return replace(ignored, linked=(*ignored.linked, *large), shared=(*ignored.shared, *large))


def copy_tree(source: Path, target: Path) -> None:
    """Copy a tree, links as links and with its times, into a new folder that can be written to."""
    _run(["cp", "-a", "--reflink=auto", "-T", str(source), str(target)])
    _run(["chmod", "-R", "u+w", str(target)])


def ignored_files(top: Path, named: Sequence[str] = ()) -> Ignored:
    """Return what becomes of the files that git ignores in the working tree. `named` are linked, whatever they are.

    Raises `UsageError` for a name that is not there.
    """
    for name in named:
        if PurePosixPath(name).is_absolute() or ".." in PurePosixPath(name).parts or not (top / name).exists():
            raise UsageError(f"subject.shared: {name!r}: expected a path that exists in {top}, relative to it")
    wanted = tuple(str(PurePosixPath(name)) for name in named)
    copied: list[str] = []
    code: list[str] = []
    linked, shared = list(wanted), list(wanted)
    left = MOST_COPIED_BYTES
    listed = git(top, "ls-files", "--others", "--ignored", "--exclude-standard", "--directory", "-z").split(b"\0")
    for entry in sorted(os.fsdecode(name).rstrip("/") for name in listed if name):
        files = list(_files(top, entry, MOST_FILES))
        if len(files) > MOST_FILES:
            linked.append(entry)
            shared.append(entry)
            continue
        before = len(copied) + len(linked)
        for name in files:
            path = top / name
            if any(PurePosixPath(name).is_relative_to(one) for one in wanted):
                continue
            if any(suffix in _CODE for suffix in path.suffixes[-3:]):
                code.append(name)
            elif path.is_symlink() or not path.is_file():
                linked.append(name)
            elif (size := path.stat().st_size) <= min(LARGEST_COPIED_BYTES, left):
                left -= size
                copied.append(name)
            else:
                linked.append(name)
        if len(copied) + len(linked) > before:
            shared.append(entry)
    return Ignored(copied=tuple(copied), linked=tuple(linked), code=tuple(code), shared=tuple(shared))


def _listings(folder: Path) -> Iterator[tuple[Path, list[str]]]:
    """Yield each repository in `folder`, itself and its submodules, with its tracked and untracked files."""
    listed = git(folder, "ls-files", "--cached", "--others", "--exclude-standard", "-z").split(b"\0")
    names, nested = [], []
    for name in sorted({os.fsdecode(entry).rstrip("/") for entry in listed if entry}):
        path = folder / name
        if path.is_dir() and not path.is_symlink():
            nested += [path] if (path / ".git").exists() else []
        elif os.path.lexists(path):  # a tracked one may have been deleted
            names.append(name)
    yield folder, names
    for inner in nested:
        yield from _listings(inner)


def _tracked(folder: Path, name: str) -> bool:
    return bool(git(folder, "ls-files", "--cached", "-z", "--", f":(literal){name}"))


def _files(top: Path, entry: str, most: int) -> Iterator[str]:
    """Yield the files of an ignored file or folder that an engine may read, a few more than `most` at most."""
    path = top / entry
    if any((folder / _OWN_RESULTS).exists() for folder in path.parents if folder.is_relative_to(top)):
        return
    if path.is_symlink() or not path.is_dir():
        yield entry
        return
    found = 0
    for root, folders, files in os.walk(path):
        here = Path(root)
        if here.name in _NEVER or any((here / mark).exists() for mark in (_OWN_RESULTS, *_ENVIRONMENTS)):
            folders.clear()
            continue
        folders[:] = sorted(name for name in folders if not name.endswith((".egg-info", ".dist-info")))
        links = [name for name in folders if (here / name).is_symlink()]
        for name in sorted((*files, *links)):
            yield str((here / name).relative_to(top))
            found += 1
            if found > most:
                return


def _copy(top: Path, names: Sequence[str], target: Path) -> None:
    """Copy files with their folders. Names go through a pipe: there may be more than fit on a command line."""
    if names:
        command = ["xargs", "-0", "cp", "-a", "--parents", "--reflink=auto", "-t", str(target), "--"]
        _run(command, cwd=top, given=b"\0".join(os.fsencode(name) for name in names))


def _run(command: Sequence[str], *, cwd: Path | None = None, given: bytes = b"") -> None:
    done = subprocess.run(command, cwd=cwd, input=given, capture_output=True, check=False)
    if done.returncode:
        complaint = done.stderr.decode(errors="replace").strip().splitlines() or [f"status {done.returncode}"]
        raise UsageError(f"cannot copy the files of a side: {complaint[0]}")
