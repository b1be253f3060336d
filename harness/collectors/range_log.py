"""What a process has recorded and not yet written. The stand-ins for nvtx fill it, the recorder empties it."""

from __future__ import annotations

import os
import threading
import weakref
from abc import ABC, abstractmethod
from itertools import count
from typing import Any, Final

from harness.trace import schema

ROW_FIELDS: Final = 6
"""Of one row in a thread's flat list: start_ns, end_ns, event type, text, domain name, payload."""


class ThreadLog:
    """What one thread has recorded and not yet written: flat `rows`, and open ranges in a stack for each domain."""

    __slots__ = ("alive", "global_tid", "name", "rows", "stacks")

    def __init__(self, owner: object, global_tid: int, name: str | None) -> None:
        self.rows: list[Any] = []
        self.stacks: dict[str, list[tuple[str, Any, int]]] = {}
        self.alive = weakref.ref(owner)  # the thread's local storage dies with it
        self.global_tid = global_tid
        self.name = name

    def take(self) -> list[Any]:
        """Remove and return the finished rows. The owning thread may go on adding at the end meanwhile."""
        taken = self.rows[:]
        del self.rows[: len(taken)]
        return taken


class _Owner:
    """Lives in a thread's local storage, to show by its end that the thread ended."""


class RangeLog(ABC):
    """The rows of a process: of every thread its own, and of ranges that one thread starts and another may end."""

    def __init__(self, rows_in_memory: int) -> None:
        self.rows_in_memory = rows_in_memory
        self.range_ids = count(1)
        self.started: dict[int, tuple[int, str, int, str, int | float | None]] = {}
        self.process_rows: list[tuple[Any, ...]] = []
        self._local = threading.local()
        self._logs: list[ThreadLog] = []

    @abstractmethod
    def spill(self) -> None:
        """Called by a thread that holds `rows_in_memory` rows."""

    def thread_log(self) -> ThreadLog:
        """Return the calling thread's log."""
        log: ThreadLog | None = getattr(self._local, "log", None)
        if log is None:
            owner = self._local.owner = _Owner()
            # Not current_thread(): for a thread of C++ (autograd's) that leaves a dummy behind.
            ident = threading.get_ident()
            name = next((thread.name for thread in threading.enumerate() if thread.ident == ident), None)
            log = ThreadLog(owner, schema.global_tid(os.getpid(), threading.get_native_id()), name)
            self._local.log = log
            self._logs.append(log)
        return log
