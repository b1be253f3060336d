"""Says in which of a step's own ranges memory grows: marks at their ends with what was allocated in them and kept."""

from __future__ import annotations

from collections.abc import Callable
from types import TracebackType
from typing import Final

from harness.names import GROWN_BYTES
from harness.worker.ranges import Range, Ranges

EVERY: Final = 7
"""At every so many steps. To sum up a heap takes longer the more pieces it has: 40 µs in a small FSDP2 process, six
times a step. A prime number, so that what happens at every 2nd, 4th, 5th or 10th step is met as well."""
LARGEST_SHARE: Final = 0.005
"""Of the time of all steps that this may take: once it takes more, no more is read."""


class GrowthMarks:
    """The marks of one rank. `allocated` reads the bytes that it has allocated; None where nothing tells them."""

    def __init__(self, ranges: Ranges, allocated: Callable[[], int] | None, now_ns: Callable[[], int]) -> None:
        self._ranges, self._allocated, self._now_ns = ranges, allocated, now_ns
        self._on = False
        self._last = self._spent_ns = 0

    def range(self, name: str) -> Range:
        """Return a reusable range that has the mark at its end."""
        return _Marked(self._ranges, name, self)

    def begin(self, index: int) -> None:
        """Begin step `index`."""
        self._on = self._allocated is not None and index % EVERY == EVERY - 1
        self._spent_ns = 0
        if self._on:
            self._grown()

    def mark(self) -> None:
        """End one of the step's ranges: what was allocated since the one before counts as its."""
        if self._on:
            self._ranges.mark(GROWN_BYTES, self._grown())

    def end(self, duration_ns: int) -> None:
        """End a step that took so long."""
        if self._spent_ns > LARGEST_SHARE * EVERY * duration_ns:
            self._allocated = None

    def _grown(self) -> int:
        assert self._allocated is not None
        began_ns = self._now_ns()
        before, self._last = self._last, self._allocated()
        self._spent_ns += self._now_ns() - began_ns
        return self._last - before


class _Marked(Range):
    def __init__(self, ranges: Ranges, name: str, marks: GrowthMarks) -> None:
        super().__init__(ranges, name)
        self._marks = marks

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        self._marks.mark()
        super().__exit__(kind, error, tb)
