"""Makes one `Trace` from what was read of one or several files: one time axis, one string table, ranks, sorted rows.

nsys promises no order of rows from 2025.6 on, so every table is sorted by start (stable: ties keep the file's order).
Columns are moved one at a time, so that a table and its sorted copy are never in memory together.

In comments, `rows` is the number of rows of the table at hand over all files.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Final, TypeVar

import numpy as np
import numpy.typing as npt

from harness import names
from harness.trace import schema
from harness.trace.model import (
    GRAPH,
    KERNEL,
    MEMCPY,
    MEMSET,
    NO_NAME,
    NO_RANK,
    ApiCalls,
    FloatArray,
    GpuOperations,
    Int64Array,
    NvtxMarks,
    NvtxRanges,
    Process,
    Synchronizations,
    Trace,
    TraceInfo,
)
from harness.trace.raw import OPEN_END, Columns, Export, Interner

_Number = TypeVar("_Number", np.int64, np.int32, np.int8)

_SAW_NO_GPU: Final = "recorder"
"""The one collector that saw no GPU when files did not yet say so themselves (`schema.META_SEES_GPU`)."""
_TIME_FIELDS: Final = ("start_ns", "end_ns")
_ID_FIELDS: Final = ("global_pid", "global_tid", "end_global_tid")


def assemble(exports: Sequence[Export], interner: Interner) -> Trace:
    """One trace of `exports`, in their order."""
    warnings: list[str] = []
    exports = _on_one_axis(exports, warnings)
    nvtx = _concatenate([export.nvtx for export in exports])
    payload = np.concatenate([export.payload for export in exports])
    marks = _marks(nvtx, payload)
    last_ns = max(export.nvtx_last_ns for export in exports)
    ranges = _ranges(nvtx, payload, _domain_names(nvtx, interner), last_ns, warnings)
    operations = _operations(exports)
    api_rows = _sorted(_concatenate([export.api for export in exports]))
    sync_rows = _sorted(_concatenate([export.syncs for export in exports]))
    for export in exports:
        warnings.extend(f"rank {rank} left no readable trace" for rank in export.missing_ranks)
    if not len(ranges):
        warnings.append("no NVTX ranges in the trace: time cannot be put on ranges")
    traced_gpu = any(_sees_gpu(export) for export in exports)
    if traced_gpu and not len(operations):
        warnings.append("no GPU activity in the trace")
    return Trace(
        strings=interner.strings,
        ranges=ranges,
        marks=marks,
        operations=operations,
        api=ApiCalls(
            start_ns=api_rows["start_ns"],
            end_ns=api_rows["end_ns"],
            name_id=api_rows["name_id"].astype(np.int32),
            global_tid=api_rows["global_tid"],
            correlation_id=api_rows["correlation_id"],
        ),
        syncs=Synchronizations(
            start_ns=sync_rows["start_ns"],
            end_ns=sync_rows["end_ns"],
            sync_type=sync_rows["sync_type"].astype(np.int8),
            global_pid=sync_rows["global_pid"],
            correlation_id=sync_rows["correlation_id"],
        ),
        processes=_processes(exports, marks, interner.strings),
        info=_info(exports),
        warnings=tuple(warnings),
    )


def _on_one_axis(exports: Sequence[Export], warnings: list[str]) -> list[Export]:
    """Shift the files' times to the earliest session start and keep processes of different machines apart.

    On one machine the system clock at session start is exact; UTC is what there is before 2025.6 and between machines.
    """
    if len(exports) == 1:
        return list(exports)
    hosts = list(dict.fromkeys(export.host for export in exports))
    clocks: list[int | None] = [export.system_clock_ns for export in exports]
    if len(hosts) > 1 or None in clocks:
        clocks = [export.session_start_utc_ns for export in exports]
    if len(hosts) > 1:
        warnings.append(f"the files come from {len(hosts)} hosts: compare durations between ranks, not absolute times")
    known = [clock for clock in clocks if clock is not None]
    if len(known) < len(clocks):
        warnings.append("a file does not say when its session began: times of different files are not lined up")
        known = []
    moved = []
    for export, clock in zip(exports, clocks, strict=True):
        shift_ns = clock - min(known) if clock is not None and known else 0
        moved.append(_moved(export, shift_ns, hosts.index(export.host)))
    return moved


def _moved(export: Export, shift_ns: int, host: int) -> Export:
    """`export` with its times moved, and with `host` as hardware id so that equal process ids stay apart."""
    for table in export.tables():
        for field in _TIME_FIELDS:
            times = table[field]
            table[field] = np.where(times == OPEN_END, OPEN_END, times + shift_ns)
        for field in _ID_FIELDS:
            if field in table:
                table[field] = table[field] + (host << 56)
    started = export.session_start_utc_ns
    return replace(
        export,
        process_names={pid + (host << 56): name for pid, name in export.process_names.items()},
        ranks={pid + (host << 56): rank for pid, rank in export.ranks.items()},
        nvtx_last_ns=export.nvtx_last_ns if export.nvtx_last_ns == OPEN_END else export.nvtx_last_ns + shift_ns,
        session_start_utc_ns=None if started is None else started - shift_ns,
    )


def _concatenate(tables: Sequence[Columns]) -> Columns:
    if len(tables) == 1:
        return tables[0]
    return {field: np.concatenate([table[field] for table in tables]) for field in tables[0]}


def _sorted(rows: Columns) -> Columns:
    """Rows by start, ties in file order, with no end before its start."""
    start = rows["start_ns"]
    if not bool(np.all(start[1:] >= start[:-1])):
        order = np.argsort(start, kind="stable")
        for field in rows:  # one at a time, so that the memory of each serves for the next
            rows[field] = rows[field][order]
    np.maximum(rows["end_ns"], rows["start_ns"], out=rows["end_ns"])
    return rows


def _domain_names(nvtx: Columns, interner: Interner) -> Int64Array:
    """Name index of each row's domain; NO_NAME for the default domain. Ids are numbered per process."""
    named = np.full(len(nvtx["domain"]), NO_NAME, dtype=np.int64)  # (rows,) name index
    rows = np.flatnonzero(nvtx["domain"] != 0)
    if not len(rows):
        return named
    pids = nvtx["global_tid"][rows] & schema.GLOBAL_PID_MASK
    # (2, distinct (process, domain)s), (rows with a domain,)
    pairs, inverse = np.unique(np.stack([pids, nvtx["domain"][rows]]), axis=1, return_inverse=True)
    created = nvtx["event_type"][rows] == schema.NVTX_DOMAIN_CREATE
    create_rows = rows[created]
    name_of = {
        (int(pid), int(domain)): int(name)
        for pid, domain, name in zip(
            pids[created], nvtx["domain"][create_rows], nvtx["name_id"][create_rows], strict=True
        )
    }
    # Without the row that names it (a capture that began later), a domain keeps its number as a name.
    ids = [
        name_of[pid, domain] if name_of.get((pid, domain), NO_NAME) != NO_NAME else interner.add(f"domain {domain}")
        for pid, domain in pairs.T.tolist()
    ]
    named[rows] = np.array(ids, dtype=np.int64)[inverse.reshape(-1)]
    return named


def _ranges(nvtx: Columns, payload: FloatArray, domains: Int64Array, last_ns: int, warnings: list[str]) -> NvtxRanges:
    """The ranges among the rows, in the order that the model promises."""
    rows = np.flatnonzero(np.isin(nvtx["event_type"], schema.RANGE_TYPES))
    start = nvtx["start_ns"][rows]  # (ranges,) ns
    end = nvtx["end_ns"][rows]
    closed = end != OPEN_END
    if not bool(closed.all()):
        # As NVIDIA's reports do it: up to the largest time in the table, of rows too that were not read.
        last = max(last_ns, int(nvtx["start_ns"].max()), int(nvtx["end_ns"].max()))
        end = np.where(closed, end, last)
        warnings.append(f"{int((~closed).sum())} ranges were still open when the trace ended")
    end = np.maximum(end, start)
    order = np.lexsort((-end, start))  # by start, longest first: the outer range comes before the inner one
    rows = rows[order]
    return NvtxRanges(
        start_ns=start[order],
        end_ns=end[order],
        closed=closed[order],
        name_id=nvtx["name_id"][rows].astype(np.int32),
        domain_id=domains[rows].astype(np.int32),
        push_pop=np.isin(nvtx["event_type"][rows], schema.PUSH_POP_TYPES),
        global_tid=nvtx["global_tid"][rows],
        end_global_tid=nvtx["end_global_tid"][rows],
        payload=payload[rows],
    )


def _marks(nvtx: Columns, payload: FloatArray) -> NvtxMarks:
    rows = np.flatnonzero(nvtx["event_type"] == schema.NVTX_MARK)
    rows = rows[np.argsort(nvtx["start_ns"][rows], kind="stable")]
    return NvtxMarks(
        time_ns=nvtx["start_ns"][rows],
        name_id=nvtx["name_id"][rows].astype(np.int32),
        global_tid=nvtx["global_tid"][rows],
        payload=payload[rows],
    )


def _operations(exports: Sequence[Export]) -> GpuOperations:
    kinds = ((KERNEL, "kernels"), (MEMCPY, "memcpys"), (MEMSET, "memsets"), (GRAPH, "graphs"))
    parts: list[tuple[int, Columns]] = [(kind, getattr(export, table)) for kind, table in kinds for export in exports]
    lengths = [len(part["start_ns"]) for _, part in parts]
    order = np.argsort(np.concatenate([part["start_ns"] for _, part in parts]), kind="stable")  # (operations,)
    place = np.empty_like(order)  # its inverse
    place[order] = np.arange(len(order))
    places = np.split(place, np.cumsum(lengths)[:-1])  # by part: where each of its rows comes to stand

    def column(field: str, default: int, dtype: type[_Number]) -> npt.NDArray[_Number]:
        values = np.full(len(order), default, dtype=dtype)
        for rows, (_, part) in zip(places, parts, strict=True):
            if field in part:
                values[rows] = part[field]
        return values

    kind = np.empty(len(order), dtype=np.int8)
    for rows, (of_part, _) in zip(places, parts, strict=True):
        kind[rows] = of_part
    start, end = column("start_ns", 0, np.int64), column("end_ns", 0, np.int64)
    return GpuOperations(
        kind=kind,
        start_ns=start,
        end_ns=np.maximum(start, end, out=end),
        name_id=column("name_id", NO_NAME, np.int32),
        global_pid=column("global_pid", 0, np.int64),
        correlation_id=column("correlation_id", -1, np.int64),
        device_id=column("device_id", -1, np.int32),
        stream_id=column("stream_id", -1, np.int64),
        bytes=column("bytes", 0, np.int64),
        copy_kind=column("copy_kind", -1, np.int8),
        src_kind=column("src_kind", -1, np.int8),
        dst_kind=column("dst_kind", -1, np.int8),
    )


def _processes(exports: Sequence[Export], marks: NvtxMarks, strings: Sequence[str]) -> tuple[Process, ...]:
    """Every process with events, and its rank.

    The rank is what the process said itself (`rank` marks, or its writer). Where none did, the processes with GPU work
    (or else all) are numbered by file, then by id: torchrun starts its ranks in order.
    """
    source_of: dict[int, int] = {}
    for source, export in enumerate(exports):
        for pid in sorted(export.pids):
            source_of.setdefault(pid, source)
    told = {pid: rank for export in exports for pid, rank in export.ranks.items()} | _marked_ranks(marks, strings)
    if not told:
        working = set().union(*(export.gpu_pids for export in exports)) or set(source_of)
        ordered = sorted(working, key=lambda pid: (source_of[pid], pid))
        told = {pid: rank for rank, pid in enumerate(ordered)}
    found = [
        Process(
            global_pid=pid,
            pid=schema.pid_of(pid),
            name=exports[source].process_names.get(pid, ""),
            rank=told.get(pid, NO_RANK),
            source=source,
        )
        for pid, source in source_of.items()
    ]
    return tuple(sorted(found, key=lambda process: (process.rank == NO_RANK, process.rank, process.global_pid)))


def _marked_ranks(marks: NvtxMarks, strings: Sequence[str]) -> dict[int, int]:
    if names.RANK_MARK not in strings or not len(marks):
        return {}
    said = (marks.name_id == strings.index(names.RANK_MARK)) & ~np.isnan(marks.payload)
    pids = marks.global_tid[said] & schema.GLOBAL_PID_MASK
    first_pids, first_rows = np.unique(pids, return_index=True)
    return dict(zip(first_pids.tolist(), marks.payload[said][first_rows].astype(int).tolist(), strict=True))


def _collector(export: Export) -> str:
    """What wrote a file: it says so itself, or is nsys' own export."""
    version = export.meta.get(schema.META_PRODUCT_VERSION)
    return export.meta.get(schema.META_COLLECTOR, "nsys" if version else "unknown")


def _sees_gpu(export: Export) -> bool:
    """Whether the absence of GPU work in a file tells that there was none."""
    said = export.meta.get(schema.META_SEES_GPU)
    return _collector(export) != _SAW_NO_GPU if said is None else said == "yes"


def _info(exports: Sequence[Export]) -> TraceInfo:
    meta = exports[0].meta
    collector = _collector(exports[0])
    version = meta.get(schema.META_PRODUCT_VERSION)
    starts = [export.session_start_utc_ns for export in exports]
    return TraceInfo(
        sources=tuple(export.source for export in exports),
        collector=collector,
        nsys_version=version if collector == "nsys" else None,
        schema_version=meta.get(schema.META_SCHEMA_VERSION),
        session_start_utc_ns=starts[0],
        host_count=len({export.host for export in exports}),
    )
