"""Which files differ between two trees."""

from __future__ import annotations

import filecmp
import os
from pathlib import Path
from typing import Final

_NO_FILES: Final = frozenset((".git", "__pycache__"))


def differing_files(base: Path, head: Path) -> frozenset[str]:
    """Return the paths, relative to both trees, at which one has no file, or another one."""
    base_files, head_files = _files(base), _files(head)
    common = base_files & head_files
    return (base_files ^ head_files) | {name for name in common if not same_file(base / name, head / name)}


def same_file(one: Path, other: Path) -> bool:
    """Whether both exist with the same content; links are what they point to, as text."""
    try:
        if one.is_symlink() or other.is_symlink():
            return one.is_symlink() and other.is_symlink() and one.readlink() == other.readlink()
        return filecmp.cmp(one, other, shallow=False)
    except OSError:
        return False


def _files(tree: Path) -> frozenset[str]:
    found: list[str] = []
    for folder, folders, files in os.walk(tree):
        here = Path(folder)
        links = [name for name in folders if (here / name).is_symlink()]
        folders[:] = [name for name in folders if name not in _NO_FILES]
        found += [str((here / name).relative_to(tree)) for name in (*files, *links)]
    return frozenset(found)
