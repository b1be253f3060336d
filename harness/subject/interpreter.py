"""What a Python interpreter has installed, asked of the interpreter itself: it may be another version than ours."""

from __future__ import annotations

import hashlib
import json
import shutil
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from packaging.utils import canonicalize_name

from harness.errors import UsageError

NEEDED_BY_RANKS: Final = ("torch", "nvtx")
"""Modules that a rank imports beside the engine's own."""
OLDEST: Final = (3, 11)
TIMEOUT_S: Final = 60

# Runs in the other interpreter, whatever its version. The first of several copies on sys.path is what is imported.
_ASK: Final = """
import importlib.metadata, importlib.util, json, os, platform, sys
versions = {}
for found in importlib.metadata.distributions():
    name = found.metadata["Name"]
    if name and name not in versions:
        versions[name] = found.version
markers = {
    "implementation_name": sys.implementation.name,
    "implementation_version": platform.python_version(),
    "os_name": os.name,
    "platform_machine": platform.machine(),
    "platform_python_implementation": platform.python_implementation(),
    "platform_release": platform.release(),
    "platform_system": platform.system(),
    "platform_version": platform.version(),
    "python_full_version": platform.python_version(),
    "python_version": ".".join(platform.python_version_tuple()[:2]),
    "sys_platform": sys.platform,
}
modules = [name for name in sys.argv[1:] if importlib.util.find_spec(name)]
print("\\n" + json.dumps({"versions": versions, "markers": markers, "modules": modules}))
"""


@dataclass(frozen=True, kw_only=True)
class Interpreter:
    """A Python and the version of every distribution it has, by normalised name. Equal content has equal `id`s."""

    python: Path
    versions: Mapping[str, str]
    markers: Mapping[str, str]
    """What `packaging` evaluates the markers of requirements with."""

    @property
    def version(self) -> str:
        """Version of Python."""
        return self.markers["python_full_version"]

    @property
    def id(self) -> str:
        """16 hexadecimal digits over Python, platform and everything installed, not over where it lies."""
        platform = [self.markers[key] for key in ("implementation_name", "platform_machine", "sys_platform")]
        content = [self.version, platform, sorted(self.versions.items())]
        return hashlib.sha256(json.dumps(content).encode()).hexdigest()[:16]

    def document(self) -> dict[str, Any]:
        """Return what is stored about it as JSON-ready values."""
        return {"id": self.id, "python": self.version, "versions": dict(sorted(self.versions.items()))}


def own_interpreter() -> Interpreter:
    """Return the interpreter that the harness runs under."""
    return ask(Path(sys.executable))


def given_interpreter(given: str) -> Interpreter:
    """Return the interpreter at a path, or of a name on PATH, that a user chose for ranks. Raises `UsageError`."""
    found = shutil.which(given)
    if found is None:
        raise UsageError(f"--python {given}: no such interpreter; expected the path of one, as in .venv/bin/python")
    return ask(Path(found).absolute())  # never resolved: a virtual environment is told by its link


def ask(python: Path) -> Interpreter:
    """Return what `python` has installed, checked to hold what a rank needs. Raises `UsageError`."""
    try:
        command = [str(python), "-c", _ASK, *NEEDED_BY_RANKS]
        # Not from the current folder, which `-c` puts first on sys.path (`-P` is unknown before 3.11).
        answer = subprocess.run(
            command, capture_output=True, text=True, timeout=TIMEOUT_S, check=True, cwd=python.parent
        ).stdout
        found = json.loads(answer.rstrip().rpartition("\n")[2])
        version = found["markers"]["python_full_version"]
    except (OSError, subprocess.SubprocessError, ValueError, KeyError, TypeError) as error:
        raise UsageError(f"{python}: is no Python interpreter that works: {_reason(error)}") from error
    if tuple(map(int, version.split(".")[:2])) < OLDEST:
        raise UsageError(f"{python}: is Python {version}; expected {'.'.join(map(str, OLDEST))} or newer")
    missing = [module for module in NEEDED_BY_RANKS if module not in found["modules"]]
    if missing:
        raise UsageError(f"{python}: has no {' and no '.join(missing)}, which every rank imports: install it there")
    versions = {str(canonicalize_name(name)): text for name, text in found["versions"].items()}
    return Interpreter(python=python, versions=versions, markers=found["markers"])


def _reason(error: Exception) -> str:
    complaint = (getattr(error, "stderr", None) or "").strip().splitlines()
    return complaint[-1] if complaint else str(error)
