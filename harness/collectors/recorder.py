"""Traces a launch with no tool: in every rank it records each range that goes through the `nvtx` Python package.

Standard library and nvtx only.

How: `Recorder.install()` puts recording stand-ins in place of the names of the `nvtx` package, before the engine is
imported, so that `from nvtx import annotate` in any library gets them. Without a tool nvtx hands out dummy domains
(and nothing at all under `NVTX_DISABLE`), so nothing is lost by standing in for them. Ranges that do not go through
the Python package (`torch.cuda.nvtx`, C++ code, `nvtx.Profile`) are not seen.

What it costs: a range reads the clock twice and extends one flat list of its thread; it makes no container that lives
on, so it neither triggers garbage collections nor makes them longer. Rows go to SQLite when the worker calls `flush`,
between steps. Only a thread that collects `ROWS_IN_MEMORY` rows within a step writes them there and then, which bounds
the memory, and shows as a range of its own (`recorder.flush`). A background writer would take the interpreter lock in
the middle of somebody's range instead, and nobody could tell where.

Times are ns of CLOCK_MONOTONIC, the same for all processes of a node. Payloads are kept when they are an `int` or a
`float` that fits 64 bits; colors and categories are not kept.
"""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import repeat
from pathlib import Path
from types import ModuleType
from typing import Any, ClassVar, Final

from harness import names
from harness.collectors.base import FINISH_TIMEOUT_S, Abilities, Availability
from harness.collectors.nvtx_stand_ins import stand_ins
from harness.collectors.range_log import ROW_FIELDS, RangeLog, ThreadLog
from harness.trace import schema
from harness.trace.merge import merge_launch
from harness.trace.writer import TraceWriter

NAME: Final = "recorder"
ROWS_IN_MEMORY: Final = 65_536
"""Rows a thread may hold (about 8 MB) before it writes them itself; more than a step normally makes."""


class Recorder(RangeLog):
    """Records this process into one trace file. Opened by a rank before it imports its engine.

    `writer` is open until `close`, for a collector that adds rows of its own to the same file.
    """

    def __init__(
        self,
        path: Path,
        *,
        rank: int,
        collector: str = NAME,
        sees_gpu: bool = False,
        rows_in_memory: int = ROWS_IN_MEMORY,
    ) -> None:
        super().__init__(rows_in_memory)
        self.process_id = os.getpid()
        self._now_ns = time.perf_counter_ns  # before the engine, which may replace what the module has
        # perf_counter_ns is CLOCK_MONOTONIC on Linux: event times need no shift, and UTC is that of its zero.
        self.writer = TraceWriter(
            path,
            collector=collector,
            sees_gpu=sees_gpu,
            process_id=self.process_id,
            process_name=Path(sys.executable).name,
            session_start_utc_ns=time.time_ns() - self._now_ns(),
            system_clock_ns=0,
            rank=rank,
        )
        self._lock = threading.Lock()
        self._replaced: list[tuple[ModuleType, str, Any]] = []
        self._closed = False

    def install(self) -> None:
        """Stand in for the names of the nvtx package, until `uninstall`."""
        import nvtx  # not above: the host side of this module needs none

        names_of_nvtx = stand_ins(self)
        for module in (nvtx, sys.modules["nvtx.nvtx"]):
            for name, stand_in in names_of_nvtx.items():
                self._replaced.append((module, name, module.__dict__.get(name)))
                setattr(module, name, stand_in)

    def uninstall(self) -> None:
        """Give the nvtx package its own names back."""
        for module, name, original in reversed(self._replaced):
            if original is None:  # a version without that name
                delattr(module, name)
            else:
                setattr(module, name, original)
        self._replaced.clear()

    def spill(self) -> None:
        """Write in the middle of a step, from the thread whose buffer is full, as a range that says so.

        Leaves it to the next call where a write is going on: it may be our own thread's, interrupted by a collection
        whose `gc.auto` range filled the buffer.
        """
        start_ns = self._now_ns()
        if not self._lock.acquire(blocking=False):
            return
        try:
            log = self.thread_log()
            written = self._write()
        finally:
            self._lock.release()
        domain, end_ns = names.NVTX_DOMAIN, self._now_ns()
        log.rows += (start_ns, end_ns, schema.NVTX_PUSH_POP, names.RECORDER_FLUSH, domain, written)

    def flush(self) -> None:
        """Write every finished range and mark of every thread: after it they survive a SIGKILL."""
        with self._lock:
            self._write()

    def begin_capture(self) -> None:
        """Do nothing: warm-up steps are recorded as well."""

    def end_capture(self) -> None:
        """Do nothing, as `begin_capture`."""

    def close(self) -> list[Path]:
        """Write all that is left, open ranges with no end, and close the file. Later ranges are dropped."""
        with self._lock:
            if not self._closed and os.getpid() == self.process_id:
                self._write()
                self.writer.add_ranges(self._open_rows())
                self._write_names(self._logs)
                self.writer.close()
            self._closed = True
        return [self.writer.path]

    def _write(self) -> int:
        """Move all finished rows to SQLite; return how many. Call with the lock held."""
        # A forked child shares the file with its parent, who alone may write it.
        dropping = self._closed or os.getpid() != self.process_id
        written = 0
        for log in list(self._logs):
            ended = log.alive() is None
            rows = log.take()
            if rows and not dropping:
                written += len(rows) // ROW_FIELDS
                self.writer.add_ranges(self._thread_rows(rows, log.global_tid))
            if ended:
                self._logs.remove(log)
                if not dropping:
                    self._write_names([log])
        process_rows = self.process_rows[:]
        del self.process_rows[: len(process_rows)]
        if process_rows and not dropping:
            written += len(process_rows)
            self.writer.add_ranges([(*row[:6], self.writer.domain_id(row[6]), row[7]) for row in process_rows])
        return written

    def _write_names(self, logs: list[ThreadLog]) -> None:
        self.writer.add_thread_names([(log.global_tid, log.name) for log in logs if log.name])

    def _thread_rows(self, rows: list[Any], thread: int) -> Iterable[tuple[Any, ...]]:
        """Rows of one thread in the writer's layout, made by C loops."""
        start_ns, end_ns, event_type, text, domain, value = (rows[field::ROW_FIELDS] for field in range(ROW_FIELDS))
        domain_ids = {name: self.writer.domain_id(name) for name in set(domain)}
        ids = map(domain_ids.__getitem__, domain)
        return zip(start_ns, end_ns, event_type, text, repeat(thread), repeat(None), ids, value, strict=False)

    def _open_rows(self) -> list[tuple[Any, ...]]:
        rows: list[tuple[Any, ...]] = []
        for log in self._logs:
            for domain, stack in log.stacks.items():
                for text, value, start_ns in list(stack):
                    domain_id = self.writer.domain_id(domain)
                    rows.append((start_ns, None, schema.NVTX_PUSH_POP, text, log.global_tid, None, domain_id, value))
        for start_ns, text, thread, domain, value in list(self.started.values()):
            domain_id = self.writer.domain_id(domain)
            rows.append((start_ns, None, schema.NVTX_START_END, text, thread, None, domain_id, value))
        return rows


def start_rank(trace_path: Path, rank: int) -> Recorder:
    """Start recording this rank into `trace_path`; see `harness.collectors.base.RankSide`."""
    recorder = Recorder(trace_path, rank=rank)
    recorder.install()
    return recorder


@dataclass(frozen=True, kw_only=True)
class RecorderHost:
    """Host side; see `harness.collectors.base.Collector`."""

    name: str = NAME
    finish_timeout_s: float = FINISH_TIMEOUT_S
    abilities: ClassVar[Abilities] = Abilities(rank_side=__name__, automatic="always")

    def available(self) -> Availability:
        """Always: it needs nothing."""
        return Availability(ok=True, reason="records NVTX ranges in process; needs no tool")

    def wrap(self, argv: Sequence[str], env: Mapping[str, str], launch_dir: Path) -> tuple[list[str], dict[str, str]]:  # noqa: ARG002 - the protocol's signature
        """Return the launch as it is."""
        return list(argv), dict(env)

    def collect(self, launch_dir: Path, ranks: int, destination: Path) -> Path:
        """Merge the ranks' files."""
        return merge_launch(launch_dir, ranks, destination)
