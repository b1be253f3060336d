"""Starts a launch's process tree and ends it when the harness goes away, even by SIGKILL. Run by its path.

The harness holds a pipe to this process' stdin. Its end means that the harness is gone: then every process that
carries the launch's mark in its environment is killed. Process groups do not do that: torchrun starts every rank in a
session of its own, tools start agents, engines start helpers. The environment is inherited by all of them.

This process sleeps in two system calls meanwhile. Its own stdout is a pipe to the harness that nobody writes to: it
closes when this process ends, and the harness can sleep on it.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Final, NoReturn

MARK: Final = "STEPDUEL_LAUNCH"
"""Environment variable that marks every process of a launch with the launch's id."""


def marked_processes(launch_id: str) -> list[int]:
    """Ids of the living processes of this user that carry the launch's mark, this process left out."""
    wanted = f"{MARK}={launch_id}".encode()
    found = []
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit() or int(entry.name) == os.getpid():
            continue
        try:
            marked = wanted in (entry / "environ").read_bytes().split(b"\0")
            # A zombie has ended already; its parent has yet to notice.
            if marked and (entry / "stat").read_text().rpartition(")")[2].split()[0] not in "ZX":
                found.append(int(entry.name))
        except (OSError, IndexError):
            continue  # it ended meanwhile, or is another user's
    return found


def kill_marked(launch_id: str, *, within_s: float = 10.0) -> list[int]:
    """SIGKILL the launch's processes until none is left; return those that outlived `within_s` (in a system call)."""
    deadline = time.monotonic() + within_s
    while True:
        left = marked_processes(launch_id)
        if not left or time.monotonic() > deadline:
            return left
        for pid in left:
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                continue
        time.sleep(0.02)  # the kernel needs a moment to take them down


def _wait(child: subprocess.Popen[bytes]) -> NoReturn:
    status = child.wait()
    os._exit(status if status >= 0 else 128 - status)


def main(launch_id: str, argv: list[str]) -> NoReturn:
    """Run `argv`; end with its status, or with 1 once the harness has gone."""
    # The launch is ended by the harness. Signals that a terminal sends to a whole group are not for us.
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    child = subprocess.Popen(argv, stdin=subprocess.DEVNULL, stdout=sys.stderr, preexec_fn=_restore_signals)
    threading.Thread(target=_wait, args=(child,), daemon=True).start()
    while os.read(0, 4096):
        pass
    kill_marked(launch_id)
    os._exit(1)


def _restore_signals() -> None:
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_DFL)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2:])
