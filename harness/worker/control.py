"""How a rank is told what to do, and sees to it that it does not outlive its launch.

Rank 0 speaks JSON lines with the coordinator over a Unix socket. The other ranks follow rank 0 through a gloo group of
their own. Between steps every rank is blocked in the kernel or on a condition variable; none of them spins.
"""

from __future__ import annotations

import ctypes
import json
import os
import select
import signal
import socket
import threading
from collections.abc import Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any, Final

import torch
import torch.distributed as dist

STEP: Final = 1
STOP: Final = 0
_ORPHANED: Final = 75  # exit status of a rank 0 whose coordinator went away
_PR_SET_PDEATHSIG: Final = 1
_FOREVER: Final = timedelta(days=30)
"""A duel may let one side sleep for as long as the other steps; the coordinator keeps the time limits."""


def die_with_parent() -> None:
    """Ask the kernel to kill this rank when its parent ends, however that ends."""
    ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)


class Coordinator:
    """Rank 0's end of the control socket."""

    def __init__(self, path: Path) -> None:
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._socket.connect(str(path))
        self._send = self._socket.sendall  # before the engine, which may replace what the class has
        self._lines = self._socket.makefile("r", encoding="utf-8")
        self._finishing = threading.Event()
        threading.Thread(target=self._watch, name="stepduel-control", daemon=True).start()

    def send(self, event: dict[str, Any]) -> None:
        """Send one event."""
        self._send(json.dumps(event, default=str).encode() + b"\n")

    def receive(self) -> str:
        """Block until the next command and return its name; the end of the connection is a `stop`."""
        line = self._lines.readline()
        return str(json.loads(line)["command"]) if line else "stop"

    def finish(self) -> None:
        """From now on a closed connection is no reason to die."""
        self._finishing.set()

    def _watch(self) -> None:
        """Sleep until the coordinator's end closes; then end this rank, even in the middle of a step that hangs."""
        poll = select.poll()
        poll.register(self._socket, select.POLLRDHUP)
        poll.poll()
        if not self._finishing.is_set():
            os._exit(_ORPHANED)


class Followers:
    """The ranks in lockstep behind rank 0: commands go out by broadcast, figures come back by gather."""

    def __init__(self, rank: int, ranks: int) -> None:
        self._rank, self._ranks = rank, ranks
        self._group = dist.new_group(backend="gloo", timeout=_FOREVER) if ranks > 1 else None

    def share(self, command: int) -> int:
        """Return rank 0's `command` on every rank; followers block in here between steps."""
        if self._group is None:
            return command
        told = torch.tensor([command], dtype=torch.int64)
        dist.broadcast(told, src=0, group=self._group)
        return int(told.item())

    def align(self) -> None:
        """Return on all ranks at about the same time, so that no step waits for another rank's batch."""
        if self._group is not None:
            dist.barrier(group=self._group)

    def gather(self, figures: Sequence[float]) -> list[list[float]]:
        """Return every rank's `figures` by rank on rank 0, and nothing on the others. Exact up to 2**53."""
        own = torch.tensor(figures, dtype=torch.float64)
        if self._group is None:
            return [own.tolist()]
        everyone = [torch.empty_like(own) for _ in range(self._ranks)] if self._rank == 0 else None
        dist.gather(own, everyone, dst=0, group=self._group)
        return [each.tolist() for each in everyone or []]
