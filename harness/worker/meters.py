"""Where the metrics of `harness.metrics` come from: what a rank reads about each of its steps."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import torch


class Meters:
    """The meters of one rank; `cuda` says whether its device is a GPU."""

    def __init__(self, *, cuda: bool) -> None:
        self._cuda = cuda

    def reset(self) -> None:
        """Forget the steps before, ahead of a step's batch."""
        if self._cuda:
            torch.cuda.reset_peak_memory_stats()

    def read(self) -> dict[str, float]:
        """Return the step's figures by metric, after its end; a metric that cannot be told here is left out.

        `peak_memory_bytes` is what was allocated on the device during the step, or on a CPU the resident set's
        high-water mark since the start. The processes that the rank has started, loader workers above all, count as
        well, at what they hold now; pages that they share with it count in each.
        """
        rss_bytes, peak_rss_bytes = resident_bytes(os.getpid())
        helpers_bytes = sum(resident_bytes(pid)[0] for pid in descendants(os.getpid()))
        return {
            "peak_memory_bytes": torch.cuda.max_memory_allocated() if self._cuda else peak_rss_bytes + helpers_bytes,
            "rss_bytes": rss_bytes + helpers_bytes,
        }


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
