"""Who else listens to CUPTI. One process can have one CUPTI client: a second one fails, or silently records nothing.

A profiler that wraps the process says so in the environment; nothing else can be seen from outside.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Final

_MARKS: Final = {
    "NSYS_PROFILING_SESSION_ID": "Nsight Systems",
    "NV_NSIGHT_INJECTION_TRANSPORT_TYPE": "Nsight Compute",
    "NVPROF_ID": "nvprof",
    "CUDA_INJECTION64_PATH": "a CUDA injection library",
}


def active_client(env: Mapping[str, str]) -> str | None:
    """Say which profiler already wraps a process with environment `env`, as `name (VARIABLE is set)`; None if none."""
    for variable, profiler in _MARKS.items():
        if env.get(variable):
            return f"{profiler} ({variable} is set)"
    return None


def cuda_device_present(env: Mapping[str, str], device_folder: Path = Path("/dev")) -> bool:
    """Whether this machine shows a CUDA device to a process with environment `env`.

    Looks at device files, so that nothing has to import torch: `nvidia0`… on Linux, `dxg` under WSL. A device that is
    hidden by CUDA_VISIBLE_DEVICES does not count.
    """
    if env.get("CUDA_VISIBLE_DEVICES", "unset").strip() in ("", "-1", "NoDevFiles"):
        return False
    return any(device_folder.glob("nvidia[0-9]*")) or (device_folder / "dxg").exists()
