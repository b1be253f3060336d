"""Write under a name for a moment, then rename: nobody ever sees half a file."""

from __future__ import annotations

import contextlib
import tempfile
from collections.abc import Iterator
from pathlib import Path

from harness.errors import UsageError


@contextlib.contextmanager
def replacing(target: Path, *, force: bool, folder: bool) -> Iterator[Path]:
    """Yield a path to write to that becomes `target` when the block succeeds, and vanishes when it fails.

    Folders above it are made where they are missing, as for a report.
    The path is an existing empty folder with `folder`, a file to be made otherwise. In a folder that is there, only
    files of the names written are replaced, one by one; it keeps whatever else it holds. Raises UsageError where
    `target` exists and `force` is not given, is of the other kind, or its folder cannot be written to.
    """
    if target.exists() or target.is_symlink():
        if not force:
            raise UsageError(f"{target} exists already: give another name or --force to replace it")
        if target.is_dir() != folder:
            raise UsageError(f"{target} is a {'folder' if target.is_dir() else 'file'}: remove it or give another name")
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix=f".{target.name}-", dir=target.parent) as private:
            work = Path(private) / "new"
            if folder:
                work.mkdir()
            yield work
            if folder and target.exists():
                # Whatever else the folder holds, perhaps the trace itself, is not ours to remove.
                for file in work.iterdir():
                    file.replace(target / file.name)
            else:
                work.replace(target)
    except OSError as error:
        raise UsageError(f"{target} cannot be written: {error.strerror or error}") from error
