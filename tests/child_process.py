"""How tests start a process that goes on beside them: it can be interrupted, and it ends with the test.

Where the tests run under `nohup` or in the background of a script, they inherit that SIGINT is ignored, and so would
their children, who would then sleep through the Ctrl-C of a test. A test that fails must not leave what it started.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

import psutil

PIPE = subprocess.PIPE
DEVNULL = subprocess.DEVNULL
GRACE_S = 10.0
"""What a launch's supervisor gets, once the harness is dead, to end the launch that it watches over."""


@contextmanager
def child(
    command: Sequence[str],
    *,
    stdin: int | None = DEVNULL,
    stdout: int | None = None,
    stderr: int | None = None,
    cwd: Path | None = None,
    env: Mapping[str, str] | None = None,
) -> Iterator[subprocess.Popen[str]]:
    """Start `command` in a session of its own, with the default answer to signals; in the end nothing of it is left."""
    with _default_signals():
        process = subprocess.Popen(
            command, stdin=stdin, stdout=stdout, stderr=stderr, cwd=cwd, env=env, text=True, start_new_session=True
        )
    try:
        yield process
    finally:
        _end(process)
        for pipe in (process.stdin, process.stdout, process.stderr):
            if pipe is not None:
                with contextlib.suppress(BrokenPipeError):
                    pipe.close()


def asleep(pids: Iterable[int]) -> bool:
    """Whether every thread of the processes waits, at the moment it is looked at. One that spins never does."""
    states = [stat.read_text() for pid in pids for stat in Path(f"/proc/{pid}/task").glob("*/stat")]
    return all(state.rpartition(")")[2].split()[0] == "S" for state in states)


@contextmanager
def _default_signals() -> Iterator[None]:
    """What is ignored stays so through an exec, what is handled does not. (A preexec_fn is unsafe beside threads.)"""
    ignored = [
        number
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
        if signal.getsignal(number) is signal.SIG_IGN
    ]
    for number in ignored:
        signal.signal(number, signal.default_int_handler)
    try:
        yield
    finally:
        for number in ignored:
            signal.signal(number, signal.SIG_IGN)


def _end(process: subprocess.Popen[str]) -> None:
    below: list[psutil.Process] = []
    with contextlib.suppress(psutil.NoSuchProcess):
        below = psutil.Process(process.pid).children(recursive=True)
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    for left in psutil.wait_procs(below, timeout=GRACE_S)[1]:
        with contextlib.suppress(psutil.NoSuchProcess):
            left.kill()
