"""Duels that are ended: by a failing side, Ctrl-C, SIGKILL, the budget, an edit. Nothing is lost or left behind."""

from __future__ import annotations

import json
import re
import shlex
import signal
import sqlite3
import subprocess
import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path

import pytest
from child_process import PIPE, child
from duel_bench import POLICY, Bench, assert_nothing_left, compare, make_bench, rows

from harness.cli.__main__ import run


@pytest.fixture
def bench(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Bench:
    return make_bench(tmp_path, monkeypatch)


@pytest.mark.parametrize(("fault", "said"), [("kill", "ended by SIGKILL"), ("raise", "loss is NaN"), ("hang", "hung")])
def test_a_failing_side_keeps_what_was_done_and_resume_goes_on(
    bench: Bench, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, fault: str, said: str
) -> None:
    monkeypatch.setenv("STEPDUEL_TEST_FAULT", f"head pair02 3 {fault}")
    timeout = ("--set", "run.timeout_s=2", "--pairs", "2")
    status = run(bench.arguments("--json", *timeout))
    out, err = capsys.readouterr()
    assert (status, out) == (4, "")
    assert "launch pair 2, head" in err
    assert said in err
    assert_nothing_left(bench)
    assert rows(bench, "select count(*) from duel_pairs") == [(1,)]
    assert rows(bench, "select status from duels") == [("failed",)]
    (folder,) = (bench.reports / "duels").iterdir()
    assert all((folder / "pair02" / side / "torchrun.log").exists() for side in ("base", "head"))
    monkeypatch.delenv("STEPDUEL_TEST_FAULT")
    status, found = compare(bench, capsys, *timeout, "--resume")
    assert found["duel"]["id"] == folder.name
    assert len(list(folder.glob("pair02-failed-*/head/torchrun.log"))) == 1
    assert [pair["number"] for pair in found["pairs"]] == [1, 2]
    assert found["duel"]["status"] == "completed"
    # Pairs drawn after an interruption are those that would have been drawn without it.
    _, whole = compare(bench, capsys, *timeout)
    assert whole["verdict"] == found["verdict"]


def test_a_resumed_duel_keeps_the_pace_of_its_stored_pairs(
    bench: Bench, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("STEPDUEL_TEST_FAULT", "head pair02 3 kill")
    assert run(bench.arguments("--json", "--pairs", "2", "--steps", "7")) == 4
    monkeypatch.delenv("STEPDUEL_TEST_FAULT")
    capsys.readouterr()
    arguments = bench.arguments("--json", "--pairs", "2", "--resume")
    at = arguments.index("--steps")
    run([*arguments[:at], *arguments[at + 2 :]])
    found = json.loads(capsys.readouterr().out)
    assert [pair["steps"] for pair in found["pairs"]] == [7, 7]
    assert found["duel"]["steps"] == 7


def test_a_launch_that_does_its_steps_and_ends_badly_has_failed(
    bench: Bench, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(bench.arguments("--json", "--head-set", "engine.end_status=3")) == 4
    err = capsys.readouterr().err
    assert "launch pair 1, head: every step was done, but the launch ended with status 3 after its stop" in err
    assert_nothing_left(bench)


def wait_for(condition: Callable[[], bool], within_s: float = 30.0) -> None:
    deadline = time.monotonic() + within_s
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def started(bench: Bench, *more: str) -> AbstractContextManager[subprocess.Popen[str]]:
    """Start a compare in a process of its own whose subjects run under the stand-in."""
    return started_with(bench, *bench.arguments("--json", *more))


def started_with(
    bench: Bench, *arguments: str, cwd: Path | None = None
) -> AbstractContextManager[subprocess.Popen[str]]:
    code = f"import sys; sys.executable = {str(bench.python)!r}\n"
    code += "from harness.cli.__main__ import main; main()"
    real = bench.python.read_text().partition("\n")[0].removeprefix("#!")
    return child([real, "-c", code, *arguments], stderr=PIPE, stdout=PIPE, cwd=cwd)


def rows_so_far(bench: Bench, query: str) -> int:
    """The one number that a query gives; 0 as long as there is no such table."""
    try:
        return int(rows(bench, query)[0][0])
    except sqlite3.OperationalError:
        return 0


def said(err: str) -> list[str]:
    """The lines on stderr; click puts an empty one after what a terminal shows of Ctrl-C."""
    return [line for line in err.splitlines() if line]


def stepping(bench: Bench, pair: str) -> bool:
    found = [path.read_text().split() for path in bench.reports.glob(f"duels/*/{pair}/*/rank0.phase")]
    return len(found) == 2 and all(words and int(words[2]) > 1 for words in found)


def test_ctrl_c_ends_with_130_and_leaves_nothing(bench: Bench, capsys: pytest.CaptureFixture[str]) -> None:
    slow = ("--set", "engine.sleep_ms=20", "--pairs", "3")
    with started(bench, *slow) as process:
        wait_for(lambda: stepping(bench, "pair02"))
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=30)
    assert (process.returncode, out) == (130, "")
    assert "Traceback" not in err
    assert_nothing_left(bench)
    assert rows(bench, "select status from duels") == [("interrupted",)]
    assert rows(bench, "select count(*) from duel_pairs") == [(1,)]
    _, found = compare(bench, capsys, *slow, "--resume")
    assert len(found["pairs"]) == 3


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_stopped_duel_tells_its_result_so_far_and_the_command_that_goes_on(
    bench: Bench, capsys: pytest.CaptureFixture[str], number: signal.Signals
) -> None:
    arguments = bench.arguments("--set", "engine.sleep_ms=20", "--pairs", "3")
    with started_with(bench, *arguments) as process:
        wait_for(lambda: stepping(bench, "pair02"))
        process.send_signal(number)
        out, err = process.communicate(timeout=30)
    assert process.returncode == 130
    lines = out.splitlines()
    assert lines[1] == "INTERRUPTED with 1 launch pair of at most 3 stored, so far:"
    assert re.match(r"UNDECIDED [+-]?[\d.]+ % in total, .*  1 pair x 10 steps$", lines[2]), out
    assert "same work: losses identical" in out
    assert said(err)[-2:] == [
        f"go on with: {shlex.join(['stepduel', *arguments, '--resume'])}",
        "stepduel: interrupted",
    ]
    assert run(shlex.split(said(err)[-2].removeprefix("go on with: stepduel "))) in (0, 3)
    assert "INTERRUPTED" not in capsys.readouterr().out
    assert rows(bench, "select count(*) from duel_pairs") == [(3,)]
    assert rows(bench, "select status from duels") == [("completed",)]


def test_a_duel_stopped_before_its_first_launch_pair_is_whole_says_one_line(bench: Bench) -> None:
    with started_with(bench, *bench.arguments("--set", "engine.sleep_ms=20")) as process:
        wait_for(lambda: stepping(bench, "pair01"))
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=30)
    assert (process.returncode, out) == (130, "")
    assert said(err)[-1] == "stepduel: interrupted"
    assert "go on with" not in err


def test_a_stopped_duel_ends_with_130_although_its_reader_is_gone_too(bench: Bench) -> None:
    with started_with(bench, *bench.arguments("--set", "engine.sleep_ms=20")) as process:
        wait_for(lambda: stepping(bench, "pair02"))
        assert process.stdout is not None
        process.stdout.close()
        process.send_signal(signal.SIGINT)
        assert process.stderr is not None
        err = process.stderr.read()
        assert process.wait(timeout=30) == 130
    assert said(err)[-2].startswith("go on with: stepduel compare ")


def test_a_stopped_series_of_same_code_duels_goes_on_with_those_that_are_left(bench: Bench) -> None:
    arguments = ["aa", *bench.arguments()[1:3], *bench.arguments()[4:], "--set", "engine.sleep_ms=20", "--pairs", "2"]
    with started_with(bench, *arguments, "--duels", "4") as process:
        wait_for(lambda: rows_so_far(bench, "select count(*) from duel_pairs") >= 3)
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=30)
    assert process.returncode == 130
    assert "INTERRUPTED with 1 launch pair of at most 2 stored, so far:" in out
    assert said(err)[-2] == f"go on with: {shlex.join(['stepduel', *arguments, '--duels', '3', '--resume'])}"
    assert run(shlex.split(said(err)[-2].removeprefix("go on with: stepduel "))) in (0, 3)
    assert rows(bench, "select count(*) from duels") == [(4,)]
    assert rows(bench, "select count(*) from duel_pairs") == [(8,)]


def test_a_stopped_gate_tells_the_result_so_far_and_the_command_that_goes_on(bench: Bench) -> None:
    (bench.folder / "stepduel.toml").write_text(POLICY.replace("[tool.stepduel.gate]", "[gate]"))
    (bench.folder / "scenarios").mkdir()
    Path(bench.scenario).rename(bench.folder / "scenarios" / "toy.toml")
    arguments = [
        *("gate", "--policy", str(bench.folder / "stepduel.toml"), "--base", "HEAD", "--repo", str(bench.repo)),
        *("--reports", str(bench.reports), "--set", "engine.sleep_ms=20", "--head-set", "engine.step_ms=100"),
    ]
    with started_with(bench, *arguments, cwd=bench.folder) as process:
        wait_for(lambda: stepping(bench, "pair02"))
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=30)
    assert process.returncode == 130, err
    assert "interrupted, so far UNDECIDED" in out
    assert out.splitlines()[-1] == "INTERRUPTED: 1 of 1 (toy)"
    assert said(err)[-1] == f"go on with: {shlex.join(['stepduel', *arguments, '--resume'])}"
    assert rows(bench, "select count(*) from duel_pairs") == [(1,)]
    assert json.loads((bench.reports / "gate" / "gate.json").read_text())["exit_code"] == 130


def test_a_killed_coordinator_leaves_no_process_and_clean_removes_its_socket(
    bench: Bench, capsys: pytest.CaptureFixture[str]
) -> None:
    """The stand-in takes the place of the supervisor too: as if both had been killed."""
    with started(bench, "--set", "engine.sleep_ms=20") as process:
        wait_for(lambda: stepping(bench, "pair01"))
        process.kill()
        process.communicate()
        pids = [int(path.read_text()) for path in bench.reports.rglob("pid")]
        wait_for(lambda: not any(Path(f"/proc/{pid}/cmdline").exists() for pid in pids))
    assert run(["clean", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["sockets_removed"] == 2
    assert list((bench.folder / "s").iterdir()) == []


def test_a_budget_stops_in_time_and_says_how_to_go_on(bench: Bench, capsys: pytest.CaptureFixture[str]) -> None:
    slow = ("--set", "engine.sleep_ms=20")
    status, found = compare(bench, capsys, *slow, "--budget", "1s")
    assert status == 3
    assert (found["verdict"]["state"], found["verdict"]["reason"]) in (
        ("undecided", "more_pairs"),
        ("invalid", "no_steps"),
    )
    assert found["duel"]["status"] == "interrupted"
    assert_nothing_left(bench)


def test_code_edited_while_measured_is_not_what_is_measured(bench: Bench) -> None:
    """Launches of both pairs run in copies of the tree as it was when the command started."""
    with started(bench, "--set", "engine.sleep_ms=20", "--pairs", "2") as process:
        wait_for(lambda: stepping(bench, "pair01"))
        (bench.repo / "toy.py").write_text("def build(): return 1\n")
        wait_for(lambda: stepping(bench, "pair02"))
        copies = list((bench.folder / "cache/stepduel/sides").glob("*/*/tree/toy.py"))
        assert [path.read_text() for path in copies] == ["def build(): ...\n"] * 2
        process.communicate(timeout=60)
    assert not any(path.exists() for path in copies)
    assert process.returncode in (0, 3)


@pytest.mark.slow
def test_a_budget_that_cannot_reach_a_first_look_says_so_at_once(
    bench: Bench, capsys: pytest.CaptureFixture[str]
) -> None:
    slow = ("--set", "engine.sleep_ms=60", "--set", "run.period=20")
    arguments = bench.arguments(*slow, "--budget", "4s")
    at = arguments.index("--steps")
    run([*arguments[:at], *arguments[at + 2 :]])
    told = capsys.readouterr().err
    assert re.search(r"--budget leaves [\d.]+ s: 3 launch pairs, which a verdict needs, take about \d+ s more", told), (
        told
    )
    assert "60 steps a launch" in told, "three periods, however short the time"
