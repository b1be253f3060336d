"""Joins GPU operations to the API calls that launched them, and these calls to the ranges around them.

An operation was launched by the API call of *its process* with its correlation id: ids repeat between processes, and
backtrace rows, which repeat them within one, are no API calls (the reader leaves them out). Of the ranges around a call
only the tightest on each thread is looked up; `harness.trace.projection` says what follows from it.

In comments, `operations` and `calls` are the numbers of each; `events` are the operations with a launch and the
synchronising calls together; `pairs` are (range, event).
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

import numpy as np

from harness.trace import naming, schema
from harness.trace.model import BoolArray, Int64Array, NvtxRanges, Trace
from harness.trace.nesting import Nesting, RangeFinder
from harness.trace.paths import ROOT

NONE: Final = -1
_SYNCHRONIZES: Final = re.compile(r"^cu(?:da)?(?:Device|Stream|Event|Ctx|Context|Thread)Synchronize$")


@dataclass(frozen=True, kw_only=True, eq=False)
class Links:
    """Which ranges launched what, by both rules."""

    call: Int64Array
    """Per operation: row of the API call that launched it; NONE where the trace holds none."""
    sync_calls: Int64Array
    """Rows of the API calls that synchronise: their thread waits for the GPU."""
    range_row: Int64Array
    """Per pair: the tightest placed range on one thread around the call (its ancestors contain the call too), or a
    detached range around it."""
    event: Int64Array
    """Per pair: row of the operation; from `len(operations)` on, position in `sync_calls`."""
    same_thread: BoolArray
    """Per pair: whether it is the calling thread's range."""


def link(trace: Trace, nesting: Nesting) -> Links:
    """Find the launching call of every operation and the ranges around every such call."""
    call = launching_calls(trace)
    sync_calls = _synchronizing_calls(trace)
    launched = np.flatnonzero(call != NONE)
    events = np.concatenate((launched, len(call) + np.arange(len(sync_calls))))  # (events,) as in `Links.event`
    event_call = np.concatenate((call[launched], sync_calls))  # (events,) row of the call
    tid, start, end = (column[event_call] for column in (trace.api.global_tid, trace.api.start_ns, trace.api.end_ns))
    finder = RangeFinder(trace.ranges, nesting)
    parts = [
        _Pairs.of(finder.around(tid, start, end), events, same_thread=True),
        _detached_pairs(trace.ranges, nesting, events, tid, start, end),
    ]
    # By the process rule: the same search on each other thread of the process that has ranges.
    threads = np.unique(trace.ranges.global_tid[~nesting.detached])
    pids = tid & schema.GLOBAL_PID_MASK
    for pid in np.unique(threads & schema.GLOBAL_PID_MASK).tolist():
        mine = np.flatnonzero(pids == pid)
        for other in threads[threads & schema.GLOBAL_PID_MASK == pid].tolist():
            asked = mine[tid[mine] != other]
            found = finder.around(other, start[asked], end[asked])
            parts.append(_Pairs.of(found, events[asked], same_thread=False))
    return Links(
        call=call,
        sync_calls=sync_calls,
        range_row=np.concatenate([part.range_row for part in parts]),
        event=np.concatenate([part.event for part in parts]),
        same_thread=np.concatenate([part.same_thread for part in parts]),
    )


def launching_calls(trace: Trace) -> Int64Array:
    """Per operation: row of the API call of its process with its correlation id; NONE for none."""
    operations, api = trace.operations, trace.api
    found = np.full(len(operations), NONE, dtype=np.int64)
    for pid, mine in operations.by_process.items():
        calls = api.by_process.get(pid, mine[:0])
        wanted, ids = operations.correlation_id[mine], api.correlation_id[calls]
        calls, ids = calls[ids >= 0], ids[ids >= 0]
        if len(calls):
            found[mine] = np.where(wanted >= 0, _matched(wanted, ids, calls), NONE)
    return found


def _matched(wanted: Int64Array, ids: Int64Array, rows: Int64Array) -> Int64Array:
    """The first of `rows` whose id is wanted; NONE for none. Ids count up in a process, so a table serves mostly."""
    low, high = int(ids.min()), int(ids.max())
    if high - low <= 8 * len(ids) + 1_000_000:
        table = np.full(high - low + 1, NONE, dtype=np.int64)  # (ids,): which call has the id `low + i`
        table[ids[::-1] - low] = rows[::-1]
        known = (wanted >= low) & (wanted <= high)
        return np.where(known, table[np.where(known, wanted - low, 0)], NONE)
    order = np.argsort(ids, kind="stable")
    position = np.minimum(np.searchsorted(ids[order], wanted), len(ids) - 1)
    return np.where(ids[order][position] == wanted, rows[order][position], NONE)


def _synchronizing_calls(trace: Trace) -> Int64Array:
    used = naming.used_names(trace.strings, trace.api.name_id)
    chosen = [name_id for name_id, name in used.items() if _SYNCHRONIZES.match(naming.api_name(name))]
    return np.flatnonzero(np.isin(trace.api.name_id, chosen))


@dataclass(frozen=True, kw_only=True, eq=False)
class _Pairs:
    range_row: Int64Array
    event: Int64Array
    same_thread: BoolArray

    @classmethod
    def of(cls, found: Int64Array, events: Int64Array, *, same_thread: bool) -> _Pairs:
        inside = found != ROOT
        rows = found[inside]
        return cls(range_row=rows, event=events[inside], same_thread=np.full(len(rows), same_thread))


def _detached_pairs(
    ranges: NvtxRanges, nesting: Nesting, events: Int64Array, tid: Int64Array, start: Int64Array, end: Int64Array
) -> _Pairs:
    """Every (detached range, event of its process inside it)."""
    parts = [_Pairs.of(np.empty(0, dtype=np.int64), np.empty(0, dtype=np.int64), same_thread=False)]
    detached = np.flatnonzero(nesting.detached)
    pids, event_pids = ranges.global_tid[detached] & schema.GLOBAL_PID_MASK, tid & schema.GLOBAL_PID_MASK
    for pid in np.unique(pids).tolist():
        rows = detached[pids == pid]
        mine = np.flatnonzero(event_pids == pid)
        mine = mine[np.argsort(start[mine], kind="stable")]
        # Of each range, the stretch of events that start in it; then all stretches one after the other.
        low = np.searchsorted(start[mine], ranges.start_ns[rows], side="left")
        high = np.searchsorted(start[mine], ranges.end_ns[rows], side="right")
        sizes = high - low  # (detached ranges of the process,)
        row = np.repeat(rows, sizes)  # (pairs,)
        event = mine[np.arange(int(sizes.sum())) - np.repeat(np.cumsum(sizes) - sizes - low, sizes)]
        inside = end[event] <= ranges.end_ns[row]
        row, event = row[inside], event[inside]
        parts.append(_Pairs(range_row=row, event=events[event], same_thread=tid[event] == ranges.global_tid[row]))
    return _Pairs(
        range_row=np.concatenate([part.range_row for part in parts]),
        event=np.concatenate([part.event for part in parts]),
        same_thread=np.concatenate([part.same_thread for part in parts]),
    )
