"""What a process has loaded is told, and what both sides share is not written through."""

from __future__ import annotations

import json
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def trees(tmp_path: Path) -> tuple[Path, Path]:
    user, side = tmp_path / "user", tmp_path / "side"
    for tree in (user, side):
        tree.mkdir()
        (tree / "config.txt").write_text("1")
        (tree / "shown.py").write_text("X = 1\n")
    (user / "data.bin").write_bytes(b"12345678" * 1024)
    (side / "data.bin").symlink_to(user / "data.bin")
    return user, side


def loaded(trees: tuple[Path, Path], tmp_path: Path, program: str) -> dict[str, Any]:
    user, side = trees
    report = tmp_path / "loaded.json"
    whole = f"""
import sys
from pathlib import Path
sys.path[:0] = [{str(ROOT)!r}]
from harness.worker.loaded import Loaded
user, side = Path({str(user)!r}), Path({str(side)!r})
looks = Loaded(user, side)
sys.path.insert(0, str(side))
{textwrap.dedent(program)}
looks.write(Path({str(report)!r}))
"""
    done = subprocess.run([sys.executable, "-c", whole], cwd=side, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(report.read_text())
    return found


def test_modules_files_and_programs_are_told(trees: tuple[Path, Path], tmp_path: Path) -> None:
    user, side = trees
    found = loaded(
        trees,
        tmp_path,
        """
        import subprocess, shown
        open("config.txt").read()
        (user / "config.txt").read_bytes()
        (side / "written.txt").write_text("new")
        subprocess.run([sys.executable, "-c", ""])
        """,
    )
    assert found["modules"] == [str(side / "shown.py")]
    assert set(found["opened"]) >= {str(side / "config.txt"), str(user / "config.txt")}
    assert str(side / "written.txt") not in found["opened"]
    assert found["started"] == [Path(sys.executable).name]


def test_what_is_mapped_into_memory_is_told(trees: tuple[Path, Path], tmp_path: Path) -> None:
    found = loaded(
        trees,
        tmp_path,
        """
        import mmap, os
        file = os.open(user / "data.bin", os.O_RDONLY)
        kept = mmap.mmap(file, 0, prot=mmap.PROT_READ)
        os.close(file)
        """,
    )
    assert found["objects"] == [str(trees[0] / "data.bin")]


def test_a_neighbour_whose_name_begins_alike_is_no_part_of_it(trees: tuple[Path, Path], tmp_path: Path) -> None:
    (tmp_path / "user2").mkdir()
    (tmp_path / "user2/x.txt").write_text("")
    found = loaded(trees, tmp_path, "open(str(user) + '2/x.txt').read(); open('../user/../user2/x.txt').read()")
    assert not [file for file in found["opened"] if "user2" in file]


def test_a_file_behind_a_link_is_told_by_where_it_lies(trees: tuple[Path, Path], tmp_path: Path) -> None:
    user, _ = trees
    (tmp_path / "alias").symlink_to(user)
    found = loaded(trees, tmp_path, f"open({str(tmp_path / 'alias/config.txt')!r}).read()")
    assert str(user / "config.txt") in found["opened"]


def test_installed_modules_are_told_by_their_names(trees: tuple[Path, Path], tmp_path: Path) -> None:
    found = loaded(trees, tmp_path, "import psutil")
    assert "psutil/__init__.py" in found["installed"]


def test_a_shared_file_is_not_written_through_its_link(trees: tuple[Path, Path], tmp_path: Path) -> None:
    user, _ = trees
    loaded(
        trees,
        tmp_path,
        """
        try:
            (side / "data.bin").open("r+b")
        except PermissionError as error:
            assert "which both sides share with the user's working tree" in str(error), error
        else:
            raise AssertionError("it was opened for writing")
        assert (side / "data.bin").read_bytes()
        """,
    )
    assert (user / "data.bin").stat().st_size == 8192


def test_a_module_elsewhere_is_told_with_its_state(trees: tuple[Path, Path], tmp_path: Path) -> None:
    (tmp_path / "mine").mkdir()
    elsewhere = tmp_path / "mine/helper.py"
    elsewhere.write_text("X = 1\n")
    found = loaded(trees, tmp_path, f"sys.path.insert(0, {str(tmp_path / 'mine')!r}); import helper")
    about = elsewhere.stat()
    assert found["elsewhere"] == {str(elsewhere): [about.st_size, about.st_mtime_ns]}


def test_looking_costs_little(trees: tuple[Path, Path], tmp_path: Path) -> None:
    """As a ratio to the same opens before, in one process: it must be of the size of what it looks at."""
    program = """
import os, sys, time
from pathlib import Path

def opens(file):
    started = time.perf_counter()
    for _ in range(200):
        os.close(os.open(file, os.O_RDONLY))
    return time.perf_counter() - started

file, root, user = sys.argv[1:]
before = min(opens(file) for _ in range(20))
sys.path.insert(0, root)
from harness.worker.loaded import Loaded
Loaded(Path(user), Path(file).parent)
after = min(opens(file) for _ in range(20))
print(before, after)
"""
    user, side = trees
    command = [sys.executable, "-c", program, str(side / "config.txt"), str(ROOT), str(user)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    before, after = map(float, done.stdout.split())
    assert after < 10 * before, (before, after)
