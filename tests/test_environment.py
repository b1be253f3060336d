"""The environment tells machines and software apart, and gives nobody away."""

from __future__ import annotations

import dataclasses
import getpass
import json
import os
import platform
import socket
import stat
import sys
from pathlib import Path

import psutil

from harness.environment import Gpu, cpu_model, installed_versions, read_environment, read_gpus


def test_agrees_with_other_sources() -> None:
    environment = read_environment()
    assert environment.logical_cores == psutil.cpu_count()
    with Path("/proc/meminfo").open() as lines:
        assert environment.memory_bytes == int(next(lines).split()[1]) * 1024
    assert environment.python == ".".join(map(str, sys.version_info[:3]))
    assert environment.kernel == " ".join(os.uname()[i] for i in (0, 2))
    assert "torch" in environment.versions


def test_id_is_stable_and_holds_no_person_or_place() -> None:
    first, second = read_environment(), read_environment()
    assert (first.id, first.machine) == (second.id, second.machine)
    text = json.dumps(dataclasses.asdict(first))
    for secret in {socket.gethostname(), str(Path.home()), str(Path.cwd())} - {"/", "localhost"}:
        assert secret not in text
    assert getpass.getuser() not in text.split('"')


def test_machine_changes_with_hardware_only() -> None:
    here = read_environment()
    software = dataclasses.replace(
        here, kernel="Linux 99", python="3.99", versions={}, memory_bytes=here.memory_bytes + 5000
    )
    assert software.machine == here.machine
    assert software.id != here.id
    gpu = Gpu(name="NVIDIA H200", memory_bytes=2**37, driver="560")
    for hardware in (
        dataclasses.replace(here, cpu_model="other"),
        dataclasses.replace(here, usable_cores=here.usable_cores + 1),
        dataclasses.replace(here, memory_bytes=here.memory_bytes + 2**34),
        dataclasses.replace(here, gpus=(*here.gpus, gpu)),
    ):
        assert hardware.machine != here.machine


def fake_smi(folder: Path, body: str) -> str:
    """Make a program that stands in for nvidia-smi and return its path."""
    program = folder / "nvidia-smi"
    program.write_text(f"#!/bin/sh\n{body}\n")
    program.chmod(program.stat().st_mode | stat.S_IXUSR)
    return str(program)


def test_gpus_are_read_from_nvidia_smi(tmp_path: Path) -> None:
    lines = "NVIDIA H200, 143771, 570.86.15\\nNVIDIA GB10, [N/A], 580.1\\n"
    gpus = read_gpus(fake_smi(tmp_path, f"printf '{lines}'"))
    assert gpus == (
        Gpu(name="NVIDIA H200", memory_bytes=143771 * 2**20, driver="570.86.15"),
        Gpu(name="NVIDIA GB10", memory_bytes=None, driver="580.1"),
    )


def test_no_gpus_where_nvidia_smi_is_absent_or_fails(tmp_path: Path) -> None:
    assert read_gpus(str(tmp_path / "absent")) == ()
    assert read_gpus(fake_smi(tmp_path, "echo 'No devices were found'; exit 6")) == ()


def test_cpu_model_on_x86_and_elsewhere(tmp_path: Path) -> None:
    cpuinfo = tmp_path / "cpuinfo"
    cpuinfo.write_text("processor\t: 0\nmodel\t\t: 1\nmodel name\t: AMD  EPYC 7B13\n")
    assert cpu_model(cpuinfo) == "AMD EPYC 7B13"
    cpuinfo.write_text("processor\t: 0\nBogoMIPS\t: 50.00\n")
    assert cpu_model(cpuinfo) == platform.machine()
    assert cpu_model(tmp_path / "absent") == platform.machine()


def test_versions_of_absent_packages_are_left_out() -> None:
    assert set(installed_versions(["pytest", "no-such-package-here"])) == {"pytest"}
