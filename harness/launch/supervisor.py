"""Starts a launch's process tree, and ends all of it when the tree or the harness ends, even by SIGKILL. Run by path.

The harness holds a pipe to this process' stdin. Its end means that the harness is gone: then the launch is ended here
and its private folder removed. This process' stdout is a pipe to the harness that nobody writes to; it closes when
this process ends, so the harness can sleep on it. Meanwhile this process sleeps in two system calls.

Process groups cannot hold the tree together: torchrun starts every rank in a session of its own, tools start agents,
engines start helpers. Two things do. All of them inherit a mark in their environment; and this process is the one
that orphans in its tree fall to (a "subreaper"), so whoever drops the mark is still found among its descendants.
"""

from __future__ import annotations

import ctypes
import os
import select
import shutil
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Final, NoReturn

MARK: Final = "STEPDUEL_LAUNCH"
"""Environment variable that marks every process of a launch with the launch's id."""

_PR_SET_CHILD_SUBREAPER: Final = 36
_IGNORED: Final = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT)
"""Here; the launch has the default answers, as torchrun leaves them to its ranks."""


def marked_processes(launch_id: str, *, spare: int | None = None) -> list[int]:
    """Ids of the living processes that carry the launch's mark, and of their descendants.

    This process is left out, and so is `spare`.
    """
    mark = f"{MARK}={launch_id}".encode()
    parents: dict[int, int] = {}
    found: set[int] = set()
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        try:
            state, parent = (entry / "stat").read_text(errors="replace").rpartition(")")[2].split()[:2]
            if state in "ZX":  # it has ended; its parent has yet to notice
                continue
            parents[int(entry.name)] = int(parent)
            if mark in (entry / "environ").read_bytes().split(b"\0"):
                found.add(int(entry.name))
        except (OSError, ValueError):
            continue  # it ended meanwhile, or is another user's
    while more := {pid for pid, parent in parents.items() if parent in found and pid not in found}:
        found |= more
    return sorted(found - {os.getpid(), spare})


def kill_launch(launch_id: str, *, spare: int | None = None, within_s: float = 10.0) -> list[int]:
    """SIGKILL the launch's processes until none is left; return those that outlived `within_s` (in a system call)."""
    deadline = time.monotonic() + within_s
    while True:
        left = marked_processes(launch_id, spare=spare)
        if not left or time.monotonic() > deadline:
            return left
        for pid in left:
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                continue
        time.sleep(0.02)  # the kernel needs a moment to take them down


def main(launch_id: str, folder: str, argv: list[str]) -> NoReturn:
    """Run `argv`; end with its status, or with 1 and `folder` removed once the harness has gone."""
    # The launch is ended by the harness. Signals that a terminal sends to a whole group are not for us.
    for number in _IGNORED:
        signal.signal(number, signal.SIG_IGN)
    ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    child = subprocess.Popen(argv, stdin=subprocess.DEVNULL, stdout=sys.stderr, preexec_fn=_restore_signals)
    threading.Thread(target=_wait, args=(child, launch_id), daemon=True).start()
    while os.read(0, 4096):
        pass
    kill_launch(launch_id)
    shutil.rmtree(folder, ignore_errors=True)
    os._exit(1)


def _wait(child: subprocess.Popen[bytes], launch_id: str) -> None:
    status = child.wait()
    kill_launch(launch_id)
    if select.select([0], [], [], 0)[0]:
        return  # the harness has gone, which may be why the tree ended: `main` has the folder to remove first
    os._exit(status if status >= 0 else 128 - status)


def _restore_signals() -> None:
    for number in _IGNORED:
        signal.signal(number, signal.SIG_DFL)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], sys.argv[3:])
