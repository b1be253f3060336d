"""What is known about one body of code before it is launched."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from harness.errors import UsageError
from harness.subject.checkout import Checkout
from harness.subject.interpreter import Interpreter
from harness.subject.releases import Release, installed


class NoEngineError(UsageError):
    """The code does not hold the engine's package: a comparison with it is invalid (`cannot_run`)."""


@dataclass(frozen=True, kw_only=True)
class Adapter:
    """The code between the harness and what is measured, the same on both sides: its revision, and what it adds."""

    revision: str | None
    changes: str | None


@dataclass(frozen=True, kw_only=True)
class Home:
    """The folder that one launch of a side runs in (`subject.live`)."""

    root: Path
    cwd: Path | None
    """Where its processes start; None leaves them in the folder that the command was started in."""
    top: Path
    """The working tree of its user, of which nothing may be loaded."""
    env: Mapping[str, str]


@dataclass(frozen=True, kw_only=True)
class Subject:
    """One body of code. `engine_root` goes first on the workers' `sys.path`; None takes the engine as installed.

    Where the engine adapts something else (a release, a checkout of another repository), that is what is measured:
    `measured_root` goes before `engine_root`, and `adapter` tells the engine's own code.
    """

    name: str
    engine_root: Path | None
    python: Path
    revision: str | None
    """Full git hash; None outside a repository."""
    dirty: bool | None
    """Whether tracked files differ from `revision`; None where there is no revision."""
    commit_subject: str | None = None
    """First line of the message of `revision`."""
    changes: str | None = None
    """Hash over everything uncommitted, untracked files included; None where nothing is."""
    overrides: tuple[str, ...] = ()
    """KEY=VALUE of this side alone, in the order given."""
    notes: tuple[str, ...] = ()
    """What the code lacks although its revision has it, and what a release asks for and does not find."""
    caveats: tuple[str, ...] = ()
    """What a verdict about it does not cover, to be read beside it."""
    measured_root: Path | None = None
    package: str | None = None
    """What is measured where the engine adapts it; None where the engine itself is, or a release with its files."""
    release: Release | None = None
    adapter: Adapter | None = None
    interpreter: Interpreter | None = None
    """What `python` has installed; None where that is the harness's own and nobody asked."""
    mismatches: tuple[str, ...] = ()
    """What of the interpreter contradicts the release's own requirements, and was allowed to."""

    checkout: Checkout | None = None
    """Its files; None for what is measured where it lies: a release, an installed engine, a folder without git."""
    home: Home | None = None
    """Of a launch."""

    def identity(self, versions: Mapping[str, str] | None = None) -> str:
        """Return 16 hexadecimal digits, equal for equal code, overrides and `versions` of what it imports.

        Where the code has no revision (installed, or outside a repository) only its place and the versions tell.
        """
        place = None if self.revision or self.release else str(self.measured_root or self.engine_root)
        parts: list[object] = [
            self.revision,
            self.changes,
            list(self.overrides),
            dict(sorted((versions or {}).items())),
            place,
        ]
        if self.release:
            parts.append(self.release.sha256)
        if self.adapter:
            parts.append([self.adapter.revision, self.adapter.changes])
        if self.interpreter:
            parts.append(self.interpreter.id)
        return hashlib.sha256(json.dumps(parts).encode()).hexdigest()[:16]

    def versions(self) -> dict[str, str]:
        """Return the release's version and those that are installed of what it asks for."""
        if self.release is None or self.interpreter is None:
            return {}
        found = {
            name: version for name, version in installed(self.release.requires, self.interpreter).items() if version
        }
        return {self.release.distribution: self.release.version, **found}

    def provenance(self) -> dict[str, Any]:
        """Return where it comes from, for storing; only what applies is named, and nothing depends on the disk."""
        found: dict[str, Any] = {}
        if self.release:
            found["release"] = self.release.document()
            found["imports"] = self.versions()
        if self.adapter:
            found["adapter"] = asdict(self.adapter)
        if self.interpreter:
            found["environment"] = self.interpreter.document()
        if self.caveats:
            found["caveats"] = list(self.caveats)
        if self.mismatches:
            found["mismatches"] = list(self.mismatches)
        return found
