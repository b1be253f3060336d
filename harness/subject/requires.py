"""Whether two trees ask for different dependencies, which one environment cannot both have. Reads files only."""

from __future__ import annotations

import tomllib
from collections.abc import Iterable
from pathlib import Path, PurePosixPath
from typing import Any, Final

_LISTS: Final = (
    "Pipfile",
    "Pipfile.lock",
    "environment.yml",
    "environment.yaml",
    "pdm.lock",
    "pixi.lock",
    "poetry.lock",
)
_PYPROJECT: Final = "pyproject.toml"


def requirement_files(base: Path, head: Path, differing: Iterable[str]) -> tuple[str, ...]:
    """Return those of the differing files (relative paths) in which what the project requires differs."""
    found = []
    for name in sorted(differing):
        file = PurePosixPath(name).name
        listed = (
            file in _LISTS or file == "uv.lock" or (file.startswith("requirements") and file.endswith((".txt", ".in")))
        )
        if listed or (file == _PYPROJECT and required(base / name) != required(head / name)):
            found.append(name)
    return tuple(found)


def required(path: Path) -> Any:
    """Return what a pyproject.toml asks for at run time; its text where that cannot be told, None without the file."""
    try:
        text = path.read_text(encoding="utf-8")
    except OSError:
        return None
    try:
        document = tomllib.loads(text)
        project = document.get("project", {})
        poetry = document.get("tool", {}).get("poetry", {})
        return [project.get(key) for key in ("dependencies", "optional-dependencies", "requires-python")] + [
            document.get("dependency-groups"),
            poetry.get("dependencies"),
            poetry.get("group"),
        ]
    except (ValueError, AttributeError):
        return text
