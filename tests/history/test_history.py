"""A scenario over time: what belongs together, where the level changed, what is odd, and what has crept in."""

from __future__ import annotations

import json
import random
import re
import sqlite3
from pathlib import Path
from typing import Any

import pytest
from results import ENVIRONMENT, OTHER_MACHINE, add_duel, add_run, revision

from harness.cli.__main__ import run
from harness.scenario import load_scenario
from harness.store import BaselineRecord, Baselines, Store


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A user's folder without a repository, so that points stand in the order they were measured."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("GIT_CEILING_DIRECTORIES", str(tmp_path.parent))
    return tmp_path


def history(capsys: pytest.CaptureFixture[str], *arguments: str) -> dict[str, Any]:
    assert run(["history", "smoke", "--json", *arguments]) == 0
    found: dict[str, Any] = json.loads(capsys.readouterr().out)
    return found


def database(folder: Path) -> Path:
    return folder / "reports" / "results.db"


def add_noisy_runs(folder: Path, levels_ms: list[tuple[int, float]], seed: int = 1, steps: int = 3) -> None:
    noise = random.Random(seed)
    minute = 0
    for count, level_ms in levels_ms:
        for _ in range(count):
            step_ms = level_ms * (1 + noise.gauss(0, 0.005))
            add_run(database(folder), f"r{minute:03d}", step_ms, minute=minute, steps=steps)
            minute += 1


def test_a_change_of_level_is_found_at_its_commit(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    add_noisy_runs(folder, [(12, 100.0), (12, 106.0)])
    found = history(capsys)
    assert found["schema"] == "stepduel/history/3"
    (series,) = found["series"]
    assert series["points"][0]["step_ns"] == pytest.approx(100e6, rel=0.02), "of the slowest rank"
    (change,) = series["changes"]
    assert (change["index"], series["points"][12]["revision"]) == (12, revision(12))
    assert change["ratio"] == pytest.approx(1.06, abs=0.01)
    assert [(level["first"], level["last"]) for level in series["levels"]] == [(0, 11), (12, 23)]


def stretch(folder: Path, where: str, factor: float) -> None:
    """Make the steps of stored runs longer."""
    with sqlite3.connect(database(folder)) as connection:
        connection.execute(f"update steps set duration_ns = duration_ns * {factor} where {where}")
    connection.close()


def test_what_comes_at_every_tenth_step_is_a_change_of_level(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    add_noisy_runs(folder, [(24, 100.0)], steps=20)
    stretch(folder, "run_id >= 'r012' and sequence % 10 = 0", 1.6)
    (series,) = history(capsys)["series"]
    (change,) = series["changes"]
    assert (change["index"], change["typical"]) == (12, False)
    assert change["ratio"] == pytest.approx(1.06, abs=0.01)
    last = series["points"][-1]
    assert last["step_ns"] / last["median_ns"] == pytest.approx(1.06), "the mean leads, the median stands beside it"
    assert run(["history", "smoke", "--html", "h.html"]) == 0
    out = capsys.readouterr().out
    assert re.search(r"24 points, now at 106\.\d ms a step, (100\.\d|99\.\d+) ms in the median", out), out
    assert "Mean step, ms" in Path("h.html").read_text()


def test_a_change_that_hiccups_hide_in_the_mean_is_found_in_the_typical_step(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    add_noisy_runs(folder, [(12, 100.0), (12, 105.0)], steps=20)
    for number, at in ((1, 3), (5, 7), (9, 2), (16, 5)):
        stretch(folder, f"run_id = 'r{number:03d}' and sequence = {at}", 6.0)
    (change,) = history(capsys)["series"][0]["changes"]
    assert (change["index"], change["typical"]) == (12, True)
    assert run(["history", "smoke"]) == 0
    assert re.search(r"\+[45]\.\d % in the typical step from 0{10} on, to 10[45]\.\d ms", capsys.readouterr().out)


def test_a_duel_is_told_by_its_total_and_its_typical_step(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    add_duel(database(folder), "d1", 100, 100, minute=2, pairs=3, measured_steps=10)
    with sqlite3.connect(database(folder)) as connection:
        slow = "update duel_steps set duration_ns = duration_ns * 2 where side = 'head' and measured and sequence = "
        connection.execute(f"{slow}(select max(sequence) from duel_steps)")
    connection.close()
    (duel,) = history(capsys)["duels"]
    assert duel["typical_ratio"] == pytest.approx(1.0)
    assert duel["ratio"] == pytest.approx(1.1)


def test_a_change_below_two_per_cent_and_a_single_odd_point_are_no_new_level(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    add_noisy_runs(folder, [(12, 100.0), (12, 101.5)])
    assert history(capsys)["series"][0]["changes"] == []


@pytest.mark.parametrize(
    "other",
    [
        {"environment": OTHER_MACHINE},
        {"collector": "nsys"},
        {"harness_version": "0.2.0"},
        {"scenario_hash": "xyz"},
    ],
)
def test_what_is_not_comparable_is_kept_apart(
    folder: Path, capsys: pytest.CaptureFixture[str], other: dict[str, Any]
) -> None:
    for minute in range(12):
        add_run(database(folder), f"a{minute:02d}", 100 + minute % 2, minute=minute)
    add_run(database(folder), "b", 200, minute=20, **other)
    found = history(capsys)
    assert [len(series["points"]) for series in found["series"]] == [1, 12], "newest first"
    assert {point["mark"] for series in found["series"] for point in series["points"]} == {""}


def test_runs_sides_of_duels_and_overrides_are_kept_apart(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = database(folder)
    add_run(path, "run", 100, minute=1)
    add_duel(path, "duel", 100, 90, minute=2)
    slower = {"subject": ".", "revision": revision(3), "dirty": False, "overrides": ["engine.x=1"]}
    add_duel(path, "set", 100, 150, minute=5, head=slower)
    found = history(capsys)
    kinds = {(one["key"]["kind"], tuple(one["key"]["overrides"])): one["points"] for one in found["series"]}
    assert {key: len(points) for key, points in kinds.items()} == {
        ("run", ()): 1,
        ("duel", ()): 3,
        ("duel", ("engine.x=1",)): 1,
    }
    assert [point["step_ns"] for point in kinds["duel", ()]] == [100e6, 90e6, 100e6]
    assert [(duel["id"], duel["ratio"]) for duel in found["duels"]] == [
        ("set", pytest.approx(1.5)),
        ("duel", pytest.approx(0.9)),
    ]


def test_an_odd_point_is_suspicious_until_a_rerun_of_the_same_code_says_more(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    add_noisy_runs(folder, [(12, 100.0)])
    add_run(database(folder), "odd", 110, minute=50)
    assert history(capsys)["series"][0]["points"][-1]["mark"] == "suspicious"
    assert run(["history", "smoke"]) == 0
    assert "suspiciously slow, not measured again yet: 0000000000" in capsys.readouterr().out
    add_run(database(folder), "again", 100, minute=51, revision=revision(50))
    assert history(capsys)["series"][0]["points"][-2]["mark"] == "refuted"
    add_run(database(folder), "other", 110, minute=52)
    add_run(database(folder), "other2", 110, minute=53, revision=revision(52))
    assert [point["mark"] for point in history(capsys)["series"][0]["points"][-2:]] == ["confirmed", "confirmed"]


def test_creep_is_told_against_the_pinned_baseline(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for minute, step_ms in enumerate((100, 101, 102, 103)):
        add_run(database(folder), f"r{minute}", step_ms, minute=minute)
    with Store(database(folder)) as store:
        Baselines(store).pin(BaselineRecord(scenario="smoke", revision=revision(0), pinned_at="2026-01-01"))
    found = history(capsys)
    assert found["series"][0]["creep"] == pytest.approx(1.015)
    with Store(database(folder)) as store:
        Baselines(store).pin(BaselineRecord(scenario="smoke", revision=revision(99), pinned_at="2026-01-01"))
    found = history(capsys)
    assert found["series"][0]["creep"] is None
    assert "was never measured" in found["notes"][0]


def test_runs_without_a_revision_are_no_baseline_where_none_is_pinned(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for minute in range(3):
        add_run(database(folder), f"r{minute}", 100 + minute, minute=minute, revision=None)
    (series,) = history(capsys)["series"]
    assert (series["creep"], series["baseline_ns"]) == (None, None)


def test_points_stand_in_the_order_of_commits_where_the_repository_knows_them(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    from duel_bench import git

    monkeypatch.chdir(tmp_path)
    git(tmp_path, "init", "-q", "-b", "main")
    commits = []
    for subject in ("one", "two", "three"):
        git(tmp_path, "commit", "-q", "--allow-empty", "-m", subject)
        commits.append(git(tmp_path, "rev-parse", "HEAD"))
    for minute, place in enumerate((2, 0, 1)):
        add_run(database(tmp_path), f"r{minute}", 100, minute=minute, revision=commits[place])
    (series,) = history(capsys)["series"]
    assert series["by_commit"]
    assert [point["revision"] for point in series["points"]] == commits
    add_run(database(tmp_path), "foreign", 100, minute=9)
    assert not history(capsys)["series"][0]["by_commit"]


def test_failed_runs_are_told_and_are_no_points(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    add_run(database(folder), "ok", 100)
    add_run(database(folder), "dead", 1, minute=3, steps=0, status="failed", reason="rank 0 raised")
    found = history(capsys)
    assert [item["id"] for item in found["failed"]] == ["dead"]
    assert run(["history", "smoke"]) == 0
    assert "run dead measured nothing: rank 0 raised" in capsys.readouterr().out


def test_the_page_repeats_to_the_byte_and_holds_hostile_names_as_text(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    hostile = "<script>alert(1)</script>\x1b[2J"
    add_noisy_runs(folder, [(12, 100.0), (12, 106.0)])
    add_run(database(folder), hostile, 106, minute=60, subject=hostile, revision=None, dirty=None)
    add_run(database(folder), "dead", 1, minute=61, steps=0, status="failed", reason=hostile)
    pages = []
    for name in ("a.html", "b.html"):
        assert run(["history", "smoke", "--html", name]) == 0
        pages.append((folder / name).read_bytes())
    assert pages[0] == pages[1]
    text = pages[0].decode()
    assert "<script>alert" not in text
    assert "&lt;script&gt;alert" in text
    assert "\x1b" not in text + capsys.readouterr().out
    assert re.search(r">\+\d\.\d % from here on[<,]", text)


def test_what_differs_between_scenarios_is_named(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The keys named are those that the hash is over: limits on waiting and words are not among them."""
    scenarios = [
        load_scenario("smoke", overrides)
        for overrides in (
            ["engine.lora_rank=64", "engine.only_here=1", "run.timeout_s=7", "subject.package='toy'"],
            ["run.steps=3", "description=words", "run.start_timeout_s=9"],
        )
    ]
    for minute, scenario in enumerate(scenarios):
        document: dict[str, Any] = {"scenario_hash": scenario.hash, "scenario_document": scenario.document()}
        add_run(database(folder), f"r{minute}", 100, minute=minute, **document)
    newest, older = history(capsys)["series"]
    assert newest["scenario_keys"] == {}
    steps = load_scenario("smoke").run.steps
    keys = {"engine.lora_rank": "64", "engine.only_here": "1", "run.steps": str(steps), "subject.package": '"toy"'}
    assert older["scenario_keys"] == keys
    assert run(["history", "smoke", "--html", "h.html"]) == 0
    said = f"engine.lora_rank = 64, engine.only_here = 1, run.steps = {steps}"
    assert said in capsys.readouterr().out
    assert said in Path("h.html").read_text(encoding="utf-8")


def test_a_duel_under_way_is_no_point_yet(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    add_duel(database(folder), "ended", 100, 110, pairs=1)
    add_duel(database(folder), "going-on", 100, 150, minute=5, pairs=2, status="running")
    found = history(capsys)
    assert {point["id"] for series in found["series"] for point in series["points"]} == {"ended"}
    assert found["running"] == ["going-on"]
    assert found["failed"] == []
    assert run(["history", "smoke", "--html", "h.html"]) == 0
    out = capsys.readouterr().out
    assert "+50.0 % in total, +50.0 % in the typical step over 2 launch pairs so far  (going-on)" in out
    assert "+10.0 % in total, +10.0 % in the typical step over 1 launch pair  (ended)" in out
    assert "duel going-on is under way, or was killed" in out
    assert "duel going-on is under way" in Path("h.html").read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["history", "smok"], "nothing is stored of 'smok'. Did you mean 'smoke'?"),
        (["history", "smoke", "--reports", "nowhere"], "nowhere/results.db: no results yet"),
        (["baseline", "clear", "smok"], "'smok' has no pinned baseline"),
        (["baseline", "set", "smoke", "HEAD"], "no git repository"),
        (["db", "prune"], "--keep"),
        (["index", "--reports", "nowhere"], "nowhere: no such folder"),
    ],
)
def test_bad_requests_are_one_line(
    folder: Path, capsys: pytest.CaptureFixture[str], arguments: list[str], complaint: str
) -> None:
    add_run(database(folder), "r", 100, environment=ENVIRONMENT)
    assert run(arguments) == 2
    out, errors = capsys.readouterr()
    assert out == ""
    assert complaint in errors
    assert errors.count("\n") == 1
