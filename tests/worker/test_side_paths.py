"""Imports that an environment would take from the user's working tree are taken from the side's own files."""

from __future__ import annotations

import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from harness.worker.side_paths import moved_path, moved_paths

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def trees(tmp_path: Path) -> tuple[Path, Path]:
    """A working tree and a side's: the first has a package that the second lacks."""
    user, side = tmp_path / "user", tmp_path / "side"
    for tree, name in ((user, "user"), (side, "side")):
        for package in ("src/blocks", "libs/far/ns"):
            (tree / package).mkdir(parents=True)
            (tree / package / ("part.py" if package.endswith("ns") else "__init__.py")).write_text(
                f"WHOSE = {name!r}\n"
            )
    (user / "new").mkdir()
    return user, side


def test_what_lies_in_the_working_tree_is_moved_or_left_out(trees: tuple[Path, Path], tmp_path: Path) -> None:
    user, side = trees
    assert moved_path(str(user / "src"), user, side) == str(side / "src")
    assert moved_path(str(user), user, side) == str(side)
    assert moved_path(str(user / "new"), user, side) is None, "the side has no such folder"
    for same in (str(tmp_path / "other"), str(side / "src"), str(user / ".venv/lib/site-packages"), "/usr/lib"):
        assert moved_path(same, user, side) == same


def test_links_into_the_working_tree_are_seen_through(trees: tuple[Path, Path], tmp_path: Path) -> None:
    user, side = trees
    (tmp_path / "link").symlink_to(user / "src")
    assert moved_path(str(tmp_path / "link"), user, side) == str(side / "src")


def test_a_path_keeps_its_order_without_doubles(trees: tuple[Path, Path]) -> None:
    user, side = trees
    entries = [str(user / "src"), "/usr/lib", str(user / "new"), str(side / "src")]
    assert moved_paths(entries, user, side) == [str(side / "src"), "/usr/lib"]


# As scikit-build-core 0.11 writes it; setuptools writes its own itself.
SCIKIT_BUILD = """
import sys
from importlib.util import spec_from_file_location

class ScikitBuildRedirectingFinder:
    def __init__(self):
        self.known_source_files = {"blocks": USER + "/src/blocks/__init__.py", "ns.part": USER + "/libs/far/ns/part.py"}
    def find_spec(self, fullname, path=None, target=None):
        if fullname in self.known_source_files:
            return spec_from_file_location(fullname, self.known_source_files[fullname])

sys.meta_path.insert(0, ScikitBuildRedirectingFinder())
"""


@pytest.mark.parametrize("installer", ["setuptools", "scikit-build"])
def test_finders_of_editable_installs_are_pointed_at_the_side(
    trees: tuple[Path, Path], tmp_path: Path, installer: str
) -> None:
    user, side = trees
    module = "__editable___blocks_1_0_finder"
    if installer == "setuptools":
        # In a process of its own: setuptools refuses to be imported once somebody has imported distutils.
        tables = f"{module!r}, {{'blocks': '{user}/src/blocks'}}, {{'ns': ['{user}/libs/far/ns']}}"
        asks = f"from setuptools.command.editable_wheel import _finder_template as t; print(t({tables}))"
        text = subprocess.run([sys.executable, "-c", asks], capture_output=True, text=True, check=True).stdout
        install = f"{module}.install()"
    else:
        text = f"USER = {str(user)!r}\n{SCIKIT_BUILD}"
        # The folder of the namespace is on the path, as scikit-build's `.pth` has it.
        install = f"sys.path.append({str(user / 'libs/far')!r})"
    (tmp_path / f"{module}.py").write_text(text)
    program = f"""
        import sys
        from pathlib import Path
        sys.path[:0] = [{str(tmp_path)!r}, {str(ROOT)!r}]
        import {module}
        {install}
        if {{moved}}:
            from harness.worker.side_paths import import_from_side
            import_from_side(Path({str(user)!r}), Path({str(side)!r}))
        import blocks, ns.part
        import subprocess
        child = f"import sys; sys.path.append({str(tmp_path)!r}); import {module}; {install}; "
        child += "import blocks; print(blocks.WHOSE)"
        told = subprocess.run([sys.executable, "-c", child], capture_output=True, text=True, check=True).stdout.strip()
        print(blocks.WHOSE, ns.part.WHOSE, told)
        """
    # scikit-build's comes before the search path, and a child has its own: the one case that stays as it is.
    of_child = "side" if installer == "setuptools" else "user"
    for moved, whose in ((False, "user user user"), (True, f"side side {of_child}")):
        command = [sys.executable, "-c", textwrap.dedent(program.replace("{moved}", str(moved)))]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert done.stdout.strip() == whose, done.stderr
