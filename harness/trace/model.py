"""A trace in memory: structs of numpy arrays, one array a column, all names interned in one table.

Arrays of one struct have one length and are never written to. A column called `…_id` that holds names indexes
`Trace.strings`; `NO_NAME` (-1) means none. Times are int64 nanoseconds on one axis for the whole trace, whose zero is
`TraceInfo.session_start_utc_ns`; they can be negative. Processes and threads are named by nsys' serialized ids
(`harness.trace.schema` packs and unpacks them).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar, Final

import numpy as np
import numpy.typing as npt

from harness.trace import schema

Int64Array = npt.NDArray[np.int64]
Int32Array = npt.NDArray[np.int32]
Int8Array = npt.NDArray[np.int8]
FloatArray = npt.NDArray[np.float64]
BoolArray = npt.NDArray[np.bool_]

NO_NAME: Final = -1
NO_RANK: Final = -1
_FEW: Final = 16

# Values of `GpuOperations.kind`.
KERNEL: Final = 0
MEMCPY: Final = 1
MEMSET: Final = 2
GRAPH: Final = 3
"""A whole CUDA graph launch: with nsys' default its kernels have no rows of their own."""


@dataclass(frozen=True, kw_only=True, eq=False)
class NvtxRanges:
    """Push/pop and start/end ranges, ordered by (start, longest first). An open end became the last time seen."""

    start_ns: Int64Array
    end_ns: Int64Array
    closed: BoolArray
    """False where the trace holds no end: the range was open when the capture or the process ended."""
    name_id: Int32Array
    domain_id: Int32Array
    """Name of the domain in `strings`; `NO_NAME` for the default domain."""
    push_pop: BoolArray
    """True for push/pop, False for start/end ranges."""
    global_tid: Int64Array
    end_global_tid: Int64Array
    """Equal to `global_tid` but for start/end ranges that another thread ended."""
    payload: FloatArray
    """Numeric payload; NaN where there is none."""

    def __len__(self) -> int:
        return len(self.start_ns)


@dataclass(frozen=True, kw_only=True, eq=False)
class NvtxMarks:
    """Instant events, ordered by time."""

    time_ns: Int64Array
    name_id: Int32Array
    global_tid: Int64Array
    payload: FloatArray

    def __len__(self) -> int:
        return len(self.time_ns)


@dataclass(frozen=True, kw_only=True, eq=False)
class GpuOperations:
    """Kernels, copies, memsets and graph launches together, ordered by start. `bytes` is 0 where it means nothing."""

    kind: Int8Array
    """KERNEL, MEMCPY, MEMSET or GRAPH."""
    start_ns: Int64Array
    end_ns: Int64Array
    name_id: Int32Array
    """The kernel's demangled name; `NO_NAME` for the other kinds."""
    global_pid: Int64Array
    correlation_id: Int64Array
    """Joins to the API call of the same process; -1 where the trace holds none."""
    device_id: Int32Array
    stream_id: Int64Array
    bytes: Int64Array
    copy_kind: Int8Array
    """`schema.COPY_KINDS`; -1 for what is no copy."""
    src_kind: Int8Array
    """`schema.MEMORY_KINDS`; -1 where unknown."""
    dst_kind: Int8Array

    def __len__(self) -> int:
        return len(self.start_ns)

    @cached_property
    def by_process(self) -> dict[int, Int64Array]:
        """Rows of each process (by global pid, ascending), in order."""
        return rows_by_process(self.global_pid)


@dataclass(frozen=True, kw_only=True, eq=False)
class ApiCalls:
    """CUDA runtime and driver calls, ordered by start; backtrace rows (event class 67) are not among them."""

    start_ns: Int64Array
    end_ns: Int64Array
    name_id: Int32Array
    global_tid: Int64Array
    correlation_id: Int64Array

    def __len__(self) -> int:
        return len(self.start_ns)

    @cached_property
    def by_process(self) -> dict[int, Int64Array]:
        """Rows of each process (by global pid, ascending), in order."""
        return rows_by_process(self.global_tid)


@dataclass(frozen=True, kw_only=True, eq=False)
class Synchronizations:
    """CUPTI synchronisation records, ordered by start."""

    start_ns: Int64Array
    end_ns: Int64Array
    sync_type: Int8Array
    """`schema.SYNC_TYPES`."""
    global_pid: Int64Array
    correlation_id: Int64Array

    def __len__(self) -> int:
        return len(self.start_ns)


@dataclass(frozen=True, kw_only=True)
class Process:
    """One process that has events in the trace."""

    global_pid: int
    pid: int
    name: str
    rank: int
    """Position in the job; `NO_RANK` for a process that only started others (torchrun itself, say)."""
    source: int
    """Index of the file in `TraceInfo.sources` that holds it."""


@dataclass(frozen=True, kw_only=True)
class TraceInfo:
    """Where a trace comes from. Holds no environment, host or user names."""

    NOT_IN_DOCUMENT: ClassVar = {"sources": "paths, which whoever asked for the document gave"}

    sources: tuple[str, ...]
    """The files read, in order."""
    collector: str
    """`nsys`, `kineto` or `recorder`; `unknown` when the file does not say."""
    nsys_version: str | None
    """Version of nsys that wrote it; None when another collector did, or before 2022."""
    schema_version: str | None
    session_start_utc_ns: int | None
    """UTC of time 0, ns since 1970."""
    host_count: int
    """With more than one, compare durations across ranks and not absolute times: clocks of two machines differ."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Trace:
    """Everything the analysis looks at."""

    strings: Sequence[str]
    """Every name, once. May hold anything, control characters included: clean it before showing it."""
    ranges: NvtxRanges
    marks: NvtxMarks
    operations: GpuOperations
    api: ApiCalls
    syncs: Synchronizations
    processes: tuple[Process, ...]
    """Those with events, by rank, then by id."""
    info: TraceInfo
    warnings: tuple[str, ...]

    @property
    def ranks(self) -> tuple[int, ...]:
        """The ranks in the trace, ascending."""
        return tuple(sorted({process.rank for process in self.processes if process.rank != NO_RANK}))

    def rank_of(self, global_ids: Int64Array) -> Int32Array:
        """The rank of each process or thread id in `global_ids`; `NO_RANK` for processes that are none."""
        pids = np.array(sorted(p.global_pid for p in self.processes), dtype=np.int64)
        if not len(pids):
            return np.full(len(global_ids), NO_RANK, dtype=np.int32)
        rank_by_pid = {p.global_pid: p.rank for p in self.processes}
        ranks = np.array([rank_by_pid[int(pid)] for pid in pids], dtype=np.int32)
        wanted = global_ids & schema.GLOBAL_PID_MASK
        position = np.minimum(np.searchsorted(pids, wanted), len(pids) - 1)
        return np.where(pids[position] == wanted, ranks[position], NO_RANK).astype(np.int32)

    @property
    def first_ns(self) -> int:
        """Start of the earliest event; 0 for an empty trace."""
        starts = [int(times[0]) for times in self._starts() if len(times)]
        return min(starts, default=0)

    @property
    def last_ns(self) -> int:
        """End of the latest event; 0 for an empty trace."""
        parts = (self.ranges.end_ns, self.marks.time_ns, self.operations.end_ns, self.api.end_ns, self.syncs.end_ns)
        return max((int(times.max()) for times in parts if len(times)), default=0)

    def _starts(self) -> tuple[Int64Array, ...]:
        return (
            self.ranges.start_ns,
            self.marks.time_ns,
            self.operations.start_ns,
            self.api.start_ns,
            self.syncs.start_ns,
        )


def rows_by_process(global_ids: Int64Array) -> dict[int, Int64Array]:
    """Rows of each process, by its global pid, from a column of process or thread ids."""
    pids = global_ids & schema.GLOBAL_PID_MASK
    return {pid: np.flatnonzero(pids == pid) for pid in distinct_ids(pids)}


def distinct_ids(ids: Int64Array) -> list[int]:
    """The distinct ids, ascending. They are mostly few, and then taken out one by one sooner than sorted."""
    found: list[int] = []
    while len(ids) and len(found) < _FEW:
        found.append(int(ids[0]))
        ids = ids[ids != ids[0]]
    return sorted([*found, *np.unique(ids).tolist()])
