"""What a range costs: ns per probed call without a tool, and with the recorder.

Three columns: the bare call of an empty function, the same with its probe, and the difference, which is the cost of the
range. Every figure is the median of many short rounds, and the rounds of all rows alternate, so that a change of the
machine's speed meets all alike. Writing to SQLite happens between steps and is not in it; it has a line of its own.

    python benchmarks/probe_overhead.py [--rounds 200]
"""

from __future__ import annotations

import argparse
import os
import platform
import statistics
import tempfile
import time
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path

import nvtx

from harness.collectors.recorder import Recorder
from harness.worker.ranges import Ranges
from harness.worker.wrapping import wrap

CALLS = 1000
LIMIT_NONE_NS = 1000
LIMIT_RECORDER_NS = 2000


def empty() -> None:
    """The cheapest thing to probe."""


def with_annotate() -> None:
    """A library's own range, its attributes made anew at every use."""
    with nvtx.annotate("annotated", domain="library"):
        pass


def ns_per_call(function: Callable[[], None]) -> float:
    begin_ns = time.perf_counter_ns()
    for _ in range(CALLS):
        function()
    return (time.perf_counter_ns() - begin_ns) / CALLS


def measure(rounds: int) -> dict[str, float]:
    """Median ns per call of each row; `write` is ns per row that is written."""
    without_tool = wrap(empty, Ranges(), "probed")
    with tempfile.TemporaryDirectory() as folder:
        recorder = Recorder(Path(folder) / "rank0.sqlite", rank=0)
        recorder.install()
        rows = {
            "call": empty,
            "none": without_tool,
            "recorder": wrap(empty, Ranges(), "probed"),
            "annotate": with_annotate,
        }
        taken: dict[str, list[float]] = {name: [] for name in (*rows, "write")}
        for _ in range(rounds):
            for name, function in rows.items():
                taken[name].append(ns_per_call(function))
            begin_ns = time.perf_counter_ns()
            recorder.flush()
            taken["write"].append((time.perf_counter_ns() - begin_ns) / (2 * CALLS))
        recorder.uninstall()
        recorder.close()
    return {name: statistics.median(values) for name, values in taken.items()}


def cpu_model() -> str:
    """The processor's name, as Linux tells it."""
    for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.machine()


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--rounds", type=int, default=200)
    medians = measure(parser.parse_args().rounds)
    cores = len(os.sched_getaffinity(0))
    print(f"{cpu_model()}, {cores} cores, load {os.getloadavg()[0]:.1f}, "
          f"Python {platform.python_version()}, nvtx {version('nvtx')}")  # fmt: skip
    print(f"{'':28}{'ns per call':>12}{'ns per range':>14}")
    print(f"{'direct call':28}{medians['call']:>12.0f}")
    for name, label, limit in [
        ("none", "probe, no tool", LIMIT_NONE_NS),
        ("recorder", "probe, recorder", LIMIT_RECORDER_NS),
    ]:
        cost = medians[name] - medians["call"]
        verdict = "within" if cost <= limit else "ABOVE"
        print(f"{label:28}{medians[name]:>12.0f}{cost:>14.0f}   {verdict} {limit} ns")
    print(
        f"{'nvtx.annotate(…), recorder':28}{medians['annotate']:>12.0f}{medians['annotate'] - medians['call']:>14.0f}"
    )
    print(f"{'written between steps':28}{'':>12}{medians['write']:>14.0f}")


if __name__ == "__main__":
    main()
