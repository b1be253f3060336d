"""Ranges for garbage collections: `gc.auto` for those the interpreter starts, none beside a probed `gc.collect()`.

`gc.callbacks` are called for both kinds and do not tell them apart, so the probe on `gc.collect` calls it through
`explicit_collect`, which says so. Only one collection runs in a process at a time.
"""

from __future__ import annotations

import gc
from functools import wraps
from typing import Any, Final

from harness import names
from harness.worker.ranges import Ranges

_collect: Final = gc.collect
_explicit_calls: Final[list[None]] = []


@wraps(_collect)
def explicit_collect(*args: Any, **kwargs: Any) -> int:
    """Run `gc.collect`, known as explicit."""
    _explicit_calls.append(None)
    try:
        return _collect(*args, **kwargs)
    finally:
        _explicit_calls.pop()


class AutomaticCollections:
    """Puts every automatic collection in a range, with a mark for the objects it collected."""

    def __init__(self, ranges: Ranges) -> None:
        self._ranges = ranges
        self._attributes = ranges.attributes(names.GC_AUTO)

    def install(self) -> None:
        gc.callbacks.append(self._on_collection)

    def uninstall(self) -> None:
        gc.callbacks.remove(self._on_collection)

    def _on_collection(self, phase: str, info: dict[str, int]) -> None:
        if _explicit_calls:
            return
        if phase == "start":
            self._ranges.push(self._attributes)
        else:
            self._ranges.mark(names.COLLECTED_OBJECTS, info["collected"] + info["uncollectable"])
            self._ranges.pop()
