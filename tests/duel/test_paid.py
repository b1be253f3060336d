"""What users pay beyond the typical step: duels of a toy that pays it at known steps, and the verdict that is right."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from duel_bench import Bench, compare, make_bench

HICCUPS = ("--set", "engine.hiccup_rate=0.02")
"""The machine's, three steps long on average, at other steps in every launch."""


@pytest.fixture
def bench(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Bench:
    return make_bench(tmp_path, monkeypatch)


def verdict_of(
    bench: Bench, capsys: pytest.CaptureFixture[str], *options: str, steps: int = 40
) -> tuple[dict[str, Any], dict[str, Any]]:
    _, found = compare(bench, capsys, *options, "--steps", str(steps))
    return found["verdict"], found


def head(**keys: float) -> list[str]:
    return [word for key, value in keys.items() for word in ("--head-set", f"engine.{key}={value}")]


def test_a_checkpoint_every_tenth_step_is_paid_and_named(bench: Bench, capsys: pytest.CaptureFixture[str]) -> None:
    verdict, found = verdict_of(bench, capsys, *HICCUPS, *head(every=10, pays_ms=720))
    assert verdict["state"] == "slower"
    assert verdict["ratio"] == pytest.approx(1.72, abs=0.03)
    assert verdict["typical_ratio"] == pytest.approx(1, abs=0.02)
    assert verdict["period"]["every"] == 10
    assert verdict["period"]["extra_ns"] == pytest.approx(720e6, rel=0.05)
    assert verdict["period"]["path"] == "step/checkpoint"
    assert "ms more at every 10th step, in step/checkpoint" in verdict["line"]
    assert found["ranges"][0]["path"] == "step/checkpoint"
    assert found["ranges"][0]["delta_ns"] == pytest.approx(72e6, rel=0.05), "a tenth of 720 ms at each step"


def test_what_comes_too_rarely_is_not_vouched_for(bench: Bench, capsys: pytest.CaptureFixture[str]) -> None:
    verdict, _ = verdict_of(bench, capsys, *head(every=50, pays_ms=720))
    assert verdict["state"] == "same", "none of its 40 measured steps pays: it cannot know"
    assert verdict["longest_period"] == 13
    assert "periods up to 13 steps" in verdict["line"]


def test_the_machine_s_hiccups_are_not_the_code_s(bench: Bench, capsys: pytest.CaptureFixture[str]) -> None:
    verdict, _ = verdict_of(bench, capsys, *HICCUPS)
    assert verdict["state"] == "same"
    assert verdict["looks"][-1]["head_cut_steps"] + verdict["looks"][-1]["base_cut_steps"] > 0
    assert verdict["period"] is None


def test_a_recompilation_in_the_middle_is_paid_once(bench: Bench, capsys: pytest.CaptureFixture[str]) -> None:
    verdict, found = verdict_of(bench, capsys, *HICCUPS, *head(once_at=21, pays_ms=400))
    assert verdict["state"] == "slower"
    assert verdict["ratio"] == pytest.approx(1.1, abs=0.02)
    assert verdict["period"] is None
    assert found["ranges"][0]["path"] == "step/recompile"


def test_a_step_with_two_modes_is_as_dear_as_both_cost(bench: Bench, capsys: pytest.CaptureFixture[str]) -> None:
    """No step index has it for sure, so the cap may take single ones for hiccups; the plain total does not."""
    verdict, found = verdict_of(bench, capsys, *head(pays_rate=0.3, pays_ms=40))
    assert verdict["state"] == "slower"
    assert verdict["looks"][-1]["uncapped"]["mean"] == pytest.approx(0.113, abs=0.04)
    assert "step/slow_mode" in {part["path"] for part in found["ranges"] if part["delta_ns"] > 0}


def test_steps_of_unlike_lengths_are_compared_step_by_step(bench: Bench, capsys: pytest.CaptureFixture[str]) -> None:
    unlike = ("--set", "engine.unlike_share=0.5")
    same, _ = verdict_of(bench, capsys, *unlike)
    assert same["state"] == "same"
    slower, _ = verdict_of(bench, capsys, *unlike, *head(step_ms=105))
    assert slower["state"] == "slower"
    assert slower["ratio"] == pytest.approx(1.05, abs=0.01)


def test_what_base_paid_and_head_does_not_is_named_too(bench: Bench, capsys: pytest.CaptureFixture[str]) -> None:
    verdict, _ = verdict_of(bench, capsys, "--base-set", "engine.every=8", "--base-set", "engine.pays_ms=200")
    assert verdict["state"] == "faster"
    assert verdict["period"]["every"] == 8
    assert "ms less at every 8th step, in step/checkpoint" in verdict["line"]
