"""What tests start can be interrupted even where the tests cannot, and is gone when the test is, failed or not."""

from __future__ import annotations

import ast
import signal
import sys
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest
from child_process import PIPE, child

HERE = Path(__file__).resolve().parent
FAMILY = """
import subprocess, sys, time
kin = [subprocess.Popen(["sleep", "600"]), subprocess.Popen(["sleep", "600"], start_new_session=True)]
print(*(process.pid for process in kin), flush=True)
time.sleep(600)
"""


@pytest.fixture
def interrupts_ignored() -> Iterator[None]:
    """As under `nohup make test &`."""
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    yield
    signal.signal(signal.SIGINT, before)


def test_a_child_is_interrupted_where_the_tests_ignore_it(interrupts_ignored: None) -> None:
    with child(
        [sys.executable, "-c", "print(flush=True); import time; time.sleep(600)"], stdout=PIPE, stderr=PIPE
    ) as it:
        assert it.stdout is not None
        it.stdout.readline()
        it.send_signal(signal.SIGINT)
        _, said = it.communicate()
    assert it.returncode == -signal.SIGINT
    assert "KeyboardInterrupt" in said
    assert signal.getsignal(signal.SIGINT) is signal.SIG_IGN


def test_a_test_that_fails_ends_what_it_started_and_closes_its_pipes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("child_process.GRACE_S", 0.1)
    started = []
    kin: list[psutil.Process] = []

    def failing() -> None:
        with child([sys.executable, "-c", FAMILY], stdin=PIPE, stdout=PIPE, stderr=PIPE) as process:
            started.append(process)
            assert process.stdout is not None
            kin.extend(psutil.Process(int(pid)) for pid in process.stdout.readline().split())
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        failing()
    (process,) = started
    assert process.returncode == -signal.SIGKILL
    assert len(kin) == 2
    psutil.wait_procs(kin, timeout=30)
    assert not any(each.is_running() and each.status() != psutil.STATUS_ZOMBIE for each in kin)
    assert all(pipe is not None and pipe.closed for pipe in (process.stdin, process.stdout, process.stderr))


@pytest.mark.parametrize("path", sorted(HERE.rglob("test_*.py")), ids=lambda path: str(path.relative_to(HERE)))
def test_tests_start_processes_here_only(path: Path) -> None:
    """What waits for its process (`subprocess.run`) needs no more; scripts inside strings are not this process."""
    calls = [node.func for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))) if isinstance(node, ast.Call)]
    assert [call.lineno for call in calls if isinstance(call, ast.Attribute) and call.attr == "Popen"] == []
