"""Where the metrics of `harness.metrics` come from: what a rank reads about each of its steps."""

from __future__ import annotations

import ctypes
import os
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import torch


class _Heap(ctypes.Structure):
    """What glibc's `mallinfo2` returns."""

    _fields_ = tuple(
        (name, ctypes.c_size_t)
        for name in (
            "arena",
            "ordblks",
            "smblks",
            "hblks",
            "hblkhd",
            "usmblks",
            "fsmblks",
            "uordblks",
            "fordblks",
            "keepcost",
        )
    )


class Meters:
    """The meters of one rank; `cuda` says whether its device is a GPU."""

    def __init__(self, *, cuda: bool) -> None:
        self._cuda = cuda
        self._heap = _heap_reader()
        self.allocated_bytes: Callable[[], int] | None = _device_bytes if cuda else self._heap and self._heap_bytes
        """Reads what the rank has allocated at this moment, as the metric of that name; None where nothing tells it."""

    def reset(self) -> None:
        """Forget the steps before, ahead of a step's batch."""
        if self._cuda:
            torch.cuda.reset_peak_memory_stats()

    def read(self) -> dict[str, float]:
        """Return the step's figures by metric, after its end; a metric that cannot be told here is left out.

        `peak_memory_bytes` is what was allocated on the device during the step, or on a CPU the resident set's
        high-water mark since the start. The processes that the rank has started, loader workers above all, count as
        well, at what they hold now; pages that they share with it count in each. What is allocated is told by the
        device's allocator, or on a CPU, where an emulated device lies in the same memory, by malloc.
        """
        rss_bytes, peak_rss_bytes = resident_bytes(os.getpid())
        children_bytes = sum(resident_bytes(pid)[0] for pid in descendants(os.getpid()))
        return {
            "peak_memory_bytes": peak_rss_bytes + children_bytes,
            "rss_bytes": rss_bytes + children_bytes,
            "children_bytes": children_bytes,
            **(_device_figures() if self._cuda else self._heap_figures()),
        }

    def _heap_figures(self) -> dict[str, float]:
        if self._heap is None:
            return {}
        told = self._heap()
        return _allocator_figures(told.uordblks + told.hblkhd, told.arena + told.hblkhd)

    def _heap_bytes(self) -> int:
        assert self._heap is not None
        told = self._heap()
        return int(told.uordblks + told.hblkhd)


def _heap_reader() -> Callable[[], Any] | None:
    """Return a call that sums up malloc's heap without letting go of the interpreter; None where there is none."""
    read = getattr(ctypes.PyDLL(None), "mallinfo2", None)  # glibc has it from 2.33 on
    if read is not None:
        read.restype = _Heap
    return read


def _device_bytes() -> int:
    told = torch.cuda.memory_stats_as_nested_dict()  # flat it costs several times as much
    return int(told["allocated_bytes"]["all"]["current"]) if told else 0


def _device_figures() -> dict[str, float]:
    """Return what the caching allocator of the current GPU tells."""
    told = torch.cuda.memory_stats()
    figures = _allocator_figures(told["allocated_bytes.all.current"], told["reserved_bytes.all.current"])
    return {"peak_memory_bytes": told["allocated_bytes.all.peak"], **figures}


def _allocator_figures(allocated: float, reserved: float) -> dict[str, float]:
    return {"allocated_bytes": allocated, "reserved_bytes": reserved, "fragmented_bytes": reserved - allocated}


def resident_bytes(pid: int) -> tuple[int, int]:
    """Return a process' resident set and its largest so far; zeros for one that has ended.

    Not `getrusage`: that counts the launcher's, too.
    """
    found = {"VmRSS": 0, "VmHWM": 0}
    with suppress(OSError):
        for line in Path(f"/proc/{pid}/status").read_text(encoding="ascii", errors="replace").splitlines():
            key, _, value = line.partition(":")
            if key in found:
                found[key] = int(value.split()[0]) * 1024
    return found["VmRSS"], found["VmHWM"]


def descendants(pid: int) -> Iterator[int]:
    """Yield the processes that a process has started, and those that they have."""
    with suppress(OSError):
        for task in Path(f"/proc/{pid}/task").iterdir():
            with suppress(OSError):
                for child in (task / "children").read_text().split():
                    yield int(child)
                    yield from descendants(int(child))
