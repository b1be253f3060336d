"""What the files that ranks loaded say of a comparison: decided on trees made by hand."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

from harness.duel.loaded import SideFiles, differing, edited, identical, mixed, requirement_note
from harness.store import SideName
from harness.subject import Checkout, Subject
from harness.subject.checkout import Ignored
from harness.verdict import Reason


class Duel:
    """Two trees and the working tree beside them; files are given as text by name."""

    def __init__(self, folder: Path, base: dict[str, str], head: dict[str, str], user: dict[str, str]) -> None:
        self.ignored = Ignored()
        for name, files in (("base", base), ("head", head), ("user", user)):
            (folder / name).mkdir()
            for file, text in files.items():
                (folder / name / file).parent.mkdir(parents=True, exist_ok=True)
                (folder / name / file).write_text(text)
        self.folder = folder

    def subjects(self, **head: Any) -> dict[SideName, Subject]:
        return {"base": self._subject("base"), "head": self._subject("head", **head)}

    def _subject(self, name: str, **more: Any) -> Subject:
        checkout = Checkout(
            tree=self.folder / name, top=self.folder / "user", commit="0" * 40, within=".", ignored=self.ignored
        )
        given: dict[str, Any] = {"python": Path(sys.executable), **more}
        return Subject(name=name, engine_root=None, revision="0" * 40, dirty=False, checkout=checkout, **given)


def files(own: str = "", foreign: str = "", started: str = "", installed: str = "") -> SideFiles:
    return SideFiles(
        own=frozenset(own.split()),
        foreign=frozenset(foreign.split()),
        elsewhere={},
        started=tuple(started.split()),
        installed=frozenset(installed.split()),
    )


ENGINE = {"engine.py": "1", "README.md": "x"}


@pytest.mark.parametrize(
    ("user", "foreign", "is_mixed"),
    [
        ({"engine.py": "1"}, "engine.py", False),  # the side has the same file
        ({"engine.py": "2"}, "engine.py", True),
        ({"data.txt": "of no commit"}, "data.txt", False),
        ({"gone.py": "1"}, "gone.py", True),  # the other side's tree has it
    ],
)
def test_a_file_of_the_working_tree_is_foreign_where_it_differs(
    tmp_path: Path, user: dict[str, str], foreign: str, is_mixed: bool
) -> None:
    duel = Duel(tmp_path, ENGINE, {**ENGINE, "gone.py": "1"}, user)
    found = mixed(duel.subjects(), {"base": files("engine.py", foreign), "head": files("engine.py")}, built=False)
    assert (found is not None) == is_mixed
    if found is not None:
        assert found.reason is Reason.MIXED_SIDES
        assert found.detail.startswith(f"base loaded {foreign} of the working tree {tmp_path / 'user'}, not of base")


def test_an_extension_that_one_side_alone_has_is_unbuilt_unless_both_were_built(tmp_path: Path) -> None:
    duel = Duel(tmp_path, ENGINE, {**ENGINE, "_ext.so": "code"}, {})
    duel.ignored = Ignored(code=("_ext.so",))
    loaded: dict[SideName, SideFiles] = {"base": files("engine.py"), "head": files("engine.py _ext.so")}
    found = mixed(duel.subjects(), loaded, built=False)
    assert found is not None
    assert found.reason is Reason.UNBUILT
    assert "git ignores _ext.so, which head loaded from the working tree and base lacks" in found.detail
    assert mixed(duel.subjects(), loaded, built=True) is None


@pytest.mark.parametrize(
    ("changed", "installed", "copied"),
    [
        ("libs/blocks/src/blocks/core.py", "blocks/core.py", True),
        ("libs/blocks/src/blocks/core.py", "other/core.py", False),
        ("libs/blocks/tests/core.py", "tests/core.py", False),
        ("libs/blocks/src/blocks/core.txt", "blocks/core.txt", False),
        ("scripts/blocks/core.py", "blocks/core.py", False),  # part of no project
    ],
)
def test_an_installed_copy_of_what_differs_is_no_side(
    tmp_path: Path, changed: str, installed: str, copied: bool
) -> None:
    project = {**ENGINE, "libs/blocks/pyproject.toml": ""}
    duel = Duel(tmp_path, {**project, changed: "1"}, {**project, changed: "2"}, {})
    loaded: dict[SideName, SideFiles] = {
        "base": files("engine.py", installed=installed),
        "head": files("engine.py", installed=installed),
    }
    found = mixed(duel.subjects(), loaded, built=False)
    assert (found is not None) == copied
    if found is not None:
        assert found.detail.startswith(f"{changed} differs between the sides, but base loaded a copy that is installed")
    own: dict[SideName, SideFiles] = dict.fromkeys(loaded, files(f"engine.py {changed}", installed=installed))
    assert mixed(duel.subjects(), own, built=False) is None, "its own was loaded as well"


@pytest.mark.parametrize(
    ("base", "head", "own", "started", "same"),
    [
        ({}, {"README.md": "y"}, "engine.py", "", True),
        ({}, {"test_engine.py": "new"}, "engine.py", "", True),
        ({}, {"docs/conf.py": "new"}, "engine.py", "", True),
        ({}, {"engine.py": "2"}, "engine.py", "", False),
        ({}, {"config.yaml": "new"}, "engine.py", "", False),  # read by C++ code, perhaps
        ({}, {"README.md": "y"}, "engine.py README.md", "", False),  # the engine reads it
        ({}, {"test_engine.py": "new"}, "engine.py", "python", False),  # the child may import it
        ({}, {}, "engine.py", "", False),  # nothing differs: that is a duel of one code with itself, by wish
    ],
)
def test_identical_code_is_said_only_where_it_is_sure(
    tmp_path: Path, base: dict[str, str], head: dict[str, str], own: str, started: str, same: bool
) -> None:
    duel = Duel(tmp_path, {**ENGINE, **base}, {**ENGINE, **head}, {})
    subjects = duel.subjects()
    differs = differing(subjects)
    assert differs is not None
    loaded: dict[SideName, SideFiles] = {"base": files(own, started=started), "head": files(own)}
    found = identical(loaded, differs, subjects)
    assert (found is not None) == same
    if found is not None:
        assert found.reason is Reason.IDENTICAL_CODE


@pytest.mark.parametrize("head", [{"overrides": ("engine.x=1",)}, {"python": Path("/other/python")}])
def test_other_settings_or_another_interpreter_are_not_identical(tmp_path: Path, head: dict[str, Any]) -> None:
    duel = Duel(tmp_path, ENGINE, {**ENGINE, "README.md": "y"}, {})
    subjects = duel.subjects(**head)
    loaded: dict[SideName, SideFiles] = {"base": files("engine.py"), "head": files("engine.py")}
    assert identical(loaded, frozenset({"README.md"}), subjects) is None


def test_different_requirements_in_one_environment_are_noted(tmp_path: Path) -> None:
    duel = Duel(tmp_path, {"uv.lock": "1"}, {"uv.lock": "2"}, {})
    note = requirement_note(duel.subjects(), frozenset({"uv.lock"}))
    assert note is not None
    assert note.startswith("what the project requires differs between the sides (uv.lock), but both run in one")
    assert requirement_note(duel.subjects(python=Path("/other/python")), frozenset({"uv.lock"})) is None
    assert requirement_note(duel.subjects(), frozenset({"engine.py"})) is None


def test_a_file_that_both_launches_loaded_and_that_changed_is_edited() -> None:
    assert edited({"/x/a.py": [1, 2]}, {"/x/a.py": [1, 2], "/x/b.py": [3, 4]}) is None
    assert edited({"/x/a.py": [1, 2]}, {"/x/a.py": [1, 3]}) == "/x/a.py"
