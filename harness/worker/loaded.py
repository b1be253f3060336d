"""What a rank has loaded: files of modules and shared objects, files that were opened for reading, programs started.

For the coordinator, which tells whether a side ran its own files (`duel.loaded`). An audit hook sees every `open` and
every start of a process; any other event of a step costs it a fifth of a microsecond. Files that C++ or
Rust code opens are seen only while they are mapped into memory.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from harness.worker.side_paths import INSTALLED, belongs_to_environment

_WRITES: Final = os.O_WRONLY | os.O_RDWR
_STARTS: Final = frozenset(
    ("os.exec", "os.fork", "os.forkpty", "os.posix_spawn", "os.spawn", "os.system", "subprocess.Popen")
)


class Loaded:
    """Looks on from when it is made, in this process only."""

    def __init__(self, working_tree: Path | None, side_root: Path | None) -> None:
        self._roots = tuple(f"{root}{os.sep}" for root in (working_tree, side_root) if root is not None)
        self._shared = None if working_tree is None else f"{working_tree}{os.sep}"
        self._opened: set[str] = set()
        self._elsewhere: set[str] = set()
        self._started: set[str] = set()
        sys.addaudithook(self._hook())

    def _hook(self) -> Callable[[str, tuple[Any, ...]], None]:
        """Return what is called at every audit event, of which a step may have dozens.

        A function, not a method: for one of those Python builds an error at every event, and that takes 2 µs.
        """
        opened, started, pid, getpid = self._open, self._started, os.getpid(), os.getpid

        def see(event: str, args: tuple[Any, ...]) -> None:
            if event == "open":
                path, _, flags = args
                if isinstance(path, (str, bytes)) and getpid() == pid:
                    opened(os.fsdecode(path), flags)
            elif event in _STARTS and getpid() == pid:
                started.add(_program(event, args))

        return see

    def _open(self, path: str, flags: int) -> None:
        if not path.startswith(self._roots) or "/../" in path:
            path = os.path.abspath(path)  # noqa: PTH100  # links stay
            if not path.startswith(self._roots):  # most of what is opened
                if len(self._elsewhere) < _MOST_ELSEWHERE:
                    self._elsewhere.add(path)
                return
        if not flags & _WRITES:
            self._opened.add(path)
        elif self._shared is not None and not path.startswith(self._shared):
            target = os.path.realpath(path)
            if target.startswith(self._shared):
                raise PermissionError(
                    f"{path}: is a link to {target}, which both sides share with the user's working tree: "
                    "it must not be written to"
                )

    def write(self, path: Path) -> None:
        """Write what was loaded so far as JSON."""
        modules = sorted({file for module in list(sys.modules.values()) if (file := _file(module)) is not None})
        own = {file for file in modules if self._counts(file)}
        opened = {file for file in self._opened if self._counts(file)} | self._behind_links()
        document = {
            "modules": sorted(own),
            "objects": sorted(file for file in _mapped() if self._counts(file)),
            "opened": sorted(file for file in opened if "__pycache__" not in file),
            "installed": sorted({name for file in modules if (name := _installed_name(file)) is not None}),
            "elsewhere": {file: _state(file) for file in modules if file not in own and _may_be_edited(file)},
            "started": sorted(self._started),
        }
        path.write_text(json.dumps(document), encoding="utf-8", errors="backslashreplace")

    def _behind_links(self) -> set[str]:
        """Files that were opened by a path outside, which leads inside: through a link to the repository."""
        outside = (
            file for file in self._elsewhere if not file.startswith(_SYSTEM) and not belongs_to_environment(file)
        )
        return {target for file in outside if self._counts(target := os.path.realpath(file))}

    def _counts(self, file: str) -> bool:
        if not file.startswith(self._roots) or file.startswith(_OWN):
            return False
        return not belongs_to_environment(file)


def _program(event: str, args: tuple[Any, ...]) -> str:
    """Return the name of a started program; `fork` for a copy of this process."""
    if "fork" in event or not args or not args[0]:
        return "fork" if "fork" in event else event
    first = args[0][0] if isinstance(args[0], (list, tuple)) else args[0]
    return Path(os.fsdecode(first)).name if isinstance(first, (str, bytes, os.PathLike)) else event


def _file(module: Any) -> str | None:
    found = getattr(module, "__file__", None)
    if not isinstance(found, str):
        return None
    return found if found.startswith("/") else os.path.abspath(found)  # noqa: PTH100  # links stay


def _installed_name(file: str) -> str | None:
    """Where in its environment's folder of packages a module lies, as `numpy/__init__.py`; None if in none."""
    for folder in INSTALLED:
        _, found, name = file.rpartition(folder)
        if found:
            return name
    return None


def _mapped() -> set[str]:
    """Files mapped into this process that are no modules by their name: libraries, and what is read by mapping it."""
    with Path("/proc/self/maps").open(encoding="utf-8", errors="surrogateescape") as maps:
        fields = (line.rstrip("\n").split(maxsplit=5) for line in maps)
        return {parts[5] for parts in fields if len(parts) == 6 and parts[5].startswith("/")}


def _may_be_edited(file: str) -> bool:
    return not belongs_to_environment(file) and not file.startswith((_LIBRARY, _OWN))


def _state(file: str) -> list[int] | None:
    try:
        about = Path(file).stat()
    except OSError:
        return None
    return [about.st_size, about.st_mtime_ns]


_MOST_ELSEWHERE: Final = 4000
"""Paths that are kept until the end: a loader may open a file for each item."""
_SYSTEM: Final = ("/dev/", "/etc/", "/proc/", "/sys/", "/usr/")
_OWN: Final = f"{Path(__file__).resolve().parent.parent}{os.sep}"
"""The harness, which is no part of what is measured."""
_LIBRARY: Final = f"{Path(os.__file__).parent}{os.sep}"
