"""An in-process recorder for the tests of this folder, and what it wrote, read back with plain sqlite3."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from harness.collectors.recorder import Recorder
from harness.trace import schema


@dataclass(frozen=True)
class Event:
    """One row of NVTX_EVENTS, its domain by name."""

    start_ns: int
    end_ns: int | None
    kind: int
    text: str
    domain: str
    global_tid: int
    payload: int | float | None

    def contains(self, other: Event) -> bool:
        """Whether `other` lies within this range, on the same thread."""
        last = other.start_ns if other.end_ns is None else other.end_ns
        assert self.end_ns is not None
        return self.global_tid == other.global_tid and self.start_ns <= other.start_ns and last <= self.end_ns


def read_events(path: Path) -> list[Event]:
    """All ranges and marks in a trace by start, opened as a read-only medium would be."""
    with sqlite3.connect(f"file:{path}?mode=ro&immutable=1", uri=True) as connection:
        domains = dict(connection.execute("SELECT domainId, text FROM NVTX_EVENTS WHERE eventType = 75").fetchall())
        rows = connection.execute(
            "SELECT start, end, eventType, text, domainId, globalTid, COALESCE(int64Value, doubleValue)"
            " FROM NVTX_EVENTS WHERE eventType IN (34, 59, 60) ORDER BY start, end DESC"
        ).fetchall()
    connection.close()
    return [Event(s, e, kind, text, domains.get(d, ""), tid, payload) for s, e, kind, text, d, tid, payload in rows]


def parent_of(event: Event, events: list[Event]) -> Event | None:
    """The tightest push/pop range around `event` on its thread, by looking at every one."""
    around = [
        other
        for other in events
        if other is not event
        and other.kind == schema.NVTX_PUSH_POP
        and other.end_ns is not None
        and other.contains(event)
    ]
    return max(around, key=lambda other: other.start_ns, default=None)


@contextmanager
def recording(folder: Path) -> Iterator[Recorder]:
    """A recorder that stands in for nvtx's names meanwhile, and writes `rank0.sqlite` into `folder`."""
    recorder = Recorder(folder / "rank0.sqlite", rank=0)
    recorder.install()
    try:
        yield recorder
    finally:
        recorder.uninstall()
        recorder.close()
