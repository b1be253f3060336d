"""Launches with real processes: stepping, refusing, and every way to fail. None may leave a process or a socket."""

from __future__ import annotations

import json
import os
import shutil
import signal
import sqlite3
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest
from child_process import PIPE, asleep, child

from harness.errors import UsageError
from harness.launch import Launch, LaunchFailedError, LaunchRequest, supervisor
from harness.launch.failure import diagnose
from harness.launch.supervisor import MARK, marked_processes
from harness.worker.plan import Plan, ProbeSpec

HERE = Path(__file__).resolve().parent
ENGINE_ROOT = HERE / "engine_root"
LOAD = ProbeSpec(name="load", target="toy_engine.load", result="moved_bytes")


def request(launch_dir: Path, engine: dict[str, Any] | None = None, **changes: Any) -> LaunchRequest:
    """A launch of the toy engine. `changes` are of the plan or of the request, whichever has a field of that name."""
    plan: dict[str, Any] = {"engine_root": ENGINE_ROOT, "factory": "toy_engine:build", "probes": (LOAD,)}
    plan |= {"engine": engine or {}, "launch_dir": launch_dir, "rank_side": "harness.collectors.recorder"}
    plan |= {key: changes.pop(key) for key in list(changes) if key in Plan.__dataclass_fields__}
    return LaunchRequest(plan=Plan(**plan), **{"exit_timeout_s": 5.0, **changes})


def processes_of(launch_id: str) -> list[psutil.Process]:
    """Every living process that carries the launch's mark, found by psutil instead of the code under test."""
    found = []
    for process in psutil.process_iter():
        try:
            if process.environ().get(MARK) == launch_id and process.status() != psutil.STATUS_ZOMBIE:
                found.append(process)
        except (psutil.NoSuchProcess, psutil.AccessDenied):
            continue
    return found


def range_counts(trace: Path) -> dict[str, int]:
    with sqlite3.connect(f"file:{trace}?mode=ro&immutable=1", uri=True) as connection:
        rows = connection.execute(
            "SELECT text, count(*) FROM NVTX_EVENTS WHERE eventType IN (34, 59, 60) GROUP BY text"
        )
        counts = dict(rows.fetchall())
    connection.close()
    return counts


@pytest.fixture
def clean_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    monkeypatch.setenv("MASTER_PORT", "1")
    monkeypatch.setenv("WORLD_SIZE", "7")


@pytest.fixture
def socket_folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Where private folders are made; whatever is left in it at the end fails the test."""
    folder = tmp_path / "t"
    folder.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(folder))
    yield folder
    assert list(folder.iterdir()) == []


@pytest.mark.slow
def test_two_ranks_step_when_told_and_sleep_between(
    tmp_path: Path, clean_environment: None, socket_folders: Path
) -> None:
    root = tmp_path / "engine_root"
    shutil.copytree(ENGINE_ROOT, root)
    (root / "harness").mkdir()  # the subject's own, which must stay hidden
    (root / "harness" / "__init__.py").write_text("raise ImportError")
    with Launch(request(tmp_path / "launch", ranks=2, engine_root=root, capture=(1, 2))) as launch:
        (folder,) = socket_folders.iterdir()
        assert folder.stat().st_mode & 0o777 == 0o700
        ready = launch.wait_ready()
        reports = [launch.step(), launch.step()]
        while not asleep(ready.pids):  # a rank that spins while it waits for its turn fails by timeout
            time.sleep(0.001)
        reports.append(launch.step())
        outcome = launch.stop()
        assert processes_of(launch.launch_id) == []
    assert outcome.clean_exit
    # loss = sum of four batch values of (step + 10 * rank); tokens are summed over ranks
    assert [report.losses for report in reports] == [(0.0, 40.0), (4.0, 44.0), (8.0, 48.0)]
    assert [report.index for report in reports] == [0, 1, 2]
    assert {report.tokens for report in reports} == {8}
    assert all(len(report.durations_ns) == 2 and min(report.durations_ns) > 0 for report in reports)
    assert reports[2].figures["peak_memory_bytes"] >= reports[2].figures["rss_bytes"] > 50_000_000
    described = ready.engine_description
    assert described["path"][0] == str(root)
    assert not any("worker" in entry for entry in described["path"])
    assert described["harness_file"] == str(HERE.parents[1] / "harness" / "__init__.py")
    assert described["threads"] == "1"
    assert described["master_port"] != "1"
    assert outcome.traces == (tmp_path / "launch" / "rank0.sqlite", tmp_path / "launch" / "rank1.sqlite")
    for rank, trace in enumerate(outcome.traces):
        counts = range_counts(trace)
        wanted = {"step": 3, "rank": 3, "load": 3, "moved_bytes": 3, "train_mode_enter": 3}
        wanted |= {"forward_backward": 3, "optimizer_step": 3, "train_mode_exit": 3}
        assert {name: counts.get(name) for name in wanted} == wanted
        assert counts.get("capture", 0) == (1 if rank == 0 else 0)


@pytest.mark.slow
def test_a_plan_that_does_not_fit_is_refused(tmp_path: Path, socket_folders: Path) -> None:
    launch = Launch(request(tmp_path / "launch", {"falt": "none"}, ranks=2))
    with launch, pytest.raises(UsageError, match=r"unknown key 'falt'\. Did you mean 'fault'\?"):
        launch.wait_ready()
    assert processes_of(launch.launch_id) == []
    with pytest.raises(UsageError, match="holds a launch already"):
        Launch(request(tmp_path / "launch")).start()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("fault", "reason", "said"),
    [
        ("raise", "step_raised", "rank 1 raised in step 1: ArithmeticError: the loss is not finite (log: "),
        ("kill", "rank_died", "rank 1 was ended by SIGKILL (the kernel sends it, too, when memory runs out) in step 1"),
        ("exit", "rank_exited", "rank 1 exited with status 9 in step 1"),
        ("leave", "rank_exited", "rank 1 exited with status 0 in step 1"),
        ("hang", "step_timeout", "launch hung: no step within 2 s (rank 1 in step 1)"),
    ],
)
def test_a_step_that_fails_on_one_rank_ends_everything(
    fault: str, reason: str, said: str, tmp_path: Path, socket_folders: Path
) -> None:
    launch = Launch(request(tmp_path / "launch", {"fault": fault, "helper": True}, ranks=2, timeout_s=2.0))
    with launch:
        launch.wait_ready()
        assert any(process.name() == "sleep" for process in processes_of(launch.launch_id))
        launch.step()
        begun = time.monotonic()
        with pytest.raises(LaunchFailedError) as caught:
            launch.step()
        assert time.monotonic() - begun < 15
        assert processes_of(launch.launch_id) == []
    failure = caught.value
    assert (failure.reason, failure.rank, failure.phase, failure.step) == (reason, 1, "step", 1)
    assert said in str(failure)
    assert "\n" not in str(failure)
    log = "\n".join(failure.log_tail)
    assert {"hang": "linger_here", "raise": "in misbehave"}.get(fault, f"about to {fault}") in log  # stack, or words
    for rank in range(2):
        assert range_counts(tmp_path / "launch" / f"rank{rank}.sqlite")["step"] >= 1  # what was flushed is there
    with pytest.raises(UsageError, match="has ended"):
        launch.step()


@pytest.mark.parametrize(
    ("fault", "said"),
    [
        ("leave", "rank 0 exited with status 0 in step 1 (log: "),
        ("shout", f"rank 0 raised in step 1: ArithmeticError: {'x' * 482}… (log: "),
        (
            "text",
            "rank 0 raised in step 0: TypeError: forward_backward returned a str; "
            "expected a float, a 0-d tensor or None (log: ",
        ),
    ],
)
def test_a_lone_rank_that_fails_says_so_in_one_line(
    fault: str, said: str, tmp_path: Path, socket_folders: Path
) -> None:
    with Launch(request(tmp_path / "launch", {"fault": fault, "on_rank": 0})) as launch:
        launch.wait_ready()
        if fault != "text":
            launch.step()
        with pytest.raises(LaunchFailedError) as caught:
            launch.step()
    assert str(caught.value).startswith(said)
    assert all(len(line) <= 500 for line in caught.value.log_tail)
    if fault == "shout":
        assert (tmp_path / "launch" / "rank0.log").stat().st_size > 1_000_000, "the whole is in the log"


@pytest.mark.parametrize(
    ("error", "terminated", "rank", "reason"),
    [
        ("RuntimeError: gloo: Connection closed by peer", [], 1, "rank_exited"),
        ("RuntimeError: gloo: Connection closed by peer", [1001], 0, "step_raised"),
        ("ValueError: own fault", [], 0, "step_raised"),
    ],
)
def test_a_rank_that_torchrun_ended_is_not_blamed(
    error: str, terminated: list[int], rank: int, reason: str, tmp_path: Path
) -> None:
    for number in range(2):
        (tmp_path / f"rank{number}.phase").write_text(f"{1000 + number} step 3".ljust(48))
    failure = {"rank": 0, "phase": "step", "step": 3, "error": error, "time_ns": 1}
    (tmp_path / "rank0.failure.json").write_text(json.dumps(failure))
    lines = [f"W0101 api.py:1029] Sending process {pid} closing signal SIGTERM" for pid in terminated]
    (tmp_path / "torchrun.log").write_text("\n".join(lines))
    found = diagnose(tmp_path, 2, 1)
    assert (found.rank, found.reason) == (rank, reason)


def test_nobody_is_blamed_where_torchrun_itself_was_killed(tmp_path: Path) -> None:
    (tmp_path / "rank0.phase").write_text("1000 step 3".ljust(48))
    assert diagnose(tmp_path, 1, 137).reason == "launcher_failed"


@pytest.mark.slow
def test_a_build_that_fails_and_one_that_is_late(tmp_path: Path, socket_folders: Path) -> None:
    with (
        Launch(request(tmp_path / "a", {"fault": "build", "on_rank": 0})) as launch,
        pytest.raises(LaunchFailedError, match="rank 0 raised in build: MemoryError: no room") as caught,
    ):
        launch.wait_ready()
    assert caught.value.reason == "build_raised"
    late = Launch(request(tmp_path / "b", start_timeout_s=0.5))
    with late, pytest.raises(LaunchFailedError, match=r"no start within 0\.5 s") as caught:
        late.wait_ready()
    assert caught.value.reason == "start_timeout"
    assert processes_of(late.launch_id) == []


def test_an_interpreter_that_cannot_run_torchrun(tmp_path: Path, socket_folders: Path) -> None:
    python = tmp_path / "python"
    python.write_text("#!/bin/sh\necho no torch here >&2\nexit 3\n")
    python.chmod(0o755)
    with (
        Launch(request(tmp_path / "launch", python=python)) as launch,
        pytest.raises(LaunchFailedError, match="no torch here") as caught,
    ):
        launch.wait_ready()
    assert caught.value.reason == "launcher_failed"
    assert caught.value.log_tail == ("no torch here",)


@pytest.mark.slow
def test_an_environment_without_nvtx_is_refused(tmp_path: Path, socket_folders: Path) -> None:
    (tmp_path / "nvtx.py").write_text("raise ImportError('no nvtx here')")
    with (
        Launch(request(tmp_path / "launch", env={"PYTHONPATH": str(tmp_path)})) as launch,
        pytest.raises(UsageError, match=r"cannot run a rank: no nvtx here; install torch and nvtx"),
    ):
        launch.wait_ready()


def test_requests_that_cannot_be_launched(tmp_path: Path) -> None:
    cases: list[tuple[dict[str, Any], str]] = [
        ({"ranks": 0}, "ranks is 0; expected at least 1"),
        ({"engine_root": tmp_path / "nowhere"}, "no such folder"),
        ({"python": tmp_path / "nopython"}, "no such interpreter"),
    ]
    for changes, said in cases:
        with pytest.raises(UsageError, match=said):
            request(tmp_path, **changes)


def test_a_collector_can_wrap_the_command(tmp_path: Path, socket_folders: Path) -> None:
    def wrap(argv: Any, env: Any, launch_dir: Path) -> tuple[list[str], dict[str, str]]:
        assert "torch.distributed.run" in argv
        return ["sh", "-c", "echo $WRAPPED in $PWD >&2; exit 1"], {**env, "WRAPPED": launch_dir.name}

    launch = Launch(request(tmp_path / "launch", wrap=wrap))
    with launch, pytest.raises(LaunchFailedError):
        launch.wait_ready()
    assert (tmp_path / "launch" / "torchrun.log").read_text() == f"launch in {Path.cwd()}\n"
    assert launch.command[0] == "sh"


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL])
def test_nothing_outlives_a_harness_that_is_interrupted_or_killed(number: signal.Signals, tmp_path: Path) -> None:
    command = [sys.executable, str(HERE / "drive.py"), str(tmp_path / "launch")]
    with child(command, cwd=HERE.parents[1], stdout=PIPE, stderr=PIPE) as harness:
        assert harness.stdout is not None
        launch_id, socket_path = harness.stdout.readline().split()
        assert len(processes_of(launch_id)) >= 4  # supervisor, parent, rank, helper
        harness.send_signal(number)
        _, said = harness.communicate(timeout=20)
        deadline = time.monotonic() + 10
        while processes_of(launch_id) and time.monotonic() < deadline:
            time.sleep(0.1)
        assert processes_of(launch_id) == []
    assert range_counts(tmp_path / "launch" / "rank0.sqlite")["step"] == 1
    if number == signal.SIGINT:
        assert said.rstrip().endswith("KeyboardInterrupt")
    assert not Path(socket_path).parent.exists()


@pytest.mark.parametrize(
    ("status", "said"),
    [(137, "was ended by SIGKILL"), (-9, "was ended by SIGKILL"), (3, "exited with status 3"), (None, "was ended")],
)
def test_a_launcher_that_said_nothing_is_told_by_its_end(tmp_path: Path, status: int | None, said: str) -> None:
    (tmp_path / "torchrun.log").touch()
    failure = diagnose(tmp_path, 1, status)
    assert str(failure).startswith(f"the launcher {said} before its ranks were done: it printed nothing (log: ")


def test_the_folder_goes_with_the_harness_even_when_the_tree_ends_first(tmp_path: Path) -> None:
    """The tree's end is seen by another thread, which must not end the supervisor before the folder is removed."""
    folder = tmp_path / "private"
    folder.mkdir()
    slow_removal = (
        "import runpy, shutil, sys, time\n"
        "remove = shutil.rmtree\n"
        "shutil.rmtree = lambda *args, **options: (time.sleep(1), remove(*args, **options))\n"
        "runpy.run_path(sys.argv.pop(1), run_name='__main__')\n"
    )
    argv = [sys.executable, "-c", slow_removal, supervisor.__file__, "folder-test", str(folder), "sleep", "60"]
    with child(argv, stdin=PIPE, env={**os.environ, MARK: "folder-test"}) as process:
        deadline = time.monotonic() + 10
        while len(processes_of("folder-test")) < 2 and time.monotonic() < deadline:
            time.sleep(0.05)
        assert process.stdin is not None
        process.stdin.close()  # as the harness' death does
        process.wait(20)
    assert processes_of("folder-test") == []
    assert not folder.exists()


def test_a_process_that_left_its_session_and_dropped_its_mark_is_found_and_killed(tmp_path: Path) -> None:
    script = "(env -i setsid sleep 61 &); setsid sleep 62 & sleep 63"  # an orphan without a mark, a helper, and a child
    with Launch(
        request(tmp_path / "launch", wrap=lambda argv, env, folder: (["sh", "-c", script], dict(env)))
    ) as launch:

        def sleepers() -> list[psutil.Process]:
            ours = [each for each in psutil.process_iter(["cmdline"]) if each.info["cmdline"] in wanted]
            return [each for each in ours if each.pid in marked_processes(launch.launch_id)]  # from their exec on

        wanted = [["sleep", seconds] for seconds in ("61", "62", "63")]
        while len(found := sleepers()) < 3:
            time.sleep(0.05)
    assert not any(process.is_running() and process.status() != psutil.STATUS_ZOMBIE for process in found)
    assert marked_processes(launch.launch_id) == []
