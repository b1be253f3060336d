"""Waiting for another process that holds the results database, which is said once it takes long enough to be noticed.

SQLite waits by itself, but in silence. Linux lists who holds locks of which file in /proc/locks; where it does not (in
another process namespace, on a network file system) the holder stays unnamed.
"""

from __future__ import annotations

import os
import sqlite3
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final, TypeVar

from harness.visible import visible

NOTICE_S: Final = 2.0
"""From when on a wait is told. SQLite itself waits as long for each attempt."""
_PAUSE_S: Final = 0.02
"""Between attempts: SQLite does not wait at all in some of them, such as the switch to the write-ahead log."""
_LOCKS: Final = Path("/proc/locks")
Result = TypeVar("Result")


def when_free(path: Path, action: Callable[[], Result], timeout_s: float) -> Result:
    """Return what `action` on the database at `path` returns, trying again while another process holds it.

    Raises what `action` raised last, once `timeout_s` have passed.
    """
    began_s, told = time.monotonic(), False
    while True:
        try:
            return action()
        except sqlite3.OperationalError as error:
            waited_s = time.monotonic() - began_s
            if "locked" not in str(error) or waited_s >= timeout_s:
                raise
            if not told and waited_s >= NOTICE_S:
                told = True
                holder = holders(path) or "another process"
                text = f"stepduel: waiting for {holder} to be done with {path} (at most {timeout_s:.0f} s)"
                print(visible(text), file=sys.stderr, flush=True)
            time.sleep(_PAUSE_S)


def holders(path: Path) -> str:
    """Return the other processes that hold locks on the database, such as `python (pid 4242)`; empty if not known."""
    inodes = {file.stat().st_ino for suffix in ("", "-wal", "-shm") if (file := Path(f"{path}{suffix}")).exists()}
    try:
        lines = [line.split() for line in _LOCKS.read_text(encoding="utf-8").splitlines()]
    except OSError:
        return ""
    # 1: POSIX ADVISORY WRITE 4242 fd:01:131 0 EOF
    held = [(fields[4], fields[5].rpartition(":")[2]) for fields in lines if len(fields) >= 6]
    pids = {int(pid) for pid, inode in held if pid.isdigit() and inode.isdigit() and int(inode) in inodes}
    return ", ".join(f"{_name(pid)} (pid {pid})" for pid in sorted(pids - {0, os.getpid()}))


def _name(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/comm").read_text(encoding="utf-8", errors="replace").strip()
    except OSError:
        return "a process"
