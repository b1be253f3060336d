"""Waiting for another process that holds the results database, told once it takes long: SQLite waits in silence."""

from __future__ import annotations

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
                text = f"stepduel: waiting for another process to be done with {path} (at most {timeout_s:.0f} s)"
                print(visible(text), file=sys.stderr, flush=True)
            time.sleep(_PAUSE_S)
