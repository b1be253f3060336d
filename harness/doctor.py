"""What is wrong with this machine for measuring. Each check says what it saw, and what to do where that is not fine.

`examine` looks for a second, since load averages lag behind by a minute. What the machine does not tell is said to be
unknown, never fine. `root` stands in for `/`.
"""

from __future__ import annotations

import os
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal

import psutil

from harness.conditions import ROOT, Conditions, ask_nvidia_smi, between, clock_mhz, read_text, snapshot
from harness.units import percent

SAMPLE_S: Final = 1.0
BRIEF_SAMPLE_S: Final = 0.5
BUSY_SHARE: Final = 0.1
"""Of all processors' time, spent on anything before we start anything."""
STEAL_SHARE: Final = 0.01
SPEED_RATIO: Final = 1.1
_WORK: Final = 50_000
_GPU_SLOWDOWNS: Final = ("hw_slowdown", "hw_thermal_slowdown", "hw_power_brake_slowdown", "sw_thermal_slowdown")
_BUSIEST: Final = 3

Level = Literal["fine", "warning", "unknown"]


@dataclass(frozen=True, kw_only=True)
class Remark:
    """One check: `seen`, and `advice` where the level is `warning`."""

    topic: str
    level: Level
    seen: str
    advice: str = ""


def examine(ranks: int, *, root: Path = ROOT, sample_s: float = SAMPLE_S) -> list[Remark]:
    """Return one remark a check, for measuring launches of `ranks` processes on this machine."""
    before = snapshot(root)
    busy = _busiest(sample_s)
    conditions = between(before, snapshot(root))
    cores = len(os.sched_getaffinity(0))
    remarks = [
        load(conditions, busy),
        steal(conditions),
        cores_for(ranks, cores),
        governor(root),
        turbo(root),
        throttling(conditions, before.throttled),
    ]
    return [*remarks, speed(same_work_ns(sample_s)), *gpu_remarks()] if root == ROOT else remarks


def disturbances(*, sample_s: float = BRIEF_SAMPLE_S) -> list[Remark]:
    """Return what takes the processors from us right now, as warnings; a short look before a launch."""
    before = snapshot()
    busy = _busiest(sample_s)
    conditions = between(before, snapshot())
    return [remark for remark in (load(conditions, busy), steal(conditions)) if remark.level == "warning"]


def load(conditions: Conditions, busiest: Sequence[str]) -> Remark:
    """Whether other processes want the processors."""
    if conditions.busy_share is None:
        return Remark(topic="load", level="unknown", seen=f"load average {conditions.load_average:.2f}")
    seen = f"processors {percent(conditions.busy_share)} busy, load average {conditions.load_average:.2f}"
    if conditions.busy_share <= BUSY_SHARE:
        return Remark(topic="load", level="fine", seen=seen)
    names = f" ({', '.join(busiest)})" if busiest else ""
    return Remark(topic="load", level="warning", seen=seen + names, advice="stop what else runs, or measure later")


def steal(conditions: Conditions) -> Remark:
    """Whether the hypervisor gives our time to other guests."""
    if conditions.steal_share is None:
        return Remark(topic="steal", level="unknown", seen="the kernel does not tell stolen time")
    seen = f"{percent(conditions.steal_share)} of the time is stolen by other guests"
    if conditions.steal_share <= STEAL_SHARE:
        return Remark(topic="steal", level="fine", seen=seen)
    return Remark(topic="steal", level="warning", seen=seen, advice="use a dedicated machine, or more launch pairs")


def cores_for(ranks: int, cores: int) -> Remark:
    """Whether every rank gets a core of its own."""
    seen = f"{cores} usable cores for {ranks} rank{'s' if ranks > 1 else ''} a side (one side runs at a time)"
    if cores >= ranks:
        return Remark(topic="cores", level="fine", seen=seen)
    return Remark(topic="cores", level="warning", seen=seen, advice=f"use --ranks {cores}, or a larger machine")


def same_work_ns(sample_s: float) -> list[int]:
    """Return how long one and the same piece of work took, again and again during `sample_s`: about a millisecond."""
    took: list[int] = []
    ends_ns = time.perf_counter_ns() + int(sample_s * 1e9)
    while not took or time.perf_counter_ns() < ends_ns:
        began_ns = time.perf_counter_ns()
        sum(range(_WORK))
        took.append(time.perf_counter_ns() - began_ns)
    return took


def speed(took_ns: Sequence[int]) -> Remark:
    """Whether a core always runs at the same speed: what shares its other hardware thread is in no other figure."""
    tenth, nearly_all = (sorted(took_ns)[int(share * len(took_ns))] for share in (0.1, 0.9))
    seen = f"the same work took {tenth / 1e6:.2f} to {nearly_all / 1e6:.2f} ms (middle 80 % of {len(took_ns)} times)"
    if nearly_all <= SPEED_RATIO * tenth:
        return Remark(topic="speed", level="fine", seen=seen)
    advice = "a neighbour on the same core, or a changing clock: expect more launch pairs, or use a dedicated machine"
    return Remark(topic="speed", level="warning", seen=seen, advice=advice)


def governor(root: Path = ROOT) -> Remark:
    """Whether the kernel changes the clock with the load."""
    files = (root / "sys/devices/system/cpu").glob("cpu[0-9]*/cpufreq/scaling_governor")
    found = Counter(text for text in map(read_text, files) if text)
    if not found:
        return Remark(topic="governor", level="unknown", seen="no cpufreq: the clock is not ours to set")
    seen = ", ".join(f"{name} on {count} processors" for name, count in sorted(found.items()))
    if set(found) == {"performance"}:
        return Remark(topic="governor", level="fine", seen=seen)
    return Remark(topic="governor", level="warning", seen=seen, advice="sudo cpupower frequency-set -g performance")


def turbo(root: Path = ROOT) -> Remark:
    """Whether the clock depends on heat and on how many cores are busy."""
    intel = read_text(root / "sys/devices/system/cpu/intel_pstate/no_turbo")
    boost = read_text(root / "sys/devices/system/cpu/cpufreq/boost")
    clock = clock_mhz(root)
    now = "" if clock is None else f", now at {clock:,.0f} MHz"
    if intel is None and boost is None:
        return Remark(topic="turbo", level="unknown", seen=f"the kernel does not tell whether it is on{now}")
    if intel == "1" or boost == "0":
        return Remark(topic="turbo", level="fine", seen=f"off{now}")
    switch = "intel_pstate/no_turbo (1)" if intel is not None else "cpufreq/boost (0)"
    advice = f"lockstep cancels most of it; for less noise write to /sys/devices/system/cpu/{switch}"
    return Remark(topic="turbo", level="warning", seen=f"on{now}", advice=advice)


def throttling(conditions: Conditions, since_boot: int | None) -> Remark:
    """Whether heat or a container's quota has held the processors back."""
    if since_boot is None:
        return Remark(topic="throttling", level="unknown", seen="nothing counts it here")
    seen = f"{since_boot} times since boot, {conditions.throttled or 0} just now"
    if not conditions.throttled:
        return Remark(topic="throttling", level="fine", seen=seen)
    return Remark(topic="throttling", level="warning", seen=seen, advice="raise the container's quota, or cool down")


def gpu_remarks() -> list[Remark]:
    """Other processes on the GPUs, and GPUs that are slowed down; none on a machine without `nvidia-smi`."""
    if not ask_nvidia_smi("--query-gpu=name"):
        return []
    others = ask_nvidia_smi("--query-compute-apps=pid,used_memory")
    remarks = [Remark(topic="GPU processes", level="fine", seen="none")]
    if others:
        pids = ", ".join(row[0] for row in others)
        remarks = [Remark(topic="GPU processes", level="warning", seen=f"pids {pids}", advice="end them, or wait")]
    for cause in _GPU_SLOWDOWNS:
        rows = ask_nvidia_smi(f"--query-gpu=clocks_throttle_reasons.{cause}")
        if any(row[0] == "Active" for row in rows):
            advice = "check cooling and power: nvidia-smi -q -d PERFORMANCE"
            remarks.append(Remark(topic="GPU clocks", level="warning", seen=f"{cause} is active", advice=advice))
    return remarks


def _busiest(sample_s: float) -> list[str]:
    """Names of the processes that used most processor time during the next `sample_s`, ours left out."""
    first = {process.pid: _cpu_s(process) for process in psutil.process_iter()}
    time.sleep(sample_s)
    used: list[tuple[float, str]] = []
    for process in psutil.process_iter():
        spent = _cpu_s(process) - first.get(process.pid, 0.0)
        if process.pid != os.getpid() and spent > 0.1 * sample_s:
            try:
                used.append((spent, f"{process.name()} {process.pid} at {percent(spent / sample_s)}"))
            except psutil.Error:
                continue
    return [text for _, text in sorted(used, reverse=True)[:_BUSIEST]]


def _cpu_s(process: psutil.Process) -> float:
    try:
        times = process.cpu_times()
    except psutil.Error:
        return 0.0  # it ended meanwhile
    return float(times.user + times.system)
