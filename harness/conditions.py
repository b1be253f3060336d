"""How busy the machine is while it measures: load, time stolen by other guests, clocks, throttling.

Snapshots are cheap (a few small files; the GPU is asked only where `nvidia-smi` exists) and are taken around each
launch pair, never inside a step. What a machine does not tell is None, never 0. Linux only; `root` stands in for `/`.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Final

ROOT: Final = Path("/")
NVIDIA_SMI_TIMEOUT_S: Final = 10
_STAT_FIELDS: Final = ("user", "nice", "system", "idle", "iowait", "irq", "softirq", "steal")


@dataclass(frozen=True, kw_only=True)
class Snapshot:
    """Counters at one moment. Times are kernel ticks summed over processors since boot."""

    load_average: float
    total_ticks: int | None
    idle_ticks: int | None
    steal_ticks: int | None
    clock_mhz: float | None
    """Mean of the processors' current clocks."""
    throttled: int | None
    """Times the processor or the container's quota has held work back since boot."""
    gpu_clock_mhz: float | None


@dataclass(frozen=True, kw_only=True)
class Conditions:
    """What happened between two snapshots. Shares are of all processors' time."""

    load_average: float
    busy_share: float | None
    steal_share: float | None
    clock_mhz: float | None
    throttled: int | None
    gpu_clock_mhz: float | None


def snapshot(root: Path = ROOT) -> Snapshot:
    """Read the counters now."""
    ticks = _processor_ticks(root)
    total = sum(ticks.values()) if ticks else None
    return Snapshot(
        load_average=_load_average(root),
        total_ticks=total,
        idle_ticks=ticks["idle"] + ticks["iowait"] if ticks else None,
        steal_ticks=ticks["steal"] if ticks else None,
        clock_mhz=clock_mhz(root),
        throttled=throttle_count(root),
        gpu_clock_mhz=_gpu_clock_mhz() if root == ROOT else None,
    )


def between(before: Snapshot, after: Snapshot) -> Conditions:
    """Return what happened from `before` to `after`; clocks are the mean of both."""
    total = _minus(after.total_ticks, before.total_ticks)
    idle, steal = _minus(after.idle_ticks, before.idle_ticks), _minus(after.steal_ticks, before.steal_ticks)
    return Conditions(
        load_average=max(before.load_average, after.load_average),
        busy_share=None if not total or idle is None else 1 - idle / total,
        steal_share=None if not total or steal is None else steal / total,
        clock_mhz=_mean(before.clock_mhz, after.clock_mhz),
        throttled=_minus(after.throttled, before.throttled),
        gpu_clock_mhz=_mean(before.gpu_clock_mhz, after.gpu_clock_mhz),
    )


def clock_mhz(root: Path = ROOT) -> float | None:
    """Return the mean current clock of the processors; None where neither cpufreq nor cpuinfo tells it."""
    current = (root / "sys/devices/system/cpu").glob("cpu[0-9]*/cpufreq/scaling_cur_freq")
    clocks = [int(text) / 1000 for text in map(read_text, current) if text and text.isdigit()]
    if not clocks:
        lines = (read_text(root / "proc/cpuinfo") or "").splitlines()
        clocks = [float(line.partition(":")[2]) for line in lines if line.startswith("cpu MHz")]
    return sum(clocks) / len(clocks) if clocks else None


def throttle_count(root: Path = ROOT) -> int | None:
    """Return how often the processors (heat) and this container (quota) were throttled; None if uncounted."""
    heat = (root / "sys/devices/system/cpu").glob("cpu[0-9]*/thermal_throttle/core_throttle_count")
    counts = [int(text) for text in map(read_text, heat) if text and text.isdigit()]
    for line in (read_text(root / "sys/fs/cgroup/cpu.stat") or "").splitlines():
        key, _, value = line.partition(" ")
        if key == "nr_throttled" and value.isdigit():
            counts.append(int(value))
    return sum(counts) if counts else None


def read_text(path: Path) -> str | None:
    """Return a small file's text, stripped; None where it is absent or may not be read."""
    try:
        return path.read_text(encoding="utf-8", errors="replace").strip()
    except OSError:
        return None


def ask_nvidia_smi(query: str) -> list[list[str]]:
    """Return the rows that `nvidia-smi --query-…` prints, split into cells; none where it is absent or fails."""
    if shutil.which("nvidia-smi") is None:
        return []
    command = ["nvidia-smi", query, "--format=csv,noheader,nounits"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=NVIDIA_SMI_TIMEOUT_S, check=True)
    except (OSError, subprocess.SubprocessError):
        return []
    return [[cell.strip() for cell in line.split(",")] for line in done.stdout.splitlines() if line.strip()]


def _processor_ticks(root: Path) -> dict[str, int] | None:
    first = (read_text(root / "proc/stat") or "").partition("\n")[0].split()
    if len(first) <= len(_STAT_FIELDS) or first[0] != "cpu":
        return None
    return dict(zip(_STAT_FIELDS, map(int, first[1 : len(_STAT_FIELDS) + 1]), strict=True))


def _load_average(root: Path) -> float:
    if root == ROOT:
        return os.getloadavg()[0]
    return float((read_text(root / "proc/loadavg") or "0").split()[0])


def _gpu_clock_mhz() -> float | None:
    rows = ask_nvidia_smi("--query-gpu=clocks.sm")
    clocks = [float(row[0]) for row in rows if row[0].isdigit()]
    return sum(clocks) / len(clocks) if clocks else None


def _minus(after: int | None, before: int | None) -> int | None:
    return None if after is None or before is None else after - before


def _mean(first: float | None, second: float | None) -> float | None:
    known = [value for value in (first, second) if value is not None]
    return sum(known) / len(known) if known else None
