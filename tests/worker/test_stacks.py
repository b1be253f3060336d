"""Stacks of a process that hangs, by a timer and without a signal."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]

HANGS = {
    "sleeps": "time.sleep(0.6)",
    "holds the interpreter's lock": "ctypes.PyDLL(None).usleep(600_000)",
    "closed its stderr": "os.close(2); time.sleep(0.6)",
}


def run(program: str, log: Path) -> int:
    whole = f"""
import ctypes, os, sys, time
sys.path.insert(0, {str(ROOT)!r})
from harness.worker.stacks import StackTimer
timer = StackTimer(sys.stderr.fileno())
{program}
"""
    with log.open("wb") as file:
        command = [sys.executable, "-c", whole]
        return subprocess.run(command, stderr=file, stdin=subprocess.DEVNULL, timeout=30, check=False).returncode


@pytest.mark.parametrize("how", HANGS)
def test_a_hang_is_in_the_log(tmp_path: Path, how: str) -> None:
    assert run(f"timer.set(0.3)\ndef linger_here():\n    {HANGS[how]}\nlinger_here()", tmp_path / "log") == 0
    assert "in linger_here" in (tmp_path / "log").read_text()


def test_steps_in_time_leave_nothing(tmp_path: Path) -> None:
    assert run("for _ in range(100):\n    timer.set(0.5)\n    time.sleep(0.01)", tmp_path / "log") == 0
    assert (tmp_path / "log").read_text() == ""


def test_a_forked_child_ends(tmp_path: Path) -> None:
    """One that inherits the timer without its thread would wait for it for ever."""
    program = """
timer.set(60)
if not (child := os.fork()):
    sys.exit(0)
assert os.waitpid(child, 0)[1] == 0
timer.set(0.3)
time.sleep(0.5)
"""
    assert run(program, tmp_path / "log") == 0
    assert "Timeout" in (tmp_path / "log").read_text(), "the parent's goes on"
