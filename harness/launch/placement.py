"""Which processor cores the ranks of a launch keep to, so that both sides of a duel step on the same ones.

Sides that step in turn never run at once, yet the scheduler gives each a core of its own, and cores are not alike: the
other hardware thread of one is busy while that of another sleeps. Such luck lasts for seconds, meets one side only, and
looks like a difference. On the same cores it meets both, and cancels.

A side that computes on more cores than its ranks would get (loader workers that make their items, a busy thread) is
left alone: bound, it would be slower than anybody sees it.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Collection, Iterable, Sequence
from pathlib import Path
from typing import Final

Placement = tuple[tuple[int, ...], ...]
"""Core numbers by rank."""
_TOLERATED: Final = 1.1
"""Cores in use by cores to get: threads that pass on messages take up to a tenth of one beside a busy rank."""


_CUTIME: Final = 13
"""In `/proc/PID/stat` behind the name: user time of ended children; their system time follows (proc(5))."""
_TICK_NS: Final = 1_000_000_000 // os.sysconf("SC_CLK_TCK")


def place_ranks(ranks: int, threads: int, cores: Collection[int]) -> Placement | None:
    """Give each rank `threads` of the `cores`, from the last one down; None where there are not enough for all.

    The first core stays free as long as it can: kernels like to put their interrupts there.
    """
    if ranks * threads > len(cores):
        return None
    last = sorted(cores)[-ranks * threads :]
    return tuple(tuple(last[rank * threads : (rank + 1) * threads]) for rank in range(ranks))


def fits(placement: Placement, cores_used: float) -> bool:
    """Whether processes that compute on `cores_used` cores at once, on average, do not lose by the placement."""
    return cores_used <= _TOLERATED * sum(map(len, placement))


def processor_ns(pids: Iterable[int]) -> int:
    """Return the processor time of all threads of these processes, and of children that they have seen end.

    What has ended itself counts with its parent: loader workers that are made and ended within a step. That part is
    told in ticks of the kernel, of 10 ms mostly.
    """
    total = 0
    for pid in pids:
        for schedstat in Path(f"/proc/{pid}/task").glob("*/schedstat"):
            with contextlib.suppress(OSError):
                total += int(schedstat.read_bytes().split()[0])
        with contextlib.suppress(OSError):
            fields = Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()
            total += (int(fields[_CUTIME]) + int(fields[_CUTIME + 1])) * _TICK_NS
    return total


def unplaced(pids: Sequence[int]) -> bool:
    """Whether these processes may run wherever this one may: nobody has placed them yet."""
    try:
        return all(os.sched_getaffinity(pid) == os.sched_getaffinity(0) for pid in pids)
    except ProcessLookupError:
        return False


def keep_to(pids: Sequence[int], placement: Sequence[Collection[int]]) -> None:
    """Bind every thread of each rank, by `pids`, to its cores. What they start inherits that; see `let_go`."""
    for pid, cores in zip(pids, placement, strict=True):
        for thread in Path(f"/proc/{pid}/task").glob("*"):
            with contextlib.suppress(ProcessLookupError):
                os.sched_setaffinity(int(thread.name), cores)


def let_go(pids: Iterable[int], placement: Placement) -> None:
    """Let processes run wherever this one may that have inherited a rank's cores: they work beside it.

    Started before the ranks were bound they would do so, too. What an engine has bound itself is left alone.
    """
    everywhere = os.sched_getaffinity(0)
    inherited = [set(cores) for cores in placement]
    for pid in pids:
        for thread in Path(f"/proc/{pid}/task").glob("*"):
            with contextlib.suppress(ProcessLookupError):
                if os.sched_getaffinity(int(thread.name)) in inherited:
                    os.sched_setaffinity(int(thread.name), everywhere)
