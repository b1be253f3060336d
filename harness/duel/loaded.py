"""Did each side run its own files? Told from what its ranks loaded (`worker.loaded`) and the trees of both sides.

A file of the user's working tree that a rank loaded is *foreign*. It does no harm where the side's own tree has the
same file, and where it is of no commit at all (data). Otherwise what was measured is not the commit that the side is
named after. Where nothing that was loaded differs between the sides, there is nothing to measure.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any, Final

from harness.store import SIDES, SideName
from harness.subject import Checkout, Subject
from harness.subject.differing import differing_files, same_file
from harness.subject.packages import PROJECT_FILES
from harness.subject.requires import requirement_files
from harness.units import some_of
from harness.verdict import Reason

_INERT_SUFFIXES: Final = frozenset((".md", ".rst", ".png", ".svg", ".jpg", ".gif", ".pdf"))
_INERT_NAMES: Final = frozenset((".gitattributes", ".gitignore", "AUTHORS", "CODEOWNERS", "LICENSE", "NOTICE"))
_TESTS: Final = frozenset(("docs", "examples", "test", "tests"))
_INERT_FOLDERS: Final = frozenset((".circleci", ".github", ".gitlab", "docs"))


@dataclass(frozen=True, kw_only=True)
class SideFiles:
    """What all ranks of a launch loaded. Paths are relative to the side's tree, or to the working tree."""

    own: frozenset[str]
    foreign: frozenset[str]
    elsewhere: Mapping[str, Any]
    """Size and time of modification of modules that lie neither there nor in an installed environment."""
    started: tuple[str, ...]
    """Names of started programs."""
    installed: frozenset[str] = frozenset()
    """Modules of the environment, as paths in its folder of packages."""


@dataclass(frozen=True, kw_only=True)
class Finding:
    """What the files say of a comparison: a reason to end it, in words."""

    reason: Reason
    detail: str


def read_loaded(launch_dir: Path, ranks: int, subject: Subject) -> SideFiles:
    """Return what the ranks of an ended launch reported."""
    reports = [json.loads((launch_dir / f"rank{rank}.loaded.json").read_text("utf-8")) for rank in range(ranks)]
    own, foreign = set(), set()
    home, checkout = subject.home, subject.checkout
    if home is not None and checkout is not None:
        root = home.root.resolve()
        for file in {file for report in reports for key in ("modules", "objects", "opened") for file in report[key]}:
            path = Path(file)
            if not path.is_relative_to(root):
                foreign.add(str(path.relative_to(home.top)))
                continue
            name, target = path.relative_to(root), path.resolve()
            if target.is_relative_to(home.top) and not _is_shared(name, checkout):
                foreign.add(str(target.relative_to(home.top)))
            else:
                own.add(str(name))
    elsewhere = {file: state for report in reports for file, state in report["elsewhere"].items()}
    started = tuple(sorted({name for report in reports for name in report["started"]}))
    installed = frozenset(name for report in reports for name in report["installed"])
    return SideFiles(
        own=frozenset(own), foreign=frozenset(foreign), elsewhere=elsewhere, started=started, installed=installed
    )


def differing(subjects: Mapping[SideName, Subject]) -> frozenset[str] | None:
    """Return the files that differ between both trees; None where a side has none of its own."""
    base, head = (subjects[side].checkout for side in SIDES)
    if base is None or head is None:
        return None
    return frozenset() if base.tree == head.tree else differing_files(base.tree, head.tree)


def mixed(subjects: Mapping[SideName, Subject], files: Mapping[SideName, SideFiles], *, built: bool) -> Finding | None:
    """Return why a side is not the code that it is named after; None if nothing says so. `built`: by a command."""
    checkouts = {side: checkout for side in SIDES if (checkout := subjects[side].checkout) is not None}
    for side, checkout in checkouts.items():
        harmful = sorted(name for name in files[side].foreign if _is_harmful(name, checkout, list(checkouts.values())))
        if harmful:
            return Finding(
                reason=Reason.MIXED_SIDES,
                detail=f"{side} loaded {some_of(harmful)} of the working tree {checkout.top}, not of "
                f"{subjects[side].name}: have it imported or opened from the side's own folder (a relative path, an "
                "editable install by .pth), or share it with [subject] shared",
            )
    if len(checkouts) < len(SIDES):
        return None
    differs = differing(subjects) or frozenset()
    for side in SIDES:
        copies = sorted(name for name in differs if _is_copied(name, files[side], checkouts.values()))
        if copies:
            return Finding(
                reason=Reason.MIXED_SIDES,
                detail=f"{some_of(copies)} differs between the sides, but {side} loaded a copy that is installed in "
                "its environment: install the package editable (pip install -e), or build it for each side "
                "([subject] build = 'pip install --no-deps FOLDER')",
            )
    if built:
        return None
    for side, other in (SIDES, SIDES[::-1]):
        code, tree = files[side].own.intersection(checkouts[side].ignored.code), checkouts[other].tree
        only = sorted(name for name in code if not (tree / name).exists())
        if only:
            return Finding(
                reason=Reason.UNBUILT,
                detail=f"git ignores {some_of(only)}, which {side} loaded from the working tree and {other} lacks: "
                "give [subject] build the command that makes it, and both sides are built",
            )
    return None


def identical(
    files: Mapping[SideName, SideFiles], differing: frozenset[str], subjects: Mapping[SideName, Subject]
) -> Finding | None:
    """Return that both sides ran the same code although their files differ, where that is sure.

    It is where every file that differs is either a Python module that no rank imported or of a kind that no program
    reads; and where ranks started no other process, which might read it.
    """
    base, head = (subjects[side] for side in SIDES)
    same = bool(differing) and (base.overrides, base.python, base.release) == (
        head.overrides,
        head.python,
        head.release,
    )
    if not same or base.adapter != head.adapter or any(files[side].started for side in SIDES):
        return None
    seen = files["base"].own | files["head"].own | files["base"].foreign | files["head"].foreign
    if any(name in seen or not (name.endswith(".py") or _is_inert(name)) for name in differing):
        return None
    return Finding(
        reason=Reason.IDENTICAL_CODE,
        detail=f"none of the {len(files['head'].own)} loaded files differs between the sides; what differs is "
        f"{some_of(sorted(differing))}",
    )


def requirement_note(subjects: Mapping[SideName, Subject], differing: frozenset[str]) -> str | None:
    """Return that both sides ask for different dependencies and ran with the same."""
    base, head = (subjects[side] for side in SIDES)
    if base.checkout is None or head.checkout is None or base.python != head.python:
        return None
    names = requirement_files(base.checkout.tree, head.checkout.tree, differing)
    if not names:
        return None
    return (
        f"what the project requires differs between the sides ({some_of(names)}), but both run in one environment: "
        "a change of dependencies is not measured; [subject] environment gives each side its own"
    )


def edited(before: Mapping[str, Any], now: Mapping[str, Any]) -> str | None:
    """Return a file that is not what an earlier launch loaded."""
    return next((file for file, state in now.items() if before.get(file, state) != state), None)


def _is_shared(name: Path, checkout: Checkout) -> bool:
    return any(name.is_relative_to(link) for link in checkout.ignored.linked)


def _is_harmful(name: str, checkout: Checkout, checkouts: Sequence[Checkout]) -> bool:
    if same_file(checkout.tree / name, checkout.top / name):
        return False
    return name in checkout.ignored.code or any((one.tree / name).exists() for one in checkouts)


def _is_copied(name: str, files: SideFiles, checkouts: Iterable[Checkout]) -> bool:
    """Whether a module of a project in the repository was loaded from an installed copy of that project."""
    path = PurePosixPath(name)
    if path.suffix != ".py" or name in files.own or not files.installed:
        return False
    for project in path.parents:
        if not any((one.tree / project / mark).is_file() for one in checkouts for mark in PROJECT_FILES):
            continue
        inside = path.relative_to(project)
        inside = inside.relative_to("src") if inside.parts[0] == "src" else inside
        return len(inside.parts) > 1 and inside.parts[0] not in _TESTS and str(inside) in files.installed
    return False


def _is_inert(name: str) -> bool:
    path = PurePosixPath(name)
    return path.suffix in _INERT_SUFFIXES or path.name in _INERT_NAMES or path.parts[0] in _INERT_FOLDERS
