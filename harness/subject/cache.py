"""The cache of code that is measured: `$XDG_CACHE_HOME/stepduel/{trees,releases,environments}/<hash of its content>`.

An entry is built aside and renamed, so a half-built one is never used. Its builder holds a lock on the folder it builds
in, and hands it down to the tools it starts: who wants the same entry waits, and takes over what a killed builder left,
but not while a tool of that builder still writes there. Whoever uses an entry holds a shared lock on it, and `clean`
removes what it can lock for itself. All are flocks, which the kernel drops even after kill -9.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import stat
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Final, Literal, Self

from harness.errors import UsageError

Kind = Literal["trees", "releases", "environments", "sides"]
KINDS: Final[tuple[Kind, ...]] = ("trees", "releases", "environments", "sides")
LOGS: Final = "logs"

Builder = Callable[[Path, int], None]
"""Fills a new folder. The descriptor is its lock, to be inherited by every process that writes into the folder."""

_BUILDING = ".building-"
_REMOVED = ".removed-"
_PRIVATE = ".private-"


def cache_folder() -> Path:
    """Return where entries are kept. A relative XDG_CACHE_HOME is ignored, as its specification wants."""
    base = os.environ.get("XDG_CACHE_HOME", "")
    return (Path(base) if Path(base).is_absolute() else Path.home() / ".cache") / "stepduel"


def _say_nothing(text: str) -> None:
    del text


@dataclass(kw_only=True)
class SubjectCache:
    """Keeps what it has handed out from being cleaned until it is closed: use it in a `with` statement.

    `announce` is told in one line what takes minutes.
    """

    folder: Path = field(default_factory=cache_folder)
    announce: Callable[[str], None] = _say_nothing
    _open: contextlib.ExitStack = field(default_factory=contextlib.ExitStack, repr=False)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._open.close()

    def entry(self, kind: Kind, key: str, build: Builder, *, read_only: bool) -> Path:
        """Return the folder of an entry, built now by `build` or before by anybody. Raises what `build` does."""
        target = self.folder / kind / key
        target.parent.mkdir(parents=True, exist_ok=True)
        while not self._hold(target):
            self._build(target, build, read_only=read_only)
        return target

    def log(self, name: str) -> Path:
        """Return the file that a build's tools write to; it is replaced by the next build of the same name."""
        folder = self.folder / LOGS
        folder.mkdir(parents=True, exist_ok=True)
        return folder / f"{name}.log"

    def link(self, target: Path) -> Path:
        """Return a folder with nothing in it but a link to `target`, under its name, until this cache is closed."""
        folder = self.private()
        (folder / target.name).symlink_to(target)
        return folder

    def private(self) -> Path:
        """Return a new folder of this process alone, which is removed when this cache is closed.

        What a killed process left of such folders is removed first.
        """
        parent = self.folder / "sides"
        _clean(parent)
        parent.mkdir(parents=True, exist_ok=True)
        while not self._hold(folder := Path(tempfile.mkdtemp(prefix=_PRIVATE, dir=parent))):
            pass  # another process has taken it for a killed one's, before it was locked
        self._open.callback(remove, folder)
        return folder

    def _hold(self, entry: Path) -> bool:
        """Lock `entry` against cleaning until this cache is closed; False if it is not there."""
        lock = _lock(entry, fcntl.LOCK_SH)
        if lock is None:
            return False
        self._open.callback(os.close, lock)
        return True

    def _build(self, target: Path, build: Builder, *, read_only: bool) -> None:
        """Build aside and rename into place, or wait for the process that does so. The caller looks what came of it."""
        aside = target.parent / f"{_BUILDING}{target.name}"
        aside.mkdir(exist_ok=True)
        lock = _lock(aside, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if lock is None and aside.exists():
            self.announce(f"waiting for another process that builds {target}")
            lock = _lock(aside, fcntl.LOCK_EX)
        if lock is None:
            return
        try:
            if not target.exists():
                for left in aside.iterdir():
                    remove(left)
                content = aside / "content"
                content.mkdir()
                build(content, lock)
                if read_only:
                    _make_read_only(content)
                content.rename(target)
                if read_only:
                    target.chmod(0o555)  # only now: a folder that moves to another parent must be writable
        finally:
            remove(aside)
            os.close(lock)


def _make_read_only(folder: Path) -> None:
    """Take write permission from everything below `folder`."""
    for path in _walk(folder):
        if not path.is_symlink():
            path.chmod(stat.S_IMODE(path.stat().st_mode) & ~0o222)


def _lock(folder: Path, kind: int) -> int | None:
    """Open and lock `folder`; None if it is gone, was removed meanwhile, or is used by others (`LOCK_NB`)."""
    try:
        descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    except FileNotFoundError:
        return None
    try:
        fcntl.flock(descriptor, kind)
        # Between opening and locking, the folder may have been moved away: then the lock is on a dead one.
        if os.path.samestat(os.fstat(descriptor), folder.stat()):
            return descriptor
    except (BlockingIOError, FileNotFoundError):
        pass
    except BaseException:  # Ctrl-C while waiting
        os.close(descriptor)
        raise
    os.close(descriptor)
    return None


def _walk(folder: Path) -> Iterator[Path]:
    """Every path below `folder`, without following links."""
    for root, folders, files in os.walk(folder):
        for name in (*folders, *files):
            yield Path(root, name)


def remove(path: Path) -> None:
    """Remove a file, a link, or a folder with all that is in it, read-only as it may be."""
    if path.is_symlink() or not path.is_dir():
        path.unlink()
        return
    # Write permission on a folder is needed to empty it; files do not need theirs.
    path.chmod(0o700)
    for inner in _walk(path):
        if inner.is_dir() and not inner.is_symlink():
            inner.chmod(0o700)
    shutil.rmtree(path)


@dataclass(frozen=True, kw_only=True)
class Cleaned:
    """What `clean` did to the entries of one kind."""

    removed: int
    in_use: int
    freed_bytes: int


def clean(folder: Path | None = None) -> dict[Kind, Cleaned]:
    """Remove entries that nobody uses, what killed builders left behind, and logs. Raises `UsageError`."""
    folder = folder or cache_folder()
    try:
        cleaned = {kind: _clean(folder / kind) for kind in KINDS}
        if not any(kind.in_use for kind in cleaned.values()) and (folder / LOGS).is_dir():
            remove(folder / LOGS)
    except OSError as error:
        raise UsageError(f"cannot clean {folder}: {error}") from error
    return cleaned


def _clean(folder: Path) -> Cleaned:
    removed = in_use = freed = 0
    for path in sorted(folder.iterdir()) if folder.is_dir() else []:
        if path.is_symlink() or not path.is_dir():  # none of ours, as a file browser leaves them
            path.unlink()
            continue
        descriptor = _lock(path, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if descriptor is None:
            in_use += path.exists()
            continue
        try:
            # Moved away first: an entry that is being removed must not be found by its hash.
            doomed = Path(tempfile.mkdtemp(prefix=_REMOVED, dir=folder))
            path.rename(doomed)
            freed += sum(file.lstat().st_size for file in _walk(doomed) if file.is_symlink() or not file.is_dir())
            remove(doomed)
            removed += 1
        finally:
            os.close(descriptor)
    return Cleaned(removed=removed, in_use=in_use, freed_bytes=freed)
