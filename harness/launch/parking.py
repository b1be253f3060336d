"""Stops what a launch runs while it waits for its turn, and continues it: what works on in the background would disturb
the other side, and would come free to its own.

Stopped are the ranks and all that they started (loader workers, helpers, agents): SIGSTOP cannot be caught or ignored.
The supervisor runs on, since it ends the launch when the harness is gone, by SIGKILL, which ends stopped processes too.
So does the ranks' parent, which sleeps until one ends; torchrun, where it is that, looks ten times a second, and its
heartbeats must not lapse.
"""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Iterator, Sequence
from typing import Final

_STOPPED_WITHIN_S: Final = 0.5
"""A process in an uninterruptible system call stops when that returns; it is not waited for longer than this."""
_PAUSE_S: Final = 0.0002


class Parking:
    """The processes of one launch below `supervisor` that wait with it, found anew each time: `ranks` and what is below
    them or was left to the supervisor by its parent."""

    def __init__(self, supervisor: int, ranks: Sequence[int]) -> None:
        self._supervisor, self._ranks = supervisor, frozenset(ranks)
        self._stopped: list[int] = []
        self._known: set[int] = set()
        self._newest = supervisor
        self._began_again = False

    def stop(self) -> set[int]:
        """Stop them all, and return when they stand still; those of them that are new since the last time.

        One that its own launch had stopped is left alone.
        """
        known = self._known
        found = list(self._processes())
        own = {pid for pid, state in found if state == "T"} - set(self._stopped)
        deadline = time.monotonic() + _STOPPED_WITHIN_S
        # Until a look finds nobody running: a process may fork between the look and its stop.
        while moving := [pid for pid, state in found if state != "T"]:
            for pid in moving:
                if pid not in self._stopped and pid not in own:
                    self._stopped.append(pid)
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGSTOP)
            if time.monotonic() > deadline:
                break
            time.sleep(_PAUSE_S)
            found = list(self._processes())
        self._known = {pid for pid, _ in found}
        return self._known - known

    def resume(self) -> None:
        """Continue what `stop` stopped, children before the ranks: what their parents hear of it comes first."""
        for pid in sorted(self._stopped, key=lambda pid: pid in self._ranks):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGCONT)
        self._stopped.clear()

    def processes(self) -> list[int]:
        """Return the ids of all that waits with the launch, stopped or not."""
        return [pid for pid, _ in self._processes()]

    def _processes(self) -> Iterator[tuple[int, str]]:
        """Id and state of each process that waits with the launch."""
        parents, states = self._living()
        above: set[int] = set()
        for rank in self._ranks:
            pid = parents.get(rank, 0)
            while pid not in above and pid in parents:
                above.add(pid)
                pid = parents[pid]
        for pid, state in states.items():
            line = pid
            while line in parents and line != self._supervisor:
                line = parents[line]
            if line == self._supervisor and pid not in above and pid != self._supervisor:
                yield pid, state

    def _living(self) -> tuple[dict[int, int], dict[int, str]]:
        """Return parents and states of the living processes that may be the launch's.

        Its ids are above the supervisor's until the kernel begins again from below. Most of a machine's are not, and a
        look at each takes 40 µs.
        """
        newest = _newest_id()
        self._began_again |= newest < self._newest
        self._newest = newest
        parents: dict[int, int] = {}
        states: dict[int, str] = {}
        for name in os.listdir("/proc"):  # noqa: PTH208 - half the time of Path, at every turn
            if name.isdigit() and (self._began_again or int(name) >= self._supervisor):
                found = _stat(int(name))
                if found is not None:
                    parents[int(name)], states[int(name)] = found
        return parents, states


def _stat(pid: int) -> tuple[int, str] | None:
    """Return a process's parent and state, `T` if it is stopped, by a debugger too; None if it has ended."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:  # noqa: PTH123
            state, parent = file.read().rpartition(b")")[2].split(None, 2)[:2]
    except OSError:
        return None
    return None if state in b"ZX" else (int(parent), state.decode().upper())


def _newest_id() -> int:
    """Return the id that was given to a process last; they are given in order, and again from below at the end."""
    with open("/proc/loadavg", "rb") as file:  # noqa: PTH123
        return int(file.read().split()[-1])
