"""docs/engines.md, done as it says: its files are written out and its commands run on them."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "engines.md").read_text(encoding="utf-8")


def block_after(words: str) -> str:
    """Return the first indented block behind `words`, without its indentation."""
    _, _, rest = PAGE.partition(words)
    found = re.search(r"\n\n((?:    .*\n|\n)+)", rest)
    assert found, f"no block behind {words!r}"
    return "".join(line[4:] if line.strip() else "\n" for line in found[1].splitlines(keepends=True)).strip() + "\n"


def commands() -> list[list[str]]:
    return [line.split() for line in block_after("In the folder of `loop.py`:").splitlines()]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "scenarios").mkdir()
    (tmp_path / "loop.py").write_text(block_after("`loop.py`:"), encoding="utf-8")
    (tmp_path / "scenarios" / "loop.toml").write_text(block_after("`scenarios/loop.toml`:"), encoding="utf-8")
    return tmp_path


def stepduel(folder: Path, *arguments: str) -> Any:
    out = subprocess.run(
        [sys.executable, "-m", "harness.cli", *arguments, "--json"],
        cwd=folder,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert out.returncode == 0, out.stderr
    return json.loads(out.stdout)


def test_the_engine_is_short_and_inherits_nothing() -> None:
    lines = [line for line in block_after("`loop.py`:").splitlines() if line.strip()]
    assert len(lines) <= 30
    assert not [line for line in lines if line.lstrip().startswith("class ")]


@pytest.mark.slow
def test_bench_shows_the_ranges_that_the_page_promises(folder: Path) -> None:
    assert commands()[0] == ["stepduel", "bench", "loop"]
    document = stepduel(folder, *commands()[0][1:])
    assert document["run"]["status"] == "completed"
    paths = {row["path"] for row in document["ranges"]}
    parts = {"train_mode_enter", "forward_backward", "optimizer_step", "optimizer_step/clip_gradients"}
    assert {"step", *(f"step/{part}" for part in parts)} <= paths
    assert not [path for path in paths if path.endswith("gc.collect")]


@pytest.mark.slow
def test_the_setting_that_the_page_compares_is_seen_as_what_it_is(folder: Path) -> None:
    assert commands()[1] == ["stepduel", "compare", "loop", "--head-set", "engine.tidy=true"]
    document = stepduel(folder, "bench", "loop", "--set", "engine.tidy=true")
    assert "step/train_mode_enter/gc.collect" in {row["path"] for row in document["ranges"]}
