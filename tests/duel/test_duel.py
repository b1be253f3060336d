"""Duels of a toy whose truth is known: the verdict, where the difference lies, what is stored, and what goes wrong.

The toy is played by a stand-in for the subject's Python, so that a duel takes seconds and needs no torch.
"""

from __future__ import annotations

import json
import math
import os
import sqlite3
from pathlib import Path

import pytest
from duel_bench import Bench, assert_nothing_left, compare, git, make_bench, rows

from harness.cli.__main__ import run


@pytest.fixture
def bench(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Bench:
    return make_bench(tmp_path, monkeypatch)


def test_a_slower_head_is_found_and_placed(bench: Bench, capsys: pytest.CaptureFixture[str]) -> None:
    head = ("--head-set", "engine.step_ms=105", "--head-set", "engine.extra_ms=5")
    status, found = compare(bench, capsys, *head)
    assert status == 0
    assert found["schema"] == "stepduel/compare/2"
    verdict = found["verdict"]
    assert (verdict["state"], verdict["reason"], verdict["pairs"]) == ("slower", "beyond_min_effect", 3)
    assert verdict["ratio"] == pytest.approx(1.05, abs=0.01)
    assert verdict["ci"][0] < verdict["ratio"] < verdict["ci"][1]
    assert found["head"]["overrides"] == ["engine.step_ms=105", "engine.extra_ms=5"]
    # The parts add up to the step, and the part that only head has is the one that costs.
    whole = found["head"]["step_ns"] - found["base"]["step_ns"]
    assert math.fsum(part["delta_ns"] for part in found["ranges"]) == pytest.approx(whole, abs=1e-3)
    assert found["ranges"][0]["path"] == "step/extra"
    assert (found["ranges"][0]["base_ns"], found["ranges"][0]["head_ns"]) == (0, pytest.approx(5e6))
    assert found["same_work"] == {
        "within_tolerance": True,
        "steps_compared": 3 * 15,
        "max_abs_diff": 0.0,
        "tolerance": 0.0,
        "ends_compared": 0,
        "not_a_number": 0,
        "first_difference": None,
    }
    peak = next(metric for metric in found["metrics"] if metric["name"] == "peak_memory_bytes")
    assert (peak["base"], peak["head"]) == (10**9, 10**9)
    assert_nothing_left(bench)


def test_the_ratios_are_those_of_the_slowest_rank(bench: Bench, capsys: pytest.CaptureFixture[str]) -> None:
    _, found = compare(bench, capsys, "--ranks", "2", "--pairs", "2")
    typical, uncapped = [], []
    for pair in (1, 2):
        times: dict[str, dict[int, int]] = {"base": {}, "head": {}}
        query = f"select side, sequence, duration_ns from duel_steps where pair = {pair} and measured"
        for side, sequence, duration_ns in rows(bench, query):
            times[side][sequence] = max(duration_ns, times[side].get(sequence, 0))
        ratios = sorted(math.log(times["head"][step] / times["base"][step]) for step in times["base"])
        assert len(ratios) == 10
        typical.append((ratios[4] + ratios[5]) / 2)
        uncapped.append(math.log(sum(times["head"].values()) / sum(times["base"].values())))
    verdict = found["verdict"]
    assert verdict["typical_ratio"] == pytest.approx(math.exp(sum(typical) / 2), rel=1e-12)
    assert verdict["looks"][0]["uncapped"]["mean"] == pytest.approx(sum(uncapped) / 2, rel=1e-9)
    # Two launches of a side: a step may cost at most what both showed, or what ordinary scatter makes of it.
    assert verdict["ratio"] == pytest.approx(math.exp(verdict["looks"][0]["total"]["mean"]), rel=1e-12)


def test_every_step_is_stored_with_its_slot_and_the_coin_is_seeded(
    bench: Bench, capsys: pytest.CaptureFixture[str]
) -> None:
    for _ in range(2):
        compare(bench, capsys, "--pairs", "2")
    query = "select duel_id, pair, sequence, side, slot from duel_steps order by 1, 2, 3, 4"
    stored = rows(bench, query)
    first, second = (list(part) for part in (stored[: len(stored) // 2], stored[len(stored) // 2 :]))
    assert [row[1:] for row in first] == [row[1:] for row in second]
    assert len(first) == 2 * 15 * 2
    slots = {(pair, sequence, side): slot for _, pair, sequence, side, slot in first}
    firsts = [slots[pair, sequence, "base"] for pair in (1, 2) for sequence in range(15)]
    assert {slots[key] + slots[(*key[:2], "head")] for key in slots if key[2] == "base"} == {1}
    assert 0 < sum(firsts) < len(firsts)
    starters = rows(bench, "select starter from duel_pairs order by duel_id, pair")
    assert starters == [("head",), ("base",)] * 2
    # Both sides of a pair drew from the same hash seed, pairs from different ones.
    assert len(set(rows(bench, "select order_seed from duel_pairs"))) == 2
    conditions = [json.loads(text) for (text,) in rows(bench, "select conditions from duel_pairs")]
    assert all(row["load_average"] >= 0 and 0 <= row["busy_share"] <= 1 for row in conditions)


@pytest.mark.parametrize("interleave", ["steps", "blocks"])
def test_both_sides_step_on_the_same_cores_unless_told_not_to(
    bench: Bench, capsys: pytest.CaptureFixture[str], interleave: str
) -> None:
    usable = sorted(os.sched_getaffinity(0))
    for option, expected in (("--pin", usable[-1:]), ("--no-pin", usable)):
        _, found = compare(bench, capsys, "--pairs", "2", "--interleave", interleave, option)
        where = [json.loads(path.read_text()) for path in (bench.reports / found["duel"]["logs"]).rglob("cores")]
        assert where == [expected] * 4
        assert found["cores"] == ([expected] if option == "--pin" else None)


def test_the_report_computes_the_same_verdict_from_the_database_alone(
    bench: Bench, capsys: pytest.CaptureFixture[str]
) -> None:
    status, found = compare(bench, capsys, "--head-set", "engine.step_ms=102", "--pairs", "4")
    for path in bench.reports.rglob("*"):
        if path.is_file() and not path.name.startswith("results.db"):
            path.unlink()
    assert run(["report", "--reports", str(bench.reports), "--json"]) == status
    again = json.loads(capsys.readouterr().out)
    assert again == found
    assert run(["report", "--reports", str(bench.reports)]) == status
    assert found["verdict"]["line"] in capsys.readouterr().out


def test_other_losses_make_it_invalid_at_once(bench: Bench, capsys: pytest.CaptureFixture[str]) -> None:
    status, found = compare(bench, capsys, "--head-set", "engine.other_loss_from=7", "--head-set", "engine.step_ms=50")
    assert status == 3
    assert (found["verdict"]["state"], found["verdict"]["reason"]) == ("invalid", "different_work")
    assert found["same_work"]["first_difference"] == {
        **{"pair": 1, "step": 7, "rank": 0, "what": "loss", "base": 9.0, "head": 9.5},
        "relative": pytest.approx(0.5 / 9.5),
    }
    assert found["same_work"]["max_abs_diff"] == 0.5
    assert len(found["pairs"]) == 1
    assert "step 7" in found["verdict"]["detail"]


def test_a_tolerance_lets_small_differences_pass(bench: Bench, capsys: pytest.CaptureFixture[str]) -> None:
    other = ("--head-set", "engine.other_loss_from=7", "--pairs", "2")
    _, found = compare(bench, capsys, *other, "--set", "compare.loss_tolerance=0.1")
    assert found["same_work"]["within_tolerance"]
    assert found["verdict"]["state"] != "invalid"
    # Other versions of torch may add in another order: exactness is then not asked for, 1e-5 is.
    _, found = compare(bench, capsys, "--pairs", "2", "--head-set", "engine.torch=2.6.0")
    assert found["same_work"]["tolerance"] == 1e-5


def test_a_side_that_refuses_makes_it_invalid_and_both_are_a_usage_error(
    bench: Bench, capsys: pytest.CaptureFixture[str]
) -> None:
    status, found = compare(bench, capsys, "--base-set", "engine.refuse=true")
    assert status == 3
    assert (found["verdict"]["state"], found["verdict"]["reason"]) == ("invalid", "cannot_run")
    assert "base" in found["verdict"]["detail"]
    assert "unknown key 'refuse'" in found["verdict"]["detail"]
    status, found = compare(bench, capsys, "--set", "engine.refuse=true")
    assert (status, found) == (2, {})


def test_a_side_that_raises_when_built_makes_it_invalid_and_both_are_a_failed_launch(
    bench: Bench, capsys: pytest.CaptureFixture[str]
) -> None:
    status, found = compare(bench, capsys, "--base-set", "engine.build_raises=true")
    assert status == 3
    assert (found["verdict"]["state"], found["verdict"]["reason"]) == ("invalid", "cannot_run")
    assert "base cannot run the scenario" in found["verdict"]["detail"]
    assert "AssertionError: the model must move along" in found["verdict"]["detail"]
    assert_nothing_left(bench)
    status, found = compare(bench, capsys, "--set", "engine.build_raises=true")
    assert (status, found) == (4, {})
    assert_nothing_left(bench)


def test_a_revision_without_the_engine_is_invalid(bench: Bench, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = bench.arguments("--json")
    arguments[2:4] = ["HEAD^{/before the engine}", "HEAD"]
    assert run(arguments) == 3
    found = json.loads(capsys.readouterr().out)
    assert found["verdict"]["reason"] == "cannot_run"
    assert found["base"]["revision"] == git(bench.repo, "rev-parse", "HEAD~1")
    assert "no package 'toy'" in found["verdict"]["detail"]
    assert found["pairs"] == []


def test_blocks_alternate_whole_launches(bench: Bench, capsys: pytest.CaptureFixture[str]) -> None:
    status, found = compare(bench, capsys, "--interleave", "blocks", "--pairs", "2")
    assert status in (0, 3)
    assert len(found["pairs"]) == 2
    began = dict(rows(bench, "select side, min(began_ns) from duel_steps where pair = 1 group by side"))
    ended = dict(rows(bench, "select side, max(began_ns) from duel_steps where pair = 1 group by side"))
    assert ended["head"] < began["base"]  # seed 7: head starts the first pair


def test_exit_code_makes_slower_one(bench: Bench, capsys: pytest.CaptureFixture[str]) -> None:
    status, _ = compare(bench, capsys, "--head-set", "engine.step_ms=110", "--exit-code", "--pairs", "4")
    assert status == 1
    assert run(["report", "--reports", str(bench.reports), "--exit-code", "--json"]) == 1


def copy_same_code_duel(bench: Bench, times: int) -> None:
    """Add copies of the stored same-code duel, their step times scattered anew by up to 1 %."""
    connection = sqlite3.connect(bench.reports / "results.db")
    (duel,) = connection.execute("select min(id) from duels where kind = 'aa'").fetchone()
    for table in ("duels", "duel_pairs", "duel_steps"):
        owner = "id" if table == "duels" else "duel_id"
        columns = [name for _, name, *_ in connection.execute(f"pragma table_info({table})") if name != owner]
        scattered = [
            "cast(duration_ns * (1 + (random() % 100) / 10000.0) as integer)" if name == "duration_ns" else name
            for name in columns
        ]
        for copy in range(times):
            connection.execute(
                f"insert into {table} ({owner}, {', '.join(columns)}) "
                f"select {owner} || '-{times}-{copy}', {', '.join(scattered)} from {table} where {owner} = ?",
                [duel],
            )
    connection.commit()
    connection.close()


def test_same_code_duels_lend_variance_from_the_twentieth_on(bench: Bench, capsys: pytest.CaptureFixture[str]) -> None:
    own = ["--repo", str(bench.repo), "--reports", str(bench.reports), "--steps", "10", "--pairs", "2"]
    assert run(["aa", bench.scenario, *own]) in (0, 3)
    assert "1 same-code duel on this machine" in capsys.readouterr().out
    copy_same_code_duel(bench, 18)
    _, found = compare(bench, capsys, "--pairs", "2")
    assert found["prior"] is None
    copy_same_code_duel(bench, 1)
    _, found = compare(bench, capsys, "--pairs", "2")
    assert found["prior"]["duels"] == 20
    assert found["verdict"]["looks"][0]["total"]["dof"] == pytest.approx(found["prior"]["dof"] + 1)
    # Longer launches than ours scatter less than ours will: they may not lend.
    arguments = bench.arguments("--json", "--pairs", "2")
    arguments[arguments.index("--steps") + 1] = "5"
    run(arguments)
    assert json.loads(capsys.readouterr().out)["prior"] is None


def test_overhead_has_an_untraced_base(bench: Bench, capsys: pytest.CaptureFixture[str]) -> None:
    own = ["--repo", str(bench.repo), "--reports", str(bench.reports), "--steps", "10", "--pairs", "2", "--json"]
    assert run(["overhead", bench.scenario, *own]) in (0, 3)
    found = json.loads(capsys.readouterr().out)
    assert found["duel"]["kind"] == "overhead"
    assert [part["path"] for part in found["ranges"]] == ["step"]
    sides = [json.loads(path.read_text())["rank_side"] for path in sorted(bench.reports.rglob("pair01/*/plan.json"))]
    assert sides == [None, "harness.collectors.recorder"]


@pytest.mark.parametrize(
    ("more", "said"),
    [
        (["--head-set", "run.seed=3"], "only engine.KEY=VALUE may differ"),
        (["--budget", "soon"], "expected a time above 0"),
        (["--margin", "two"], "expected a share"),
        (["--margin", "2"], "expected a share"),
        (["--min-effect", "-1%"], "expected a share"),
    ],
)
def test_wrong_requests_end_with_2_and_write_nothing(
    bench: Bench, capsys: pytest.CaptureFixture[str], more: list[str], said: str
) -> None:
    assert run(bench.arguments(*more)) == 2
    assert said in capsys.readouterr().err
    assert not bench.reports.exists()


def test_a_collector_that_is_told_what_to_record_gets_the_pace_beforehand(
    bench: Bench, capsys: pytest.CaptureFixture[str]
) -> None:
    status, found = compare(bench, capsys, "--collector", "kineto", "--pairs", "2")
    assert status in (0, 3)
    assert found["duel"]["warmup_steps"] == 1
    plan = json.loads(next(bench.reports.rglob("pair02/head/plan.json")).read_text())
    assert (plan["rank_side"], plan["capture"]) == ("harness.collectors.kineto", [1, 10])
    assert {part["path"] for part in found["ranges"]} == {"step", "step/forward_backward"}


def test_one_more_pair_explains_and_is_no_evidence(bench: Bench, capsys: pytest.CaptureFixture[str]) -> None:
    _, found = compare(bench, capsys, "--explain", "kineto", "--pairs", "2")
    assert [pair["number"] for pair in found["pairs"]] == [1, 2]
    (text,) = rows(bench, "select explanation from duels")[0]
    explanation = json.loads(text)
    assert explanation["collector"] == "kineto"
    assert all((bench.reports / explanation[f"{side}_trace"]).is_file() for side in ("base", "head"))


def test_a_verdict_survives_an_explanation_that_fails(
    bench: Bench, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("STEPDUEL_TEST_FAULT", "head explain 2 kill")
    status = run(bench.arguments("--explain", "kineto", "--pairs", "2", "--head-set", "engine.step_ms=110", "--json"))
    out, err = capsys.readouterr()
    assert status in (0, 3)
    assert json.loads(out)["duel"]["status"] == "completed"
    assert "explain GPU time failed: launch pair 3, head" in err
    assert_nothing_left(bench)


def test_a_build_that_fails_in_a_later_pair_is_a_failed_launch_and_no_verdict(
    bench: Bench, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("STEPDUEL_TEST_FAULT", "head pair02 -1 build")
    status = run(bench.arguments("--json", "--pairs", "2"))
    out, err = capsys.readouterr()
    assert (status, out) == (4, "")
    assert "launch pair 2, head" in err
    assert "AssertionError: the model must move along" in err
    assert rows(bench, "select status, objection from duels") == [("failed", None)]
    assert_nothing_left(bench)


@pytest.mark.parametrize(("warmup", "steps", "captured"), [(0, 2, [1, 4]), (2, 5, [2, 6])])
def test_a_pace_told_beforehand_is_the_scenarios_and_never_less_than_a_duel_needs(
    bench: Bench, capsys: pytest.CaptureFixture[str], warmup: int, steps: int, captured: list[int]
) -> None:
    pace = ["--set", f"run.warmup_steps={warmup}", "--set", f"run.steps={steps}"]
    arguments = bench.arguments("--json", "--collector", "kineto", "--pairs", "2", *pace)
    at = arguments.index("--steps")
    assert run(arguments[:at] + arguments[at + 2 :]) in (0, 3)
    assert json.loads(capsys.readouterr().out)["duel"]["warmup_steps"] == max(warmup, 1)
    plan = json.loads(next(bench.reports.rglob("pair01/head/plan.json")).read_text())
    assert plan["capture"] == captured
