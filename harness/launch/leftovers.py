"""Ends what killed runs left: launches whose harness is gone, and their sockets. For `stepduel clean`.

Normally nothing is left: the supervisor of a launch ends its tree even when the harness is killed. What remains is the
case that both were killed. A launch has been left if its supervisor is gone; its processes carry its mark.
"""

from __future__ import annotations

import os
import shutil
import signal
import tempfile
from dataclasses import dataclass
from pathlib import Path

from harness.launch import supervisor

_SUPERVISOR = b"/harness/launch/supervisor.py"


@dataclass(frozen=True, kw_only=True)
class Leftovers:
    """What was removed."""

    processes: int
    sockets: int


def remove_leftovers() -> Leftovers:
    """End this user's processes of launches without a supervisor, and remove control sockets that nobody serves."""
    supervised, marked = _launches()
    ended = 0
    for launch_id, pids in marked.items():
        if launch_id in supervised:
            continue
        for pid in pids:
            try:
                os.kill(pid, signal.SIGKILL)
                ended += 1
            except (ProcessLookupError, PermissionError):
                continue
    return Leftovers(processes=ended, sockets=_remove_sockets())


def _launches() -> tuple[set[str], dict[str, list[int]]]:
    """Ids of the launches whose supervisor lives, and all marked processes by launch."""
    supervised: set[str] = set()
    marked: dict[str, list[int]] = {}
    prefix = f"{supervisor.MARK}=".encode()
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit() or int(entry.name) == os.getpid():
            continue
        try:
            arguments = (entry / "cmdline").read_bytes().split(b"\0")
            variables = (entry / "environ").read_bytes().split(b"\0")
        except OSError:
            continue  # it ended meanwhile, or is another user's
        launch_id = next((value[len(prefix) :].decode() for value in variables if value.startswith(prefix)), None)
        if launch_id is None:
            continue
        marked.setdefault(launch_id, []).append(int(entry.name))
        # By its place in the package: the supervisor may be another installation's.
        if any(argument.endswith(_SUPERVISOR) for argument in arguments):
            supervised.add(launch_id)
    return supervised, marked


def _remove_sockets() -> int:
    removed = 0
    for folder in {Path(tempfile.gettempdir()), Path("/tmp")}:
        for path in folder.glob("stepduel-*/control"):
            try:
                if path.is_socket() and path.stat().st_uid == os.getuid() and not _served(path):
                    shutil.rmtree(path.parent)
                    removed += 1
            except OSError:
                continue  # its owner was removing it, too
    return removed


def _served(path: Path) -> bool:
    """Whether some process listens on the socket, told from the kernel's table: connecting would disturb a launch."""
    listening = Path("/proc/net/unix").read_text(encoding="utf-8", errors="replace").splitlines()
    return any(line.endswith(f" {path}") for line in listening)
