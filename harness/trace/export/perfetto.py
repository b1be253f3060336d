"""Chrome's trace event JSON, as the Perfetto UI and chrome://tracing read it.

A rank is a process; its threads hold their ranges, a track below each thread its CUDA calls, and every stream of a GPU
is a track of its own. An arrow (flow) leads from each launching call to what it launched. Ranges that do not nest go on
tracks of their own as asynchronous events, and operations of one stream that overlap are spread over lanes: both
viewers drop events of one track that overlap without nesting.

Written in pieces, so that memory does not grow with the file. Times are microseconds with three decimals, so every ns
is kept; the trace begins at 0.
"""

from __future__ import annotations

import contextlib
import functools
import gzip
import io
import json
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Final, TextIO

import numpy as np

from harness.trace import schema
from harness.trace.export.tables import KIND_NAMES
from harness.trace.links import NONE, launching_calls
from harness.trace.model import GRAPH, KERNEL, MEMCPY, NO_NAME, NO_RANK, Int64Array, Trace
from harness.trace.nesting import RangeTree

_ROWS: Final = 50_000
_FIRST_TRACK: Final = 1 << 24
"""Ids of tracks that are no threads: above every id that the system gives a thread."""


def write_chrome_json(trace: Trace, tree: RangeTree, path: Path, *, compress: bool) -> None:
    """Write `trace` to `path` as one JSON object with a `traceEvents` list."""
    with _open(path, compress=compress) as file:
        # displayTimeUnit matters to chrome://tracing only.
        file.write('{"displayTimeUnit":"ns","traceEvents":[\n')
        first = True
        for line in _events(trace, tree):
            file.write(line if first else f",\n{line}")
            first = False
        file.write("\n]}\n")


@contextlib.contextmanager
def _open(path: Path, *, compress: bool) -> Iterator[TextIO]:
    if not compress:
        with path.open("w", encoding="ascii", buffering=1 << 20) as file:
            yield file
        return
    # Without name and time in its head: the same trace gives the same bytes.
    with (
        path.open("wb") as raw,
        gzip.GzipFile(filename="", mode="wb", fileobj=raw, compresslevel=6, mtime=0) as packed,
        io.TextIOWrapper(io.BufferedWriter(packed, 1 << 20), encoding="ascii") as text,
    ):
        yield text


def _events(trace: Trace, tree: RangeTree) -> Iterator[str]:
    tracks = _Tracks(trace)
    writer = _Writer(trace, tree, tracks)
    yield from writer.ranges()
    yield from writer.marks()
    yield from writer.calls()
    yield from writer.operations()
    yield from writer.flows()
    yield from tracks.metadata()


class _Tracks:
    """Gives each process, thread and stream the ids under which the viewers know it."""

    def __init__(self, trace: Trace) -> None:
        self._trace = trace
        self._pids: dict[int, int] = {}
        used: set[int] = set()
        for process in trace.processes:
            # Process ids of two machines can be equal; 0 is the idle process to Perfetto.
            pid = process.pid or 1
            while pid in used:
                pid += 1
            used.add(pid)
            self._pids[process.global_pid] = pid
        self._tids: dict[tuple[int, str], int] = {}
        self._labels: list[tuple[int, int, str, int]] = []

    def pid(self, global_id: int) -> int:
        return self._pids.get(global_id & schema.GLOBAL_PID_MASK, 1)

    def thread(self, global_tid: int) -> int:
        """The id of a thread's own track."""
        key = (global_tid, "")
        if key not in self._tids:
            tid = global_tid & 0xFFFFFF
            self._tids[key] = tid
            main = tid == global_tid >> 24 & 0xFFFFFF
            self._label(global_tid, tid, "main thread" if main else f"thread {tid}", 0 if main else 10)
        return self._tids[key]

    def extra(self, global_id: int, label: str, order: int) -> int:
        """The id of a track that is no thread."""
        key = (global_id, label)
        if key not in self._tids:
            self._tids[key] = _FIRST_TRACK + len(self._tids)
            self._label(global_id, self._tids[key], label, order)
        return self._tids[key]

    def _label(self, global_id: int, tid: int, label: str, order: int) -> None:
        self._labels.append((self.pid(global_id), tid, label, order))

    def metadata(self) -> Iterator[str]:
        """Names and order of processes and tracks."""
        for position, process in enumerate(self._trace.processes):
            label = f"rank {process.rank}" if process.rank != NO_RANK else process.name or "process"
            pid = self._pids[process.global_pid]
            yield _metadata("process_name", pid, 0, "name", label)
            yield _metadata("process_sort_index", pid, 0, "sort_index", position)
        for pid, tid, label, order in self._labels:
            yield _metadata("thread_name", pid, tid, "name", label)
            yield _metadata("thread_sort_index", pid, tid, "sort_index", order)


def _metadata(kind: str, pid: int, tid: int, key: str, value: str | int) -> str:
    return f'{{"ph":"M","name":"{kind}","pid":{pid},"tid":{tid},"args":{{"{key}":{json.dumps(value)}}}}}'


def _time(ns: int) -> str:
    return f"{ns // 1000}.{ns % 1000:03d}"


class _Writer:
    def __init__(self, trace: Trace, tree: RangeTree, tracks: _Tracks) -> None:
        self._trace = trace
        self._tree = tree
        self._tracks = tracks
        self._zero = trace.first_ns
        self._names = [json.dumps(text) for text in trace.strings]

    def _name(self, name_id: int) -> str:
        return self._names[name_id] if name_id != NO_NAME else '"?"'

    def ranges(self) -> Iterator[str]:
        ranges, detached = self._trace.ranges, self._tree.nesting.detached
        columns = (
            ranges.start_ns - self._zero,
            ranges.end_ns - self._zero,
            ranges.name_id,
            ranges.domain_id,
            ranges.global_tid,
            ranges.payload,
            detached,
        )
        for row, (start, end, name_id, domain_id, tid, payload, apart) in enumerate(_rows(columns)):
            domain = self._name(domain_id) if domain_id != NO_NAME else '"nvtx"'
            place = f'"pid":{self._tracks.pid(tid)},"tid":{self._tracks.thread(tid)}'
            body = f'"name":{self._name(name_id)},"cat":{domain},{place}'
            args = f',"args":{{"payload":{payload!r}}}' if np.isfinite(payload) else ""
            if apart:
                yield f'{{"ph":"b",{body},"id":{row},"ts":{_time(start)}{args}}}'
                yield f'{{"ph":"e",{body},"id":{row},"ts":{_time(end)}}}'
            else:
                yield f'{{"ph":"X",{body},"ts":{_time(start)},"dur":{_time(end - start)}{args}}}'

    def marks(self) -> Iterator[str]:
        marks = self._trace.marks
        columns = (marks.time_ns - self._zero, marks.name_id, marks.global_tid, marks.payload)
        for time, name_id, tid, payload in _rows(columns):
            args = f',"args":{{"payload":{payload!r}}}' if np.isfinite(payload) else ""
            place = f'"pid":{self._tracks.pid(tid)},"tid":{self._tracks.thread(tid)}'
            yield f'{{"ph":"i","s":"t","name":{self._name(name_id)},"cat":"mark",{place},"ts":{_time(time)}{args}}}'

    def calls(self) -> Iterator[str]:
        api = self._trace.api
        columns = (api.start_ns - self._zero, api.end_ns - self._zero, api.name_id, api.global_tid, api.correlation_id)
        for start, end, name_id, tid, correlation in _rows(columns):
            yield (
                f'{{"ph":"X","name":{self._name(name_id)},"cat":"cuda_api","pid":{self._tracks.pid(tid)},'
                f'"tid":{self._call_track(tid)},"ts":{_time(start)},"dur":{_time(end - start)},'
                f'"args":{{"correlation":{correlation}}}}}'
            )

    def _call_track(self, global_tid: int) -> int:
        return self._tracks.extra(global_tid, f"CUDA calls of thread {global_tid & 0xFFFFFF}", 20)

    def operations(self) -> Iterator[str]:
        operations = self._trace.operations
        columns = (
            operations.kind,
            operations.start_ns - self._zero,
            operations.end_ns - self._zero,
            operations.name_id,
            operations.global_pid,
            operations.device_id,
            operations.stream_id,
            operations.bytes,
            operations.copy_kind,
            operations.correlation_id,
            self._lanes,
        )
        for kind, start, end, name_id, pid, device, stream, size, copy_kind, correlation, lane in _rows(columns):
            args = f'"stream":{stream},"correlation":{correlation}' + (f',"bytes":{size}' if size else "")
            name = self._name(name_id)
            if kind == MEMCPY:
                name = f'"memcpy {schema.COPY_KINDS.get(copy_kind, schema.COPY_KINDS[0])}"'
            elif kind != KERNEL:
                name = '"CUDA graph"' if kind == GRAPH else '"memset"'
            track = self._stream_track(pid, device, stream, lane)
            yield (
                f'{{"ph":"X","name":{name},"cat":"{KIND_NAMES[kind]}","pid":{self._tracks.pid(pid)},"tid":{track},'
                f'"ts":{_time(start)},"dur":{_time(end - start)},"args":{{{args}}}}}'
            )

    def _stream_track(self, global_pid: int, device: int, stream: int, lane: int) -> int:
        label = f"GPU {device} stream {stream}" + (f" lane {lane + 1}" if lane else "")
        return self._tracks.extra(global_pid, label, 30)

    @functools.cached_property
    def _lanes(self) -> Int64Array:
        operations = self._trace.operations
        lanes = np.zeros(len(operations), dtype=np.int64)
        stream = np.zeros(len(operations), dtype=np.int64)
        for column in (operations.global_pid, operations.device_id, operations.stream_id):
            known, position = np.unique(column, return_inverse=True)
            stream = stream * len(known) + position.reshape(-1)
        for one in np.unique(stream).tolist():
            own = np.flatnonzero(stream == one)
            lanes[own] = lanes_of(operations.start_ns[own], operations.end_ns[own])
        return lanes

    def flows(self) -> Iterator[str]:
        """An arrow from inside the launching call to the start of the operation."""
        api, operations = self._trace.api, self._trace.operations
        call_of = launching_calls(self._trace)
        launched = np.flatnonzero(call_of != NONE)
        call = call_of[launched]
        columns = (
            api.start_ns[call] - self._zero,
            api.global_tid[call],
            operations.start_ns[launched] - self._zero,
            operations.global_pid[launched],
            operations.device_id[launched],
            operations.stream_id[launched],
            self._lanes[launched],
        )
        for number, (from_time, tid, to_time, pid, device, stream, lane) in enumerate(_rows(columns)):
            head = f'"name":"launch","cat":"launch","id":{number}'
            yield (
                f'{{"ph":"s",{head},"pid":{self._tracks.pid(tid)},"tid":{self._call_track(tid)},"ts":{_time(from_time)}}}'
            )
            track = self._stream_track(pid, device, stream, lane)
            yield f'{{"ph":"f","bp":"e",{head},"pid":{self._tracks.pid(pid)},"tid":{track},"ts":{_time(to_time)}}}'


def lanes_of(start_ns: Int64Array, end_ns: Int64Array) -> Int64Array:
    """The lowest lane that is free at each start, for intervals ordered by start; all 0 when none overlap."""
    lanes = np.zeros(len(start_ns), dtype=np.int64)
    if not bool((start_ns[1:] < np.maximum.accumulate(end_ns)[:-1]).any()):
        return lanes
    free_from: list[int] = []
    for row, (start, end) in enumerate(zip(start_ns.tolist(), end_ns.tolist(), strict=True)):
        lane = next((at for at, free in enumerate(free_from) if free <= start), len(free_from))
        if lane == len(free_from):
            free_from.append(end)
        free_from[lane] = end
        lanes[row] = lane
    return lanes


def _rows(columns: Iterable[np.ndarray]) -> Iterator[tuple]:  # type: ignore[type-arg] # columns differ in type
    """The rows of some columns as tuples of Python values, a piece at a time."""
    columns = tuple(columns)
    for first in range(0, len(columns[0]), _ROWS):
        yield from zip(*(column[first : first + _ROWS].tolist() for column in columns), strict=True)
