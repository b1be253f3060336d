"""Host calls that make the GPU wait: how long it stood idle because of them.

A synchronising call is no waste while the GPU works: the host had to wait anyway. It costs what follows, because the
host could not launch ahead: the GPU runs dry and idles until the next launch arrives. So a call's *stall* is the idle
time of its process's GPU from the call's start to the next GPU operation. It stops `MAX_RESUME_NS` after the call
returned: launching again takes tens of microseconds, and a host that takes longer is busy with something else, which is
not this call's doing. Stalls are therefore rather too small than too large.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import Final

import numpy as np

from harness.analysis.capture import Capture
from harness.analysis.intervals import Intervals, intersection, union
from harness.trace import schema
from harness.trace.model import BoolArray, Int64Array

MAX_RESUME_NS: Final = 1_000_000


@dataclass(frozen=True, kw_only=True, eq=False)
class Stalls:
    """What a set of calls cost. One element a call."""

    calls: Int64Array
    """Indexes into `Trace.api`."""
    blocked_ns: Int64Array
    """Duration of the call on the host."""
    idle_ns: Int64Array
    """GPU idle time of its stall. Two calls can share an idle gap."""
    total_idle_ns: int
    """Length of the union of all stalls: each ns once."""

    def __len__(self) -> int:
        return len(self.calls)


def calls_named(capture: Capture, names: Collection[str]) -> BoolArray:
    """Per API call: whether it is one of `names`, in whatever version."""
    ids = [name_id for name_id, name in capture.api_names.items() if name in names]
    return np.isin(capture.trace.api.name_id, np.array(ids, dtype=np.int64))


def ends_its_step(capture: Capture, calls: Int64Array) -> BoolArray:
    """Of some API calls in steps: whether nothing was launched after it in its step, so that it only waits for the
    step's end."""
    if not len(calls):
        return np.zeros(0, dtype=np.bool_)
    ended: BoolArray = capture.trace.api.start_ns[calls] > capture.last_launch_ns[capture.api_row[calls]]
    return ended


def stalls(capture: Capture, calls: Int64Array) -> Stalls:
    """Measure the stalls of `calls` (indexes of API calls in kept steps). Processes without GPU work have none."""
    api = capture.trace.api
    idle_ns = np.zeros(len(calls), dtype=np.int64)
    measured = np.zeros(len(calls), dtype=np.bool_)
    total = 0
    pids = api.global_tid[calls] & schema.GLOBAL_PID_MASK
    for pid in capture.gpu_processes:
        idle = capture.gpu_idle[pid]
        own = pids == pid
        if not own.any():
            continue
        measured |= own
        start, end = api.start_ns[calls[own]], _stall_end(capture, idle, calls[own])
        idle_ns[own] = idle.covered_in(start, end)
        total += intersection(idle, union(start, end)).total_ns
    blocked = (api.end_ns - api.start_ns)[calls]
    return Stalls(
        calls=calls[measured], blocked_ns=blocked[measured], idle_ns=idle_ns[measured], total_idle_ns=int(total)
    )


def _stall_end(capture: Capture, idle: Intervals, calls: Int64Array) -> Int64Array:
    end = capture.trace.api.end_ns[calls]
    if not len(idle):
        return end
    gap = np.searchsorted(idle.start_ns, end, side="right") - 1
    idle_at_end = (gap >= 0) & (idle.end_ns[np.maximum(gap, 0)] > end)
    resumed = np.minimum(idle.end_ns[np.maximum(gap, 0)], end + MAX_RESUME_NS)
    return np.where(idle_at_end, resumed, end)
