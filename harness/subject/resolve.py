"""What is measured: the code an engine is imported from, and how that code is told apart from other code.

A subject is `.`, the working tree with its uncommitted changes, where it stands; a git revision, exported into the
cache (`trees`); or, where neither the folder nor its repository holds the engine, whatever is installed.
"""

from __future__ import annotations

import hashlib
import json
import os
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from harness.errors import UsageError
from harness.subject.git import GitError, git, line, merge_base, resolve_commit
from harness.subject.trees import TreeCache

WORKING_TREE = "."
LARGEST_HASHED_BYTES = 16 << 20
"""Untracked files beyond this are told apart by size and modification time instead of their content."""


class NoEngineError(UsageError):
    """The code does not hold the engine's package: a comparison with it is invalid (`cannot_run`)."""


@dataclass(frozen=True, kw_only=True)
class Subject:
    """One body of code. `engine_root` goes first on the workers' `sys.path`; None takes the engine as installed."""

    name: str
    engine_root: Path | None
    python: Path
    revision: str | None
    """Full git hash; None outside a repository."""
    dirty: bool | None
    """Whether tracked files differ from `revision`; None where there is no revision."""
    changes: str | None = None
    """Hash over everything uncommitted, untracked files included; None where nothing is."""
    overrides: tuple[str, ...] = ()
    """KEY=VALUE of this side alone, in the order given."""
    notes: tuple[str, ...] = ()
    """What the code lacks although its revision has it: submodules, Git LFS content."""

    def identity(self, versions: Mapping[str, str] | None = None) -> str:
        """Return 16 hexadecimal digits, equal for equal code, overrides and `versions` of what it imports.

        Where the code has no revision (installed, or outside a repository) only its place and the versions tell.
        """
        place = None if self.revision else str(self.engine_root)
        parts = [self.revision, self.changes, list(self.overrides), dict(sorted((versions or {}).items())), place]
        return hashlib.sha256(json.dumps(parts).encode()).hexdigest()[:16]


def resolve_subject(
    name: str, factory: str, folder: Path, trees: TreeCache, *, overrides: Sequence[str] = ()
) -> Subject:
    """Return the subject `name`: `.` or a revision of the repository around `folder`.

    `factory` (`package.module:callable`) says which package it must hold. An exported tree stays until `trees` is
    closed. Raises `UsageError` for a name that is no revision and `NoEngineError` for code without the package.
    """
    if name == WORKING_TREE:
        return working_tree(factory, folder, overrides=overrides)
    commit = resolve_commit(folder, name)
    tree = trees.tree(folder, commit)
    # The user may stand in a subfolder that holds the engine; the same place is looked for in the export.
    prefix = line(folder, "rev-parse", "--show-prefix") or ""
    root = _engine_root(factory, (tree.folder / prefix, tree.folder))
    if root is None:
        package = _package(factory)
        raise NoEngineError(
            f"revision {name!r} ({commit[:12]}) has no package {package!r}: the engine is younger, or lies elsewhere"
        )
    return Subject(
        name=name,
        engine_root=root,
        python=Path(sys.executable),
        revision=commit,
        dirty=False,
        overrides=tuple(overrides),
        notes=tree.notes,
    )


def resolve_pair(
    base: str | None,
    head: str | None,
    factory: str,
    folder: Path,
    trees: TreeCache,
    *,
    base_overrides: Sequence[str] = (),
    head_overrides: Sequence[str] = (),
) -> tuple[Subject, Subject]:
    """Return both subjects of a comparison, with the names that `default_names` gives."""
    base, head = default_names(base, head, folder, one_code=bool(base_overrides or head_overrides))
    return (
        resolve_subject(base, factory, folder, trees, overrides=base_overrides),
        resolve_subject(head, factory, folder, trees, overrides=head_overrides),
    )


def default_names(base: str | None, head: str | None, folder: Path, *, one_code: bool) -> tuple[str, str]:
    """Return the names of both subjects. HEAD defaults to `.`, BASE to the merge-base with the main branch.

    With neither name given and `one_code`, it is one code in two configurations: BASE is `.` too.
    """
    if base is None:
        base = WORKING_TREE if head is None and one_code else merge_base(folder)
    return base, head or WORKING_TREE


def working_tree(factory: str, folder: Path, *, overrides: Sequence[str] = ()) -> Subject:
    """Return the code that `factory` is imported from when the user stands in `folder`.

    Looked for in `folder`, then in the root of its git repository, each also with a `src` folder. Imported in place:
    a copy would lack what the repository ignores, such as extensions that were built there.
    """
    top = line(folder, "rev-parse", "--show-toplevel")
    root = _engine_root(factory, (folder, Path(top)) if top else (folder,))
    if root is None:
        return Subject(
            name="installed",
            engine_root=None,
            python=Path(sys.executable),
            revision=None,
            dirty=None,
            overrides=tuple(overrides),
        )
    revision, dirty = git_state(root)
    return Subject(
        name=WORKING_TREE,
        engine_root=root.resolve(),
        python=Path(sys.executable),
        revision=revision,
        dirty=dirty,
        changes=uncommitted(root) if revision else None,
        overrides=tuple(overrides),
    )


def git_state(folder: Path) -> tuple[str | None, bool | None]:
    """Return (revision, dirty) of the repository around `folder`; (None, None) where there is none, or no git."""
    revision = line(folder, "rev-parse", "--verify", "HEAD")
    if revision is None:
        return None, None
    changes = line(folder, "status", "--porcelain", "--untracked-files=no")
    return revision, None if changes is None else bool(changes)


def uncommitted(folder: Path) -> str | None:
    """Return 16 hexadecimal digits over what the working tree around `folder` adds to HEAD; None if nothing.

    Staged or not makes no difference; untracked files count unless ignored. Computed again after measuring, it tells
    whether somebody edited the code meanwhile. Raises `UsageError` if git fails.
    """
    try:
        top = Path(os.fsdecode(git(folder, "rev-parse", "--show-toplevel")).removesuffix("\n"))
        plain = ("--binary", "--full-index", "--no-color", "--no-ext-diff", "--no-textconv", "--no-renames")
        diff = git(top, "diff", *plain, "HEAD", "--")
        names = git(top, "ls-files", "--others", "--exclude-standard", "-z").split(b"\0")
    except GitError as error:
        raise UsageError(f"cannot tell what is uncommitted in {folder}: {error}") from error
    untracked = sorted(os.fsdecode(name) for name in names if name)
    if not diff and not untracked:
        return None
    digest = hashlib.sha256(diff)
    for name in untracked:
        digest.update(b"\0" + os.fsencode(name) + b"\0")
        digest.update(_content(top / name))
    return digest.hexdigest()[:16]


def _content(path: Path) -> bytes:
    """What tells one untracked file from another: its content, or for a large one its size and modification time."""
    try:
        about = path.lstat()
        if path.is_symlink():
            return os.fsencode(path.readlink())
        if not path.is_file() or about.st_size > LARGEST_HASHED_BYTES:
            return f"{about.st_mode} {about.st_size} {about.st_mtime_ns}".encode()
        return hashlib.sha256(path.read_bytes()).digest()
    except OSError as error:
        return f"unreadable: {error.errno}".encode()  # gone meanwhile, or not ours to read: told apart by that


def _package(factory: str) -> str:
    return factory.partition(":")[0].partition(".")[0]


def _engine_root(factory: str, bases: Iterable[Path]) -> Path | None:
    """First of `bases`, or its `src` folder, that holds the package of `factory`."""
    package = _package(factory)
    for base in bases:
        for root in (base, base / "src"):
            if (root / package).is_dir() or (root / f"{package}.py").is_file():
                return root
    return None
