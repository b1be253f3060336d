"""The subject line of a side's commit is taken when the duel is made, and stored with the side."""

from __future__ import annotations

from pathlib import Path

import pytest
from duel_bench import compare, make_bench


def test_a_duel_stores_the_subject_lines_of_its_commits(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    bench = make_bench(tmp_path, monkeypatch)
    _, found = compare(bench, capsys, "--pairs", "2")
    assert [found[side]["commit_subject"] for side in ("base", "head")] == ["engine: a toy"] * 2
