"""What a measurement ran on: processors, memory, GPUs, kernel, Python and package versions.

Nothing here identifies a person or a place: no host name, user name or path is read. Torch is not imported; versions
come from package metadata, and GPUs from `nvidia-smi` where there is one.
"""

from __future__ import annotations

import hashlib
import importlib.metadata
import json
import os
import platform
import subprocess
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from pathlib import Path

import psutil

import harness

PACKAGES = ("torch", "nvtx", "numpy", "pandas")
"""Whose versions are recorded: what runs in a rank, and what computes figures from a trace."""
NVIDIA_SMI_TIMEOUT_S = 10


@dataclass(frozen=True, kw_only=True)
class Gpu:
    """One device as `nvidia-smi` names it; `memory_bytes` is None where the driver does not say."""

    name: str
    memory_bytes: int | None
    driver: str


@dataclass(frozen=True, kw_only=True)
class Environment:
    """One machine with one set of software. Equal environments have equal `id`s."""

    cpu_model: str
    logical_cores: int
    usable_cores: int
    memory_bytes: int
    gpus: tuple[Gpu, ...]
    kernel: str
    python: str
    versions: dict[str, str]

    @property
    def id(self) -> str:
        """16 hexadecimal digits over everything above."""
        return _digest(asdict(self))

    @property
    def machine(self) -> str:
        """Fingerprint of the hardware alone: results of machines with different ones are not comparable.

        Memory counts in whole GiB, since the kernel's own share of it changes between boots.
        """
        gpus = [(gpu.name, gpu.memory_bytes) for gpu in self.gpus]
        return _digest([self.cpu_model, self.usable_cores, round(self.memory_bytes / 2**30), gpus])


def read_environment() -> Environment:
    """Return the environment of this process."""
    return Environment(
        cpu_model=cpu_model(),
        logical_cores=os.cpu_count() or 1,
        usable_cores=len(os.sched_getaffinity(0)),
        memory_bytes=psutil.virtual_memory().total,
        gpus=read_gpus(),
        kernel=f"{platform.system()} {platform.release()}",
        python=platform.python_version(),
        versions={"stepduel": harness.__version__, **installed_versions(PACKAGES)},
    )


def load_average() -> float:
    """Return how many processes wanted a core over the last minute, on average."""
    return os.getloadavg()[0]


def installed_versions(packages: Iterable[str]) -> dict[str, str]:
    """Return the version of each package that is installed for this interpreter; absent ones are left out."""
    found: dict[str, str] = {}
    for package in packages:
        try:
            found[package] = importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            continue
    return found


def cpu_model(cpuinfo: Path = Path("/proc/cpuinfo")) -> str:
    """Return the processor's name as the kernel gives it, or the architecture where it gives none (Arm)."""
    try:
        lines = cpuinfo.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        lines = []
    for line in lines:
        key, colon, value = line.partition(":")
        if colon and key.strip() == "model name":
            return " ".join(value.split())
    return platform.machine()


def read_gpus(command: str = "nvidia-smi") -> tuple[Gpu, ...]:
    """Return the GPUs that `nvidia-smi` lists; none when it is absent, fails or does not answer."""
    query = [command, "--query-gpu=name,memory.total,driver_version", "--format=csv,noheader,nounits"]
    try:
        out = subprocess.run(query, capture_output=True, text=True, timeout=NVIDIA_SMI_TIMEOUT_S, check=True).stdout
    except (OSError, subprocess.SubprocessError):
        return ()
    gpus: list[Gpu] = []
    for line in out.splitlines():
        cells = [cell.strip() for cell in line.split(",")]
        if len(cells) == 3:
            mebibytes = int(cells[1]) if cells[1].isdigit() else None
            gpus.append(
                Gpu(name=cells[0], memory_bytes=None if mebibytes is None else mebibytes * 2**20, driver=cells[2])
            )
    return tuple(gpus)


def _digest(content: object) -> str:
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()[:16]
