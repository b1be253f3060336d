"""What is measured: the code an engine is imported from, and how that code is told apart from other code.

A subject is the working tree when the scenario's engine lies in it, and otherwise whatever is installed.
"""

from __future__ import annotations

import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

GIT_TIMEOUT_S = 30


@dataclass(frozen=True, kw_only=True)
class Subject:
    """One body of code. `engine_root` goes first on the workers' `sys.path`; None takes the engine as installed."""

    name: str
    engine_root: Path | None
    python: Path
    revision: str | None
    """Full git hash; None outside a repository."""
    dirty: bool | None
    """Whether tracked files differ from `revision`; None where there is no revision."""


def working_tree(factory: str, folder: Path) -> Subject:
    """Return the code that `factory` (`package.module:callable`) is imported from when the user stands in `folder`.

    Looked for in `folder`, then in the root of its git repository, each also with a `src` folder.
    """
    package = factory.partition(":")[0].partition(".")[0]
    top = _git(folder, "rev-parse", "--show-toplevel")
    for base in (folder, Path(top) if top else folder):
        for root in (base, base / "src"):
            if (root / package).is_dir() or (root / f"{package}.py").is_file():
                revision, dirty = git_state(root)
                return Subject(
                    name=".", engine_root=root.resolve(), python=Path(sys.executable), revision=revision, dirty=dirty
                )
    return Subject(name="installed", engine_root=None, python=Path(sys.executable), revision=None, dirty=None)


def git_state(folder: Path) -> tuple[str | None, bool | None]:
    """Return (revision, dirty) of the repository around `folder`; (None, None) where there is none, or no git."""
    revision = _git(folder, "rev-parse", "--verify", "HEAD")
    if revision is None:
        return None, None
    changes = _git(folder, "status", "--porcelain", "--untracked-files=no")
    return revision, None if changes is None else bool(changes)


def _git(folder: Path, *arguments: str) -> str | None:
    """Return what git prints, stripped; None when it fails or is absent. Takes no lock: the user may be using git."""
    command = ["git", "--no-optional-locks", "-C", str(folder), *arguments]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=GIT_TIMEOUT_S, check=True)
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout.strip()
