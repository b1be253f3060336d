"""What the machine tells, read from files laid out as the kernel does, and what the doctor makes of it."""

from __future__ import annotations

import os
import sys
from contextlib import ExitStack
from pathlib import Path

import pytest
from child_process import child

from harness.conditions import Conditions, between, snapshot
from harness.doctor import (
    cores_for,
    disturbances,
    examine,
    governor,
    load,
    same_work_ns,
    speed,
    steal,
    throttling,
    turbo,
)


@pytest.fixture
def machine(tmp_path: Path) -> Path:
    """Two processors at 2 and 3 GHz, 100 ticks busy of 1000, 50 stolen."""
    files = {
        "proc/stat": "cpu  40 0 10 880 20 0 0 50 0 0\ncpu0 1 1 1 1 1 1 1 1 0 0\n",
        "proc/loadavg": "0.25 0.10 0.05 1/100 4242",
        "sys/devices/system/cpu/cpu0/cpufreq/scaling_cur_freq": "2000000",
        "sys/devices/system/cpu/cpu1/cpufreq/scaling_cur_freq": "3000000",
        "sys/devices/system/cpu/cpu0/cpufreq/scaling_governor": "powersave",
        "sys/devices/system/cpu/cpu1/cpufreq/scaling_governor": "performance",
        "sys/devices/system/cpu/cpu0/thermal_throttle/core_throttle_count": "3",
        "sys/fs/cgroup/cpu.stat": "usage_usec 5\nnr_throttled 4\n",
        "sys/devices/system/cpu/intel_pstate/no_turbo": "0",
    }
    for name, text in files.items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return tmp_path


def test_shares_are_of_the_time_between_two_snapshots(machine: Path) -> None:
    before = snapshot(machine)
    (machine / "proc/stat").write_text("cpu  100 0 30 900 40 0 0 80 0 0\n")
    (machine / "sys/fs/cgroup/cpu.stat").write_text("nr_throttled 9\n")
    found = between(before, snapshot(machine))
    # 1150 - 1000 ticks passed: 40 idle or waiting, 30 stolen.
    assert found.busy_share == pytest.approx(110 / 150)
    assert found.steal_share == pytest.approx(30 / 150)
    assert found.throttled == 5
    assert (found.clock_mhz, found.load_average) == (2500, 0.25)


def test_what_a_machine_does_not_tell_is_unknown(tmp_path: Path) -> None:
    found = between(snapshot(tmp_path), snapshot(tmp_path))
    assert (found.busy_share, found.steal_share, found.clock_mhz, found.throttled) == (None, None, None, None)
    assert [check.level for check in (governor(tmp_path), turbo(tmp_path), throttling(found, None))] == ["unknown"] * 3
    assert steal(found).level == "unknown"
    assert load(found, []).level == "unknown"


def test_each_fault_is_named_with_advice(machine: Path) -> None:
    busy = Conditions(
        load_average=3.0, busy_share=0.6, steal_share=0.05, clock_mhz=None, throttled=2, gpu_clock_mhz=None
    )
    checks = [load(busy, ["stress 7 at 99%"]), steal(busy), throttling(busy, 9), governor(machine), turbo(machine)]
    assert [check.level for check in checks] == ["warning"] * 5
    assert all(check.advice for check in checks)
    assert "stress 7" in checks[0].seen
    assert "powersave on 1" in checks[3].seen
    assert cores_for(4, 2).level == "warning"


def test_a_quiet_machine_is_fine(machine: Path) -> None:
    quiet = Conditions(
        load_average=0.1, busy_share=0.02, steal_share=0.0, clock_mhz=None, throttled=0, gpu_clock_mhz=None
    )
    (machine / "sys/devices/system/cpu/cpu0/cpufreq/scaling_governor").write_text("performance")
    (machine / "sys/devices/system/cpu/intel_pstate/no_turbo").write_text("1")
    checks = [load(quiet, []), steal(quiet), throttling(quiet, 9), governor(machine), turbo(machine), cores_for(2, 2)]
    assert [check.level for check in checks] == ["fine"] * 6


def test_cores_that_change_their_speed_are_told_from_hiccups() -> None:
    changing = speed([1_000_000] * 50 + [1_900_000] * 50)
    assert (changing.level, changing.topic) == ("warning", "speed")
    assert "1.00 to 1.90 ms" in changing.seen
    assert speed([1_000_000] * 95 + [30_000_000] * 5).level == "fine"
    took = same_work_ns(0.05)
    assert 0 < sum(took) < 5e9
    assert min(took) > 0


def test_a_disturbance_is_seen_in_a_short_look() -> None:
    with ExitStack() as spinners:
        for _ in os.sched_getaffinity(0):
            spinners.enter_context(child([sys.executable, "-c", "while True: pass"]))
        topics = [(remark.topic, remark.level) for remark in disturbances()]
    assert ("load", "warning") in topics
    assert {level for _, level in topics} == {"warning"}


def test_a_busy_process_is_named() -> None:
    with child([sys.executable, "-c", "while True: pass"]):
        (seen,) = [check.seen for check in examine(1, sample_s=0.5) if check.topic == "load"]
    busy = float(seen.partition(" %")[0].rpartition(" ")[2])
    assert busy >= 100 / (os.cpu_count() or 1) / 4
    if "(" in seen:  # another process may have taken the processor from it, on a machine that is busier still
        assert " at " in seen
