"""Stacks of a rank that hangs, in its log, without a signal: an engine may have its own use for every signal.

A timer thread of faulthandler writes them shortly before the coordinator gives the rank up. It needs no lock of the
interpreter, so a rank that hangs in C code is seen too. It is set anew at most ten times in each limit: a step does not
pay for it.
"""

from __future__ import annotations

import faulthandler
import os
import time
from typing import Final

STACKS_AT: Final = 0.9
"""Share of a limit after which the stacks are written."""
SET_ANEW_AT: Final = 0.1
"""Share of a limit that the timer is left to run before it is set anew. A hang shows between 0.8 and 0.9."""


class StackTimer:
    """Writes the stacks of all threads to a copy of the descriptor `log`, which stays whatever the engine closes."""

    def __init__(self, log: int) -> None:
        self._log = os.dup(log)
        self._limit_s = 0.0
        self._set_at_s = float("-inf")
        # A forked child would wait for the timer thread, which it lacks, when it ends.
        os.register_at_fork(before=faulthandler.cancel_dump_traceback_later, after_in_parent=self._start)

    def set(self, limit_s: float) -> None:
        """Something begins that may take `limit_s`."""
        now = time.monotonic()
        if limit_s != self._limit_s or now - self._set_at_s > SET_ANEW_AT * limit_s:
            self._limit_s, self._set_at_s = limit_s, now
            self._start()

    def _start(self) -> None:
        if self._limit_s:
            faulthandler.dump_traceback_later(STACKS_AT * self._limit_s, file=self._log)
