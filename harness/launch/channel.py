"""The coordinator's end of a launch: its private socket, its supervisor process, and sleeping on both."""

from __future__ import annotations

import json
import select
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from harness.launch import supervisor
from harness.launch.interrupts import interrupts_deferred

_SOCKET_PATH_LIMIT: Final = 100  # bytes of a Unix socket's path; the kernel takes 107


class TreeEndedError(Exception):
    """The launch's processes ended, or rank 0 closed its connection, while a message was awaited."""


class AwaitTimeoutError(Exception):
    """Nothing came in time."""


class Channel:
    """One process tree and the connection to its rank 0."""

    def __init__(self) -> None:
        folder = tempfile.mkdtemp(prefix="stepduel-")  # mode 0700
        if len(folder) > _SOCKET_PATH_LIMIT - len("/control"):
            shutil.rmtree(folder)
            folder = tempfile.mkdtemp(prefix="stepduel-", dir="/tmp")
        self._folder = Path(folder)
        self.path = self._folder / "control"
        self._listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._listener.bind(str(self.path))
        self._listener.listen(1)
        self._connection: socket.socket | None = None
        self._received = b""
        self._process: subprocess.Popen[bytes] | None = None
        self._launch_id = ""

    def start(
        self, launch_id: str, argv: Sequence[str], env: Mapping[str, str], launch_dir: Path, cwd: Path | None
    ) -> None:
        """Start `argv` in `cwd` under a supervisor, in a session of its own, logging to `launch_dir/torchrun.log`."""
        self._launch_id = launch_id
        with (launch_dir / "torchrun.log").open("wb") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-I", "-S", supervisor.__file__, launch_id, str(self._folder), *argv],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                env={**env, supervisor.MARK: launch_id},
                start_new_session=True,
                cwd=cwd,
            )

    @property
    def supervisor_pid(self) -> int:
        """The process that the whole tree is below."""
        assert self._process is not None
        return self._process.pid

    def receive(self, deadline: float) -> dict[str, Any]:
        """Sleep until rank 0's next event, at most until `time.monotonic()` is `deadline`.

        Raises TreeEndedError or AwaitTimeoutError. What rank 0 had sent before it ended is still delivered.
        """
        while b"\n" not in self._received:
            if self._connection is None:
                self._sleep(self._listener, deadline)
                self._connection, _ = self._listener.accept()
                continue
            self._sleep(self._connection, deadline)
            try:
                data = self._connection.recv(1 << 16)
            except ConnectionResetError:
                data = b""
            if not data:
                raise TreeEndedError
            self._received += data
        line, self._received = self._received.split(b"\n", 1)
        event: dict[str, Any] = json.loads(line)
        return event

    def send(self, command: str) -> None:
        """Send one command. Raises TreeEndedError when nobody is there to read it."""
        if self._connection is None:
            raise TreeEndedError
        try:
            self._connection.sendall(json.dumps({"command": command}).encode() + b"\n")
        except OSError as error:
            raise TreeEndedError from error

    def wait_exit(self, timeout_s: float) -> int | None:
        """Sleep until the tree's top process has ended and return its status, or None after `timeout_s`."""
        if self._process is None:
            return None
        try:
            return self._process.wait(timeout_s) if self._poll_life(timeout_s) else None
        except subprocess.TimeoutExpired:
            return None

    def close(self) -> list[int]:
        """Kill whatever is left of the tree and remove the socket; return ids of processes that would not die.

        An interrupt meanwhile is raised when all is done; that takes seconds at most.
        """
        with interrupts_deferred():
            return self._close()

    def _close(self) -> list[int]:
        left: list[int] = []
        if self._process is not None:
            # The supervisor last: as long as it lives, orphans of the tree are found under it.
            left = supervisor.kill_launch(self._launch_id, spare=self._process.pid)
            self._process.kill()
            self._process.wait()
            for pipe in (self._process.stdin, self._process.stdout):
                if pipe is not None:
                    pipe.close()
            self._process = None
        if self._connection is not None:
            self._connection.close()
            self._connection = None
        self._listener.close()
        shutil.rmtree(self._folder, ignore_errors=True)
        return left

    def _poll_life(self, timeout_s: float) -> bool:
        assert self._process is not None
        assert self._process.stdout is not None
        poll = select.poll()
        poll.register(self._process.stdout, select.POLLIN)
        return bool(poll.poll(max(0.0, timeout_s) * 1000))

    def _sleep(self, source: socket.socket, deadline: float) -> None:
        """Return when `source` has something to read; it comes before the news that the tree has ended."""
        assert self._process is not None
        assert self._process.stdout is not None
        poll = select.poll()
        poll.register(source, select.POLLIN)
        poll.register(self._process.stdout, select.POLLIN)
        left_s = deadline - time.monotonic()
        ready = {descriptor for descriptor, _ in poll.poll(max(0.0, left_s) * 1000)}
        if source.fileno() in ready:
            return
        if ready:
            raise TreeEndedError
        raise AwaitTimeoutError
