"""Small exports made by hand, whose every figure is known."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable
from pathlib import Path
from typing import Any

MS = 1_000_000
SCHEMA = """
CREATE TABLE StringIds (id INTEGER PRIMARY KEY, value TEXT NOT NULL);
CREATE TABLE META_DATA_EXPORT (name TEXT, value TEXT);
CREATE TABLE NVTX_EVENTS (start INTEGER NOT NULL, "end" INTEGER, eventType INTEGER NOT NULL, text TEXT,
  globalTid INTEGER, textId INTEGER, domainId INTEGER, int64Value INTEGER);
CREATE TABLE CUPTI_ACTIVITY_KIND_RUNTIME (start INTEGER NOT NULL, "end" INTEGER NOT NULL, eventClass INTEGER,
  globalTid INTEGER, correlationId INTEGER, nameId INTEGER NOT NULL);
CREATE TABLE CUPTI_ACTIVITY_KIND_KERNEL (start INTEGER NOT NULL, "end" INTEGER NOT NULL, deviceId INTEGER,
  streamId INTEGER, correlationId INTEGER, globalPid INTEGER, demangledName INTEGER);
INSERT INTO META_DATA_EXPORT VALUES ('EXPORT_PRODUCT_VERSION', '2025.1.3.140');
INSERT INTO StringIds VALUES (1, 'cudaLaunchKernel_v7000'), (2, 'gemm<float>(float *, int)');
"""


def write(
    path: Path, ranges: Iterable[tuple[Any, ...]], launches: Iterable[tuple[int, int, int, int, int]] = ()
) -> Path:
    """Make an export. `ranges`: (start, end, name, rank, thread); `launches`: (call, start, end, rank, thread), in ns.

    A rank is the process 100 + rank; thread 0 is its main thread. Every launch is a gemm whose call takes 1 us.
    """
    connection = sqlite3.connect(path)
    connection.executescript(SCHEMA)
    connection.executemany(
        "INSERT INTO NVTX_EVENTS VALUES (?, ?, 59, ?, ?, NULL, 0, NULL)",
        [(start, end, name, _tid(rank, thread)) for start, end, name, rank, thread in ranges],
    )
    for number, (call, start, end, rank, thread) in enumerate(launches, start=1):
        connection.execute(
            "INSERT INTO CUPTI_ACTIVITY_KIND_RUNTIME VALUES (?, ?, 0, ?, ?, 1)",
            (call, call + 1_000, _tid(rank, thread), number),
        )
        connection.execute(
            "INSERT INTO CUPTI_ACTIVITY_KIND_KERNEL VALUES (?, ?, ?, 7, ?, ?, 2)",
            (start, end, rank, number, _tid(rank, 0) >> 24 << 24),
        )
    connection.commit()
    connection.close()
    return path


def _tid(rank: int, thread: int) -> int:
    return 1 << 48 | (100 + rank) << 24 | (100 + rank + 1000 * thread)


def training(
    path: Path,
    *,
    ranks: int = 1,
    steps: int = 5,
    forward_ms: int = 40,
    step: str = "train_step_{}",
    forward: str = "forward",
    extra: str | None = None,
) -> Path:
    """Steps with `forward`, `backward` (30 ms, launched from another thread) and 10 ms of the step itself; the first
    takes 1 s more. Each of the two launches a kernel of 20 ms; `extra` is a further range of 5 ms."""
    ranges: list[tuple[Any, ...]] = []
    launches = []
    for rank in range(ranks):
        at = 0
        for number in range(steps):
            slow = 1_000 if number == 0 else 0
            begin = at
            at += slow * MS
            ranges.append((at, at + forward_ms * MS, forward, rank, 0))
            launches.append((at + MS, at + 2 * MS, at + 22 * MS, rank, 0))
            at += forward_ms * MS
            ranges.append((at, at + 30 * MS, "backward", rank, 0))
            launches.append((at + MS, at + 2 * MS, at + 22 * MS, rank, 1))
            at += 30 * MS
            if extra is not None:
                ranges.append((at, at + 5 * MS, extra, rank, 0))
                at += 5 * MS
            at += 10 * MS
            ranges.append((begin, at, step.format(number), rank, 0))
            at += MS
    return write(path, ranges, launches)
