"""Each side's environment from its own lock file (`[subject] environment`): for commits that change a dependency.

`uv.lock` is installed by `uv sync`, without the packages of the repository itself: those are imported from the side's
own tree. A requirements file is installed by `uv pip`, its lines that name a folder left out for the same reason.
Equal locks share one environment.
"""

from __future__ import annotations

import hashlib
import re
import sys
import tomllib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from harness.environment import installed_versions
from harness.errors import UsageError
from harness.subject.cache import SubjectCache
from harness.subject.environments import cached_environment, environment_key
from harness.subject.installing import run_uv
from harness.subject.interpreter import Interpreter
from harness.subject.requires import required

LOCK: Final = "lock"
"""Value of `[subject] environment` that takes the first of `KNOWN` that a side has."""
UV_LOCK: Final = "uv.lock"
KNOWN: Final = (UV_LOCK, "requirements.txt")
_INCLUDES: Final = re.compile(r"^(?:-r|--requirement|-c|--constraint)[ =]\s*(?P<file>\S+)")
_EDITABLE: Final = re.compile(r"^(?:-e|--editable)[ =]\s*(?P<path>\S+)")
_FOLDER: Final = re.compile(r"^(?P<path>\.{1,2}(?:/\S*)?|file:\S+)(?:\s|$)")


@dataclass(frozen=True, kw_only=True)
class LockedEnvironment:
    """What a side runs in. `members` are folders of its tree, relative to it, that its lock installs editable."""

    interpreter: Interpreter
    members: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class Requirements:
    """What a requirements file asks for. `folders` are those that it installs from: the side's own packages."""

    lines: tuple[str, ...]
    constraints: tuple[str, ...]
    folders: tuple[Path, ...]


def provide_locked(
    cache: SubjectCache, tree: Path, asked: str, options: Sequence[str], folders: Sequence[Path], side: str
) -> LockedEnvironment:
    """Return the environment of the lock file `asked` (`lock` or a path), the first found in `folders` of `tree`.

    `options` go to uv. Raises `UsageError`, naming the `side`, without such a file or where it cannot be installed.
    """
    names = KNOWN if asked == LOCK else (asked,)
    found = next((path for folder in folders for name in names if (path := folder / name).is_file()), None)
    if found is None:
        places = ", ".join(dict.fromkeys(str(folder.relative_to(tree)) for folder in folders))
        raise UsageError(f"subject.environment: {side} has no {' and no '.join(names)} (looked in {places})")
    if found.name == UV_LOCK:
        content, members = _read_uv_lock(found)
        arguments = [
            "sync", "--frozen", "--no-install-workspace", "--no-install-local", "--inexact", "--python",
            sys.executable, *options,
        ]  # fmt: skip
    else:
        asks = read_requirements(found)
        content, members = "\n".join((*asks.lines, "# constraints", *asks.constraints)), list(asks.folders)
        arguments = ["pip", "install", *options]
    name = str(found.relative_to(tree))
    key = environment_key(("uv", found.name, content, *options))

    def install(folder: Path, log: Path, lock: int) -> None:
        given = list(arguments)
        if found.name != UV_LOCK:
            for option, lines in (("--requirements", asks.lines), ("--constraints", asks.constraints)):
                if not lines:
                    continue
                file = folder / f"{option.strip('-')}.txt"
                file.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
                given += [option, str(file)]
        run_uv(given, environment=folder, log=log, lock=lock, cwd=found.parent)
        # The harness's own need, with the harness's version; a lock that names it has its say.
        own = installed_versions(("nvtx",)).get("nvtx")
        if not any(folder.glob("lib/python*/site-packages/nvtx-*.dist-info")):
            wanted = f"nvtx=={own}" if own else "nvtx"
            run_uv(["pip", "install", "--no-deps", wanted], environment=folder, log=log, lock=lock)

    interpreter = cached_environment(
        cache, key, install, content=f"{name} of {side}", advice="mend the lock, give uv more with subject.uv_options"
    )
    inside = (str(path.relative_to(tree)) for path in map(_import_root, members) if path.is_relative_to(tree))
    return LockedEnvironment(interpreter=interpreter, members=tuple(dict.fromkeys(inside)))


def read_requirements(path: Path, seen: frozenset[Path] = frozenset()) -> Requirements:
    """Return what a requirements file asks for, with the files that it includes in their places.

    Raises `UsageError` for a file that cannot be read.
    """
    lines: list[str] = []
    constraints: list[str] = []
    folders: list[Path] = []
    for line in _lines(path):
        include, editable = _INCLUDES.match(line), _EDITABLE.match(line)
        folder = editable or _FOLDER.match(line)
        if include is not None:
            file = (path.parent / include["file"]).resolve()
            if file in seen:
                continue
            inner = read_requirements(file, seen | {path.resolve()})
            only = line.startswith(("-c", "--constraint"))
            (constraints if only else lines).extend(inner.lines)
            constraints += inner.constraints
            folders += inner.folders
        elif folder is not None and "://" not in folder["path"].removeprefix("file://"):
            text = folder["path"].removeprefix("file://").removeprefix("file:").partition("[")[0]
            folders.append((path.parent / text).resolve())
        else:
            lines.append(line)
    return Requirements(lines=tuple(lines), constraints=tuple(constraints), folders=tuple(folders))


def _lines(path: Path) -> Iterator[str]:
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"{path}: cannot be read as requirements: {error}") from error
    for line in text.replace("\\\n", " ").splitlines():
        line = re.sub(r"(^|\s)#.*$", "", line).strip()
        if line:
            yield line


def _read_uv_lock(path: Path) -> tuple[str, list[Path]]:
    """Return what tells the lock's content, and the folders that it installs from.

    The version of the project itself is no part of it: a commit that raises that has the same environment.
    """
    try:
        document = tomllib.loads(path.read_text(encoding="utf-8"))
        packages = document.get("package", [])
        folders, others = [], []
        for package in packages:
            source = package.get("source", {})
            place = next((source[key] for key in ("editable", "virtual", "directory") if key in source), None)
            if place is None:
                others.append(package)
            else:
                folders.append((path.parent / place).resolve())
                others.append({key: value for key, value in package.items() if key != "version"})
    except (OSError, ValueError, AttributeError, TypeError) as error:
        raise UsageError(f"{path}: cannot be read as a lock of uv: {error}") from error
    project = path.parent / "pyproject.toml"
    whole = repr([{**document, "package": others}, required(project)])
    return hashlib.sha256(whole.encode()).hexdigest(), folders


def _import_root(folder: Path) -> Path:
    return folder / "src" if (folder / "src").is_dir() else folder
