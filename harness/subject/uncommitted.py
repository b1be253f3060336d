"""What a working tree adds to its revision."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path
from typing import Final

from harness.errors import UsageError
from harness.subject.git import GitError, git, line

LARGEST_HASHED_BYTES: Final = 16 << 20
"""Untracked files beyond this are told apart by size and modification time instead of their content."""


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
