"""What a duel tells beside step time: the first step, and what grows from step to step; duels of a toy that does so."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from duel_bench import Bench, compare, make_bench

from harness.cli.__main__ import run


@pytest.fixture
def bench(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Bench:
    return make_bench(tmp_path, monkeypatch)


def figures(found: dict[str, Any]) -> dict[str, dict[str, Any]]:
    return {figure["name"]: figure for figure in found["launch_figures"]}


def test_a_leak_is_told_by_the_step_with_its_interval(bench: Bench, capsys: pytest.CaptureFixture[str]) -> None:
    _, found = compare(bench, capsys, "--head-set", "engine.leak=300000", "--pairs", "3")
    leak = figures(found)["rss_bytes_per_step"]
    assert (leak["base"], leak["head"], leak["low"], leak["high"]) == (0, 3e5, 3e5, 3e5)
    assert (leak["grows"], leak["bound"], leak["at_far_step"]) == (True, None, 3e9)
    assert (found["verdict"]["state"], found["verdict"]["slowing"]) == ("same", None)
    assert run(["report", "--reports", str(bench.reports)]) == 0
    out = " ".join(capsys.readouterr().out.split())
    assert "growth a step: base 0 B, head 300 kB" in out
    assert "comes to 3.00 GB by step 10,000" in out


def test_a_step_that_gets_slower_is_told_with_what_it_comes_to(
    bench: Bench, capsys: pytest.CaptureFixture[str]
) -> None:
    _, found = compare(bench, capsys, "--head-set", "engine.slower_ms=1", "--pairs", "3", "--steps", "40")
    trend = figures(found)["step_ns_per_step"]
    assert trend["delta"] == pytest.approx(1e6, rel=0.05)
    assert trend["low"] < 1e6 < trend["high"]
    slowing = found["verdict"]["slowing"]
    assert (slowing["ns_per_step"], slowing["ci_ns"]) == (trend["delta"], [trend["low"], trend["high"]])
    assert re.search(r"; gets slower by (0\.9\d+|1\.0\d*) ms a step \[", found["verdict"]["line"])
    assert " ms by step 10,000" in found["verdict"]["line"]
    assert trend["grows"]
    assert trend["at_far_step"] == pytest.approx(1e10, rel=0.05), "ten seconds a step by step 10,000"
    assert not figures(found)["rss_bytes_per_step"]["grows"]


def test_the_first_step_has_its_own_figure(bench: Bench, capsys: pytest.CaptureFixture[str]) -> None:
    _, found = compare(bench, capsys, "--head-set", "engine.compile_ms=900", "--pairs", "3")
    first = figures(found)["first_step_ns"]
    assert (first["base"], first["head"]) == (pytest.approx(1e8, rel=0.02), pytest.approx(1e9, rel=0.02))
    assert first["low"] < 9e8 < first["high"]
    assert (first["at_far_step"], first["grows"]) == (None, True)
    assert figures(found)["start_ns"]["base"] > 0
    assert not figures(found)["step_ns_per_step"]["grows"]


def test_one_launch_pair_has_no_interval(bench: Bench, capsys: pytest.CaptureFixture[str]) -> None:
    _, found = compare(bench, capsys, "--head-set", "engine.other_loss_from=12", "--pairs", "2")
    assert len(found["pairs"]) == 1
    made = len(found["pairs"][0]["base_steps_ns"]) + found["duel"]["warmup_steps"]
    assert made == 13, "the launch pair ends where they part"
    assert {(figure["low"], figure["grows"]) for figure in found["launch_figures"]} == {(None, False)}
    assert "compare.loss_tolerance=0.035 would accept it" in found["verdict"]["detail"]
