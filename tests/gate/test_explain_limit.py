"""What `stepduel gate --explain-limit` says of a policy, with the noise that is known of its scenarios."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from duel_bench import POLICY, SCENARIO

from harness.cli.__main__ import run
from harness.duel import PooledPrior
from harness.gate import explain
from harness.gate.limit import gate_rule, pairs_to_hold


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "scenarios").mkdir()
    (tmp_path / "scenarios" / "toy.toml").write_text(SCENARIO)
    (tmp_path / "pyproject.toml").write_text(POLICY + 'max_creep = "10%"\n')
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(explain, "DUELS", 200)
    return tmp_path


def explained(capsys: pytest.CaptureFixture[str], *arguments: str) -> dict[str, Any]:
    assert run(["gate", "--explain-limit", "--json", *arguments]) == 0
    found: dict[str, Any] = json.loads(capsys.readouterr().out)
    return found


def test_every_duel_has_its_curve_at_usual_noise_and_nothing_is_written(
    project: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    found = explained(capsys)
    assert found["schema"] == "stepduel/gate-limit/1"
    assert [(one["scenario"], one["against"], one["limit"], one["alpha"]) for one in found["curves"]] == [
        ("toy", "base", 0.05, 0.025),
        ("toy", "baseline", 0.1, 0.025),
    ]
    for curve in found["curves"]:
        assert (curve["pairs"], curve["same_code_duels"]) == (4, 0)
        assert "as is usual; `stepduel aa toy` measures it here" in curve["line"]
        for point in curve["points"]:
            assert point["fails"] + point["passes"] + point["undecided"] == pytest.approx(1)
        fails = {round(point["effect"] / curve["limit"], 1): point["fails"] for point in curve["points"]}
        assert list(fails) == [0, 0.5, 0.8, 0.9, 1.0, 1.1, 1.2, 1.5]
        assert fails[0.8] <= 0.05 < fails[1.0] < fails[1.2]
    assert not (project / "reports").exists()


def test_stored_same_code_duels_say_how_much_this_machine_scatters(
    project: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(explain, "_known", lambda *_: PooledPrior(spread=0.03, duels=7))
    (loud, _) = explained(capsys, "--pairs", "10")["curves"]
    needed = pairs_to_hold(gate_rule(0.05, pairs=10, alpha=0.025), 0.03)
    assert needed is not None
    assert needed > 10
    assert loud["line"] == (
        "launch pairs scatter by 3.0 %, as in 7 same-code duels of this machine: "
        f"10 pairs do not hold this limit, {needed} would (--pairs)"
    )
    assert run(["gate", "--explain-limit", "--pairs", "10"]) == 0
    out = capsys.readouterr().out
    assert "toy: limit 5.0 %, α = 0.025, at most 10 pairs" in out
    assert "toy (baseline): limit 10.0 %" in out
    assert "do not hold this limit" in out


def test_a_scenario_that_the_policy_lacks_is_an_error(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["gate", "--explain-limit", "--scenario", "toi"]) == 2
    assert "names no such scenario. Did you mean 'toy'?" in capsys.readouterr().err
