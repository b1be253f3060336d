"""Where the metrics of `harness.metrics` come from: what a rank reads about each of its steps."""

from __future__ import annotations

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
        high-water mark since the start.
        """
        rss_bytes, peak_rss_bytes = resident_bytes()
        return {
            "peak_memory_bytes": torch.cuda.max_memory_allocated() if self._cuda else peak_rss_bytes,
            "rss_bytes": rss_bytes,
        }


def resident_bytes() -> tuple[int, int]:
    """Return this process' resident set and its largest so far. Not `getrusage`: that counts the launcher's, too."""
    found = {"VmRSS": 0, "VmHWM": 0}
    for line in Path("/proc/self/status").read_text(encoding="ascii", errors="replace").splitlines():
        key, _, value = line.partition(":")
        if key in found:
            found[key] = int(value.split()[0]) * 1024
    return found["VmRSS"], found["VmHWM"]
