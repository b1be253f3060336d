"""Has a side import from its own files what its environment would import from the user's working tree.

A package that is installed editable, or named by PYTHONPATH, lies in the working tree: both sides would import the same
files, whatever their commits. Of the ways in which installers do that, these are known:

- a folder on `sys.path` (a `.pth` file of pip, uv, hatch, flit or poetry; PYTHONPATH);
- setuptools' finder module `__editable___*_finder` with its tables `MAPPING` and `NAMESPACES`;
- scikit-build-core's finder object with its table `known_source_files`.

Others are noticed by what was loaded in the end (`worker.loaded`).
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from harness.names import BUILT_SITE

INSTALLED: Final = (f"{os.sep}site-packages{os.sep}", f"{os.sep}dist-packages{os.sep}")
"""What the path of every installed file has in it."""
_PREFIXES: Final = tuple(f"{prefix}{os.sep}" for prefix in {sys.prefix, sys.base_prefix} if prefix != "/usr")


def belongs_to_environment(path: str) -> bool:
    """Whether it is part of an installed environment, which may well lie in the working tree (`.venv`)."""
    return any(part in path for part in INSTALLED) or path.startswith(_PREFIXES)


def moved_path(entry: str, working_tree: Path, side_root: Path) -> str | None:
    """Return where a side has what lies at `entry`; the entry itself if that is not of the working tree.

    None where it is and the side has no such place.
    """
    path = Path(os.path.realpath(entry or "."))
    if (
        not path.is_relative_to(working_tree)
        or path.is_relative_to(side_root)
        or belongs_to_environment(f"{path}{os.sep}")
    ):
        return entry
    place = side_root / path.relative_to(working_tree)
    return str(place) if place.exists() else None


def moved_paths(entries: Sequence[str], working_tree: Path, side_root: Path) -> list[str]:
    """Return the entries of a search path as the side has them, without those that it lacks."""
    places = (moved_path(entry, working_tree, side_root) for entry in entries)
    return list(dict.fromkeys(place for place in places if place is not None))


def import_from_side(working_tree: Path, side_root: Path) -> None:
    """Change this process' search path and editable finders so, and PYTHONPATH for the processes that it starts."""
    first = [str(side_root / BUILT_SITE)] if (side_root / BUILT_SITE).is_dir() else []
    moved = [place for place in moved_paths(sys.path, working_tree, side_root) if place not in sys.path]
    sys.path[:] = [*first, *moved_paths(sys.path, working_tree, side_root)]
    sys.path_importer_cache.clear()
    for name, module in list(sys.modules.items()):
        if name.startswith("__editable__"):
            moved += _move_table(getattr(module, "MAPPING", None), working_tree, side_root)
            _move_table(getattr(module, "NAMESPACES", None), working_tree, side_root)
    for finder in sys.meta_path:
        _move_table(getattr(finder, "known_source_files", None), working_tree, side_root)
    given = os.environ.get("PYTHONPATH", "")
    # A path of the environment's own `.pth` files comes behind PYTHONPATH, so the side's is found before it.
    inherited = [*first, *moved_paths([one for one in given.split(os.pathsep) if one], working_tree, side_root), *moved]
    if path := os.pathsep.join(dict.fromkeys(inherited)):
        os.environ["PYTHONPATH"] = path


def _move_table(table: Any, working_tree: Path, side_root: Path) -> list[str]:
    """Move the paths in a dictionary, each a text or a list of texts, in place.

    Returns the folders that hold the moved packages, where a folder on the search path would do as well.
    """
    holders: list[str] = []
    if not isinstance(table, dict):
        return holders
    for key, value in table.items():
        if isinstance(value, str):
            table[key] = moved = moved_path(value, working_tree, side_root) or value
            if moved != value and Path(moved).stem == key:
                holders.append(str(Path(moved).parent))
        elif isinstance(value, list):
            table[key] = [moved_path(one, working_tree, side_root) or one for one in value]
    return holders
