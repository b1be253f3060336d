"""Duels that are ended: by a failing side, Ctrl-C, SIGKILL, the budget, an edit. Nothing is lost or left behind."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path

import pytest
from child_process import PIPE, child
from duel_bench import Bench, assert_nothing_left, compare, make_bench, rows

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


def wait_for(condition: Callable[[], bool], within_s: float = 30.0) -> None:
    deadline = time.monotonic() + within_s
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def started(bench: Bench, *more: str) -> AbstractContextManager[subprocess.Popen[str]]:
    """Start a compare in a process of its own whose subjects run under the stand-in."""
    code = f"import sys; sys.executable = {str(bench.python)!r}\n"
    code += "from harness.cli.__main__ import main; main()"
    real = bench.python.read_text().partition("\n")[0].removeprefix("#!")
    return child([real, "-c", code, *bench.arguments("--json", *more)], stderr=PIPE, stdout=PIPE)


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


def test_code_edited_while_measured_ends_the_duel(bench: Bench, capsys: pytest.CaptureFixture[str]) -> None:
    with started(bench, "--set", "engine.sleep_ms=20", "--pairs", "2") as process:
        wait_for(lambda: stepping(bench, "pair01"))
        (bench.repo / "toy.py").write_text("def build(): return 1\n")
        _, err = process.communicate(timeout=60)
    assert process.returncode == 2
    assert "edited while it was being measured" in err


@pytest.mark.slow
def test_a_budget_that_cannot_reach_a_first_look_says_so_at_once(
    bench: Bench, capsys: pytest.CaptureFixture[str]
) -> None:
    slow = ("--set", "engine.sleep_ms=60", "--set", "run.period=20")
    arguments = bench.arguments(*slow, "--budget", "4s")
    at = arguments.index("--steps")
    run([*arguments[:at], *arguments[at + 2 :]])
    said = capsys.readouterr().err
    assert re.search(r"--budget leaves [\d.]+ s: 3 launch pairs, which a verdict needs, take about \d+ s more", said), (
        said
    )
    assert "60 steps a launch" in said, "three periods, however short the time"
