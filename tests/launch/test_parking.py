"""A side that waits stands still, with all that it started, and whatever ends it leaves nothing stopped."""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest
from child_process import PIPE, child

from harness.launch import parking as parking_module
from harness.launch import supervisor
from harness.launch.parking import Parking
from harness.launch.supervisor import MARK, kill_launch, marked_processes

# An agent with a rank; the rank has a helper in a session of its own, an orphan, and starts processes without end.
RANK = """
import os, subprocess, sys, time
subprocess.Popen(["sleep", "600"], start_new_session=True, env={})
subprocess.run(["sh", "-c", "sleep 600 &"])
folder = sys.argv[1]
open(folder + "/rank", "w").write(str(os.getpid()))
while True:
    subprocess.Popen(["sleep", "0.3"])
    open(folder + "/beat", "a").write(".")
    time.sleep(0.005)
"""
AGENT = "import subprocess, sys; subprocess.run([sys.executable, '-c', sys.argv[1], sys.argv[2]])"


def wait_for(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 20
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.02)


@pytest.fixture
def tree(tmp_path: Path) -> Iterator[tuple[psutil.Process, int]]:
    """A supervisor and the id of the rank below it."""
    name = f"parking-{os.getpid()}-{tmp_path.name}"
    argv = [sys.executable, "-I", "-S", supervisor.__file__, name, str(tmp_path / "folder")]
    argv += [sys.executable, "-c", AGENT, RANK, str(tmp_path)]
    with child(argv, stdin=PIPE, stdout=PIPE, env={**os.environ, MARK: name}) as process:
        try:
            beat = tmp_path / "beat"
            wait_for(lambda: beat.exists() and beat.stat().st_size > 20)
            yield psutil.Process(process.pid), int((tmp_path / "rank").read_text())
        finally:
            kill_launch(name)
            assert marked_processes(name) == []


def below(top: psutil.Process) -> dict[int, str]:
    found = {}
    for process in top.children(recursive=True):
        try:
            found[process.pid] = process.status()
        except psutil.NoSuchProcess:
            continue
    return {pid: status for pid, status in found.items() if status != psutil.STATUS_ZOMBIE}


def test_after_ids_began_again_from_below_every_process_is_looked_at(
    tree: tuple[psutil.Process, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """One with an id below the supervisor's, as a process of this launch has it then, is found."""
    top, rank = tree
    parking = Parking(top.pid, [rank])
    assert rank in parking.processes()
    looked_at: list[int] = []
    stat = parking_module._stat

    def look(pid: int) -> tuple[int, str] | None:
        looked_at.append(pid)
        return stat(pid)

    monkeypatch.setattr(parking_module, "_stat", look)
    assert rank in parking.processes()
    assert min(looked_at) == top.pid
    with monkeypatch.context() as once:
        once.setattr(parking_module, "_newest_id", lambda: 1)
        assert rank in parking.processes()
    looked_at.clear()
    assert rank in parking.processes()
    assert 1 in looked_at, "and from then on"


def test_the_rank_and_all_that_it_started_stand_still_and_go_on(
    tree: tuple[psutil.Process, int], tmp_path: Path
) -> None:
    top, rank = tree
    (agent,) = (process.pid for process in top.children() if process.pid == psutil.Process(rank).ppid())
    parking = Parking(top.pid, [rank])
    for _ in range(5):
        parking.stop()
        states = below(top)
        assert len(states) > 3
        running = {pid for pid, status in states.items() if status != psutil.STATUS_STOPPED}
        assert running == {agent}, "torchrun's agent keeps its heartbeats"
        assert top.status() != psutil.STATUS_STOPPED
        beats = (tmp_path / "beat").stat().st_size
        time.sleep(0.1)
        assert (tmp_path / "beat").stat().st_size == beats
        parking.resume()
        wait_for(lambda: (tmp_path / "beat").stat().st_size > beats + 3)  # noqa: B023 - waited for here
        assert psutil.STATUS_STOPPED not in below(top).values()


def test_what_a_launch_had_stopped_itself_stays_stopped(tree: tuple[psutil.Process, int]) -> None:
    top, rank = tree
    helper = next(process for process in psutil.Process(rank).children() if process.cmdline() == ["sleep", "600"])
    helper.send_signal(signal.SIGSTOP)
    wait_for(lambda: helper.status() == psutil.STATUS_STOPPED)
    parking = Parking(top.pid, [rank])
    parking.stop()
    parking.resume()
    assert helper.status() == psutil.STATUS_STOPPED
    assert psutil.Process(rank).status() != psutil.STATUS_STOPPED


def test_a_stopped_launch_ends_with_its_harness(tmp_path: Path) -> None:
    name = f"parking-{os.getpid()}-ends"
    argv = [sys.executable, "-I", "-S", supervisor.__file__, name, str(tmp_path / "folder")]
    argv += [sys.executable, "-c", AGENT, RANK, str(tmp_path)]
    with child(argv, stdin=PIPE, stdout=PIPE, env={**os.environ, MARK: name}) as process:
        wait_for(lambda: (tmp_path / "beat").exists())
        Parking(process.pid, [int((tmp_path / "rank").read_text())]).stop()
        assert process.stdin is not None
        process.stdin.close()  # as when the harness is killed
        process.wait(20)
        assert marked_processes(name) == []
