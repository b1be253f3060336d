"""Keeps an impatient second Ctrl-C from breaking what the first one set off.

Python-level handlers, not a signal mask: a mask holds for one thread, and numpy starts others that would take the
signal. Both do nothing outside the main thread, the only one that Python interrupts.
"""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Final

_NUMBERS: Final = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


@contextmanager
def interrupted_once() -> Iterator[None]:
    """Let the first interrupt raise KeyboardInterrupt, and ignore those after it, for good.

    Once interrupted, the process has only to clean up, store what it has and end; at its very end, too, where the
    interpreter takes its own handlers down, another Ctrl-C must not change the exit status. Without an interrupt the
    handlers are restored. Signals that were ignored stay ignored.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    handlers = {number: signal.getsignal(number) for number in _NUMBERS}
    caught = {number: handler for number, handler in handlers.items() if callable(handler)}
    interrupted = False

    def interrupt(number: int, frame: FrameType | None) -> None:
        nonlocal interrupted
        interrupted = True
        for each in caught:
            signal.signal(each, signal.SIG_IGN)
        signal.default_int_handler(number, frame)

    for number in caught:
        signal.signal(number, interrupt)
    try:
        yield
    finally:
        if not interrupted:
            for number, handler in caught.items():
                signal.signal(number, handler)


@contextmanager
def interrupts_deferred() -> Iterator[None]:
    """Hold interrupts back until the block has ended. It must be one that ends soon."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    came: list[int] = []
    handlers = {number: signal.getsignal(number) for number in _NUMBERS}
    caught = {number: handler for number, handler in handlers.items() if callable(handler)}
    for number in caught:
        signal.signal(number, lambda number, _: came.append(number))
    try:
        yield
    finally:
        for number, handler in caught.items():
            signal.signal(number, handler)
        if came:
            signal.raise_signal(came[0])
