"""A wheel built from the tree works away from it: code, scenarios and the engine travel inside."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import sysconfig
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent

pytestmark = pytest.mark.slow


def checked(command: list[str], cwd: Path) -> str:
    """Run `command` and return its stdout; show what it said when it fails."""
    clean = {key: value for key, value in os.environ.items() if not key.startswith(("PYTHON", "VIRTUAL_ENV"))}
    done = subprocess.run(command, cwd=cwd, env=clean, capture_output=True, text=True, check=False, timeout=240)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("wheel")
    checked(
        [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--wheel-dir", str(folder), str(ROOT)], folder
    )
    return next(folder.glob("stepduel-*.whl"))


@pytest.fixture(scope="module")
def elsewhere(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A fresh environment with the wheel installed; everything it depends on is borrowed from the running one."""
    folder = tmp_path_factory.mktemp("elsewhere")
    checked([sys.executable, "-m", "venv", "--without-pip", "venv"], folder)
    python = str(folder / "venv" / "bin" / "python")
    target = Path(checked([python, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))"], folder).strip())
    pip = [sys.executable, "-m", "pip", "--python", python]
    checked([*pip, "install", "--quiet", "--no-deps", "--no-index", str(wheel)], folder)
    # A plain path entry: the editable install's own .pth in there is not followed, so the clone stays out of reach.
    (target / "borrowed.pth").write_text(sysconfig.get_path("purelib") + "\n")
    return folder


def test_wheel_holds_code_and_scenarios_and_nothing_else(wheel: Path) -> None:
    names = zipfile.ZipFile(wheel).namelist()
    tops = {name.split("/")[0] for name in names}
    assert {top for top in tops if not top.endswith(".dist-info")} == {"harness", "engine_under_test"}
    packaged = {Path(name).name for name in names if name.startswith("harness/_scenarios/")}
    assert packaged == {path.name for path in (ROOT / "scenarios").iterdir()}
    assert {"harness/cli/__main__.py", "harness/worker/__main__.py", "engine_under_test/fsdp2.py"} <= set(names)


def test_wheel_is_independent_of_the_clone(elsewhere: Path) -> None:
    where = checked([str(elsewhere / "venv/bin/python"), "-c", "import harness; print(harness.__file__)"], elsewhere)
    assert Path(where.strip()).is_relative_to(elsewhere / "venv")


def test_scenarios_works_elsewhere(elsewhere: Path) -> None:
    listed = checked([str(elsewhere / "venv/bin/stepduel"), "scenarios", "--json"], elsewhere)
    names = {row["name"] for row in json.loads(listed)["scenarios"]}
    assert names == {path.stem for path in (ROOT / "scenarios").glob("[!_]*.toml")}


def test_bench_works_elsewhere(elsewhere: Path) -> None:
    out = checked([str(elsewhere / "venv/bin/stepduel"), "bench", "smoke", "--steps", "2", "--json"], elsewhere)
    document = json.loads(out)
    assert (document["run"]["status"], document["run"]["revision"]) == ("completed", None)
    assert (elsewhere / document["trace"]).is_file()
