"""The worker's own NVTX events, all in the domain `stepduel`, on every nvtx from 0.2.10 on.

Attributes are made once and reused, because making them costs more than the event.
"""

from __future__ import annotations

from types import TracebackType
from typing import Any

import nvtx

from harness.names import NVTX_DOMAIN


class Ranges:
    """`push(attributes)`, `pop()`, and `mark`, `start`, `end` by name. Make it after a recorder is installed."""

    def __init__(self) -> None:
        if hasattr(nvtx, "get_domain"):
            self._domain: Any = nvtx.get_domain(NVTX_DOMAIN)
        else:
            self._domain = _ModuleDomain()  # nvtx 0.2.10
        self.push = self._domain.push_range
        self.pop = self._domain.pop_range

    def attributes(self, name: str, payload: int | None = None) -> Any:
        """Return what `push` takes for a range called `name`."""
        return self._domain.get_event_attributes(message=name, payload=payload)

    def range(self, name: str) -> Range:
        """Return a reusable context manager for ranges called `name`."""
        return Range(self, name)

    def mark(self, name: str, payload: int) -> None:
        """Emit a mark. Its attributes are made anew: they carry the payload, and threads must not share it."""
        self._domain.mark(self.attributes(name, payload))

    def start(self, name: str) -> Any:
        """Begin a range that need not nest; give what is returned to `end`."""
        return self._domain.start_range(self.attributes(name))

    def end(self, started: Any) -> None:
        """End what `start` began."""
        self._domain.end_range(started)


class Range:
    """One range name as a context manager that can be entered again and again."""

    def __init__(self, ranges: Ranges, name: str) -> None:
        self._push, self._pop = ranges.push, ranges.pop
        self._attributes = ranges.attributes(name)

    def __enter__(self) -> None:
        self._push(self._attributes)

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        self._pop()


class _ModuleDomain:
    """The calls of a Domain object through nvtx's module functions; attributes are their keyword arguments."""

    def get_event_attributes(self, message: str, payload: int | None = None) -> dict[str, Any]:
        return {"message": message, "domain": NVTX_DOMAIN, "payload": payload}

    def push_range(self, attributes: dict[str, Any]) -> None:
        nvtx.push_range(**attributes)

    def pop_range(self) -> None:
        nvtx.pop_range(domain=NVTX_DOMAIN)

    def mark(self, attributes: dict[str, Any]) -> None:
        nvtx.mark(**attributes)

    def start_range(self, attributes: dict[str, Any]) -> Any:
        return nvtx.start_range(**attributes)

    def end_range(self, started: Any) -> None:
        nvtx.end_range(started)
