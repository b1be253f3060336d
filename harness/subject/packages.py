"""Where in a repository a package lies.

In the folder that the user stands in, then at the top, each also with its `src` folder; else in the one project below
that has it, as in a repository of several packages. A project is a folder with a pyproject.toml or a setup.py: a folder
of the same name elsewhere (a copy for tests, configuration) is not taken for the engine.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Final

from harness.errors import UsageError
from harness.subject.git import line

PROJECT_FILES: Final = frozenset(("pyproject.toml", "setup.py"))
_NO_PROJECTS: Final = frozenset(("build", "dist", "node_modules", "site-packages", "tests", "third_party"))
_DEEPEST: Final = 4
"""Folders below the top that a project is looked for in."""


def package_root(package: str, places: Iterable[Path], top: Path | None = None) -> Path | None:
    """Return the first of `places`, or its `src` folder, that holds the package; else the one project below `top`.

    A folder of that name without code, as for configuration files, is none, unless there is nothing else: a namespace
    package may keep its code in folders below. Raises `UsageError` where several projects hold it.
    """
    roots = _with_src(places)
    for has in (_has_code, _has_folder):
        for root in roots:
            if has(root, package):
                return root
    found = [] if top is None else [root for root in _with_src(_projects(top)) if _has_code(root, package)]
    if len(found) > 1:
        names = ", ".join(sorted(str(root.relative_to(top or root)) for root in found))
        raise UsageError(f"several projects have a package {package!r}: {names}: name one with [subject] root")
    return found[0] if found else None


def searched_folders(folder: Path) -> list[Path]:
    """Return where a package of the working tree around `folder` is looked for first, in this order."""
    return _with_src(bases(folder.resolve()))


def bases(folder: Path, within: str | None = None) -> list[Path]:
    """Return `folder` and the top of its repository; only the folder `within` that top if one is given.

    Raises `UsageError` if that is not there.
    """
    top = line(folder, "rev-parse", "--show-toplevel")
    if within is not None:
        place = (Path(top) if top else folder) / within
        if not place.is_dir():
            raise UsageError(f"subject.root: {within!r}: expected a folder of {top or folder}")
        return [place]
    return list(dict.fromkeys((folder, Path(top)) if top else (folder,)))


def _with_src(places: Iterable[Path]) -> list[Path]:
    return [root for place in places for root in (place, place / "src")]


def _projects(top: Path) -> Iterator[Path]:
    for folder, folders, files in os.walk(top):
        here = Path(folder)
        if here != top and PROJECT_FILES.intersection(files):
            yield here
        if len(here.relative_to(top).parts) == _DEEPEST or "pyvenv.cfg" in files:
            folders.clear()
        folders[:] = sorted(name for name in folders if name not in _NO_PROJECTS and not name.startswith("."))


def _has_code(root: Path, package: str) -> bool:
    return (root / f"{package}.py").is_file() or any((root / package).glob("*.py"))


def _has_folder(root: Path, package: str) -> bool:
    return any(path.suffix in (".py", ".so") for path in (root / package).rglob("*"))
