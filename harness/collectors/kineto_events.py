"""What kineto (the library under torch.profiler) writes, turned into rows of the trace. Standard library only.

Source is the Chrome trace that kineto saves, and not its Python events: from torch 2.6 to 2.13 only the file has the
bytes of a copy. Its categories `kernel`, `gpu_memcpy`, `gpu_memset`, `cuda_runtime`, `cuda_driver` and `cuda_sync` are
CUPTI's activity records, with CUPTI's correlation ids; everything else in it is left out.

**Clocks.** kineto's times are UTC: `baseTimeNanoseconds` plus microseconds with three decimals. The recorder's are
CLOCK_MONOTONIC. The offset between the two is measured right before the first and right after the last event, and
interpolated between them, so that a clock that is being slewed does no harm:

    monotonic(utc) = utc + offset at the first reading + drift between the readings × (utc - first) / (last - first)

in integers throughout, for 2**53 ns of float64 are less than UTC has counted since 1970.

**Threads.** CUPTI names a calling thread by the low 32 bits of its pthread id; kineto translates only the threads that
its CPU profiler has seen, which stays off here because it slows every operator down. The map from pthread ids to
thread ids comes from `threading`. A thread that Python does not know keeps CUPTI's number, cut to 24 bits: it is then
told apart from the others, and joins by process still hold.
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, Final

from harness.trace import schema
from harness.trace.writer import TraceWriter

API_CLASSES: Final = {"cuda_runtime": schema.CLASS_RUNTIME_API, "cuda_driver": schema.CLASS_DRIVER_API}
COPY_KIND_OF: Final = {
    kind: number
    for number, kind in enumerate(
        ("HtoD", "DtoH", "HtoA", "AtoH", "AtoA", "AtoD", "DtoA", "DtoD", "HtoH", "PtoP"), start=1
    )
}
MEMORY_KIND_OF: Final = {label: number for number, label in schema.MEMORY_KINDS.items()}
UNKNOWN_MEMORY: Final = MEMORY_KIND_OF["Unknown"]
SYNC_TYPE_OF: Final = {"Event Sync": 1, "Stream Wait Event": 2, "Stream Sync": 3, "Context Sync": 4}

BATCH_ROWS: Final = 50_000

_GAP = re.compile(r"[\s,]*")
_BASE_TIME = re.compile(r'"baseTimeNanoseconds"\s*:\s*(\d+)')
_COPY_NAME = re.compile(r"Memcpy (\w+) \((.+?) -> (.+?)\)")
_MEMSET_NAME = re.compile(r"Memset \((.+)\)")


@dataclass(frozen=True, kw_only=True)
class ClockReading:
    """UTC and CLOCK_MONOTONIC at one moment, ns."""

    utc_ns: int
    monotonic_ns: int

    @classmethod
    def take(
        cls,
        attempts: int = 20,
        *,
        monotonic: Callable[[], int] = time.monotonic_ns,
        utc_clock: Callable[[], int] = time.time_ns,
    ) -> ClockReading:
        """Read both clocks together: the attempt that took least time, its middle for the monotonic clock.

        The clocks are defaults of the function, where an engine that replaces those of modules does not reach them.
        """
        readings = []
        for _ in range(attempts):
            before = monotonic()
            utc = utc_clock()
            after = monotonic()
            readings.append((after - before, cls(utc_ns=utc, monotonic_ns=(before + after) // 2)))
        return min(readings, key=lambda reading: reading[0])[1]


@dataclass(frozen=True, kw_only=True)
class ClockMap:
    """UTC → monotonic, linear between two readings and beyond them."""

    first: ClockReading
    last: ClockReading

    def monotonic_ns(self, utc_ns: int) -> int:
        """The monotonic time of a UTC time, ns."""
        offset = self.first.monotonic_ns - self.first.utc_ns  # ns, as all of these
        span = self.last.utc_ns - self.first.utc_ns
        if span <= 0:
            return utc_ns + offset
        drift = (self.last.monotonic_ns - self.last.utc_ns) - offset
        return utc_ns + offset + drift * (utc_ns - self.first.utc_ns) // span


class ChromeTrace:
    """The events of a Chrome trace as kineto writes it, one at a time. `damaged` counts those that were no JSON.

    kineto does not escape quotes in names: an event with one is unreadable, and must not cost the others.
    """

    def __init__(self, text: str) -> None:
        self._text = text
        self.damaged = 0
        base = _BASE_TIME.search(text)
        self.base_time_ns = int(base[1]) if base else 0
        """UTC of time 0, ns; 0 in a file that says none (its times are UTC then)."""

    def __iter__(self) -> Iterator[dict[str, Any]]:
        text = self._text
        decoder = json.JSONDecoder(parse_float=Decimal, strict=False)
        head = text.find('"traceEvents"')
        position = text.find("[", head) + 1 if head >= 0 else len(text)
        while True:
            gap = _GAP.match(text, position)
            position = gap.end() if gap else position
            if position >= len(text) or text[position] == "]":
                return
            try:
                event, position = decoder.raw_decode(text, position)
            except json.JSONDecodeError:
                self.damaged += 1
                position = text.find("\n  {", position + 1)
                if position < 0:
                    return
                continue
            if isinstance(event, dict):
                yield event


def short_name(kernel: str) -> str:
    """The bare function name of a demangled kernel: no return type, namespace, template or call arguments."""
    depth = 0
    kept: list[str] = []
    for character in kernel.replace("(anonymous namespace)", ""):
        if character in "<(":
            depth += 1
        elif character in ">)":
            depth -= 1
        elif depth == 0:
            kept.append(character)
    words = "".join(kept).split("::")[-1].split()
    return words[-1] if words else kernel


@dataclass(frozen=True, kw_only=True)
class Written:
    """How many rows of each kind went into the trace, and what could not be read."""

    api_calls: int
    kernels: int
    memcpys: int
    memsets: int
    syncs: int
    damaged: int


def write_events(trace: ChromeTrace, writer: TraceWriter, *, clock: ClockMap, threads: Mapping[int, int]) -> Written:
    """Append the CUDA activity in `trace` to `writer`, whose times are CLOCK_MONOTONIC.

    `threads` maps the low 32 bits of pthread ids to thread ids. Events without a duration or a correlation id that
    they need are counted as damaged.
    """
    rows = _Rows(writer, trace.base_time_ns, clock, threads)
    for event in trace:
        if event.get("ph") != "X":
            continue
        try:
            rows.add(event)
        except (KeyError, TypeError, ValueError, ArithmeticError):
            trace.damaged += 1
    rows.flush()
    counts = rows.counts
    return Written(
        api_calls=counts["api"],
        kernels=counts["kernel"],
        memcpys=counts["memcpy"],
        memsets=counts["memset"],
        syncs=counts["sync"],
        damaged=trace.damaged,
    )


class _Rows:
    """Collects rows by table and hands them to the writer in batches."""

    def __init__(self, writer: TraceWriter, base_ns: int, clock: ClockMap, threads: Mapping[int, int]) -> None:
        self._writer = writer
        self._base_ns = base_ns
        self._clock = clock
        self._threads = threads
        self._pending: dict[str, list[tuple[object, ...]]] = {
            table: [] for table in ("api", "kernel", "memcpy", "memset", "sync")
        }
        self.counts = dict.fromkeys(self._pending, 0)
        self._short_ids: dict[str, int] = {}

    def add(self, event: Mapping[str, Any]) -> None:
        category = str(event.get("cat", "")).lower()
        if category in API_CLASSES:
            self._append("api", self._api(event, API_CLASSES[category]))
        elif category == "kernel":
            self._append("kernel", self._kernel(event))
        elif category == "gpu_memcpy":
            self._append("memcpy", (*self._gpu(event), *_copy(event)))
        elif category == "gpu_memset":
            self._append("memset", (*self._gpu(event), *_memset(event)))
        elif category == "cuda_sync":
            self._append("sync", (*self._gpu(event), *_sync(event)))

    def flush(self) -> None:
        add_rows: dict[str, Any] = {
            "api": self._writer.add_api_calls,
            "kernel": self._writer.add_kernels,
            "memcpy": self._writer.add_memcpys,
            "memset": self._writer.add_memsets,
            "sync": self._writer.add_syncs,
        }
        for table, rows in self._pending.items():
            add_rows[table](rows)
            rows.clear()

    def _append(self, table: str, row: tuple[object, ...]) -> None:
        self._pending[table].append(row)
        self.counts[table] += 1
        if len(self._pending[table]) >= BATCH_ROWS:
            self.flush()

    def _times(self, event: Mapping[str, Any]) -> tuple[int, int]:
        start = self._base_ns + round(Decimal(event["ts"]) * 1000)  # µs after the base → UTC ns
        end = start + round(Decimal(event["dur"]) * 1000)
        return self._clock.monotonic_ns(start), self._clock.monotonic_ns(end)

    def _api(self, event: Mapping[str, Any], event_class: int) -> tuple[object, ...]:
        thread = int(event["tid"])
        thread = self._threads.get(thread & 0xFFFFFFFF, thread)
        global_tid = self._writer.global_pid | (thread & 0xFFFFFF)
        correlation = int(event["args"]["correlation"])
        return (*self._times(event), event_class, global_tid, correlation, self._writer.string_id(event["name"]))

    def _gpu(self, event: Mapping[str, Any]) -> tuple[object, ...]:
        args = event["args"]
        # A copy between devices has `inDevice` and `inContext` in place of the two.
        device = int(args.get("device", args.get("inDevice", 0)))
        context = int(args.get("context", args.get("inContext", 0)))
        stream = int(args.get("stream", 0))
        return (*self._times(event), device, context, stream, int(args["correlation"]), self._writer.global_pid)

    def _kernel(self, event: Mapping[str, Any]) -> tuple[object, ...]:
        name = str(event["name"])
        args = event["args"]
        if name not in self._short_ids:
            self._short_ids[name] = self._writer.string_id(short_name(name))
        return (
            *self._gpu(event),
            self._writer.string_id(name),
            self._short_ids[name],
            int(args.get("registers per thread", 0)),
            *_dimensions(args.get("grid")),
            *_dimensions(args.get("block")),
        )


def _dimensions(values: Iterable[Any] | None) -> tuple[int, int, int]:
    x, y, z = (int(value) for value in values) if values is not None else (0, 0, 0)
    return x, y, z


def _copy(event: Mapping[str, Any]) -> tuple[int, int, int, int]:
    """(bytes, copy kind, source kind, destination kind)."""
    match = _COPY_NAME.search(event["name"])
    kind, source, destination = match.groups() if match else ("", "", "")
    return (
        int(event["args"]["bytes"]),
        COPY_KIND_OF.get(kind, 0),
        MEMORY_KIND_OF.get(source, UNKNOWN_MEMORY),
        MEMORY_KIND_OF.get(destination, UNKNOWN_MEMORY),
    )


def _memset(event: Mapping[str, Any]) -> tuple[int, int, int]:
    """(value, bytes, memory kind); kineto does not say the value."""
    match = _MEMSET_NAME.search(event["name"])
    return 0, int(event["args"]["bytes"]), MEMORY_KIND_OF.get(match[1] if match else "", UNKNOWN_MEMORY)


def _sync(event: Mapping[str, Any]) -> tuple[int, int]:
    """(synchronisation type, CUDA event id or 0)."""
    args = event["args"]
    return SYNC_TYPE_OF.get(str(args.get("cuda_sync_kind", event["name"])), 0), int(
        args.get("wait_on_cuda_event_id", 0)
    )
