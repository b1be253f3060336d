"""The `nsys` command line: where it is, which version, and the exact arguments it is given.

Option names and values are those of NVIDIA's Nsight Systems user guide ("CLI profile command switch options" and "CLI
export command switch options"); only options that exist in every version from 2022.1 on are used by default.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from harness import names
from harness.errors import UsageError

EXECUTABLE_VARIABLE: Final = "STEPDUEL_NSYS"
TRACE_VARIABLE: Final = "STEPDUEL_NSYS_TRACE"
CUDA_GRAPH_VARIABLE: Final = "STEPDUEL_NSYS_CUDA_GRAPH_TRACE"
FINISH_TIMEOUT_VARIABLE: Final = "STEPDUEL_NSYS_TIMEOUT_S"

MINIMUM_VERSION: Final = (2022, 1)
"""The first with `.nsys-rep` reports, the metadata tables and `--cuda-graph-trace`."""

VERSION_TIMEOUT_S: Final = 30.0
_VERSION: Final = re.compile(r"\bversion\s+(20\d\d)\.(\d+)((?:\.\d+)*)", re.IGNORECASE)
_API_NAME: Final = re.compile(r"[a-z0-9]+(-[a-z0-9]+)*")
_GRAPH_MODE: Final = re.compile(r"(graph|node)(:[a-z-]+)?")


@dataclass(frozen=True, kw_only=True)
class NsysOptions:
    """What a user may choose about a capture. Durations in seconds."""

    trace: tuple[str, ...] = ("cuda", "nvtx", "osrt")
    """APIs for `--trace`; `cublas` and `cudnn` are useful additions."""
    cuda_graph_trace: str | None = None
    """`graph` or `node`; None leaves nsys its own default, whole graphs where the driver can."""
    finish_timeout_s: float = 300.0
    """How long nsys may take to write its report after the program ended, and again to export it."""

    @classmethod
    def from_environment(cls, env: Mapping[str, str]) -> NsysOptions:
        """Read STEPDUEL_NSYS_TRACE, STEPDUEL_NSYS_CUDA_GRAPH_TRACE and STEPDUEL_NSYS_TIMEOUT_S.

        Raises UsageError for a value that nsys could not take, or a trace without `nvtx`: the capture begins and ends
        with an NVTX range.
        """
        trace = tuple(part.strip() for part in env.get(TRACE_VARIABLE, "").split(",") if part.strip()) or cls.trace
        for api in trace:
            if not _API_NAME.fullmatch(api):
                raise UsageError(f"{TRACE_VARIABLE}: {api!r} is no API name; try cuda,nvtx,osrt,cublas")
        if "nvtx" not in trace:
            raise UsageError(f"{TRACE_VARIABLE}={','.join(trace)} lacks nvtx, which starts the capture; add it")
        graph = env.get(CUDA_GRAPH_VARIABLE) or None
        if graph is not None and not _GRAPH_MODE.fullmatch(graph):
            raise UsageError(f"{CUDA_GRAPH_VARIABLE}={graph!r}: expected graph or node")
        return cls(trace=trace, cuda_graph_trace=graph, finish_timeout_s=_seconds(env))


def _seconds(env: Mapping[str, str]) -> float:
    text = env.get(FINISH_TIMEOUT_VARIABLE)
    if not text:
        return NsysOptions.finish_timeout_s
    try:
        seconds = float(text)
    except ValueError:
        seconds = 0.0
    if not 0 < seconds < float("inf"):
        raise UsageError(f"{FINISH_TIMEOUT_VARIABLE}={text!r}: expected a positive number of seconds")
    return seconds


@dataclass(frozen=True, kw_only=True)
class NsysTool:
    """An installed nsys."""

    executable: Path
    version: tuple[int, ...]

    @property
    def version_text(self) -> str:
        """`2025.1.3.140`."""
        return ".".join(map(str, self.version))


def parse_version(text: str) -> tuple[int, ...] | None:
    """The version in the output of `nsys --version`, None where there is none.

    Warnings of a driver or a wrapper may stand before it, and a build suffix (`-251335620677v0`) behind it.
    """
    match = _VERSION.search(text)
    if match is None:
        return None
    return (int(match[1]), int(match[2]), *(int(part) for part in match[3].split(".") if part))


def locate(env: Mapping[str, str]) -> Path | None:
    """The nsys that STEPDUEL_NSYS names (a path or a name on PATH), else `nsys` on PATH, else None.

    Raises UsageError when STEPDUEL_NSYS names something that cannot be run.
    """
    wanted = env.get(EXECUTABLE_VARIABLE)
    found = shutil.which(wanted or "nsys", path=env.get("PATH", os.defpath))
    if wanted and found is None:
        raise UsageError(f"{EXECUTABLE_VARIABLE}={wanted}: no such program; give the path of an nsys executable")
    return Path(found) if found else None


def probe(executable: Path, env: Mapping[str, str]) -> NsysTool:
    """Ask `executable` for its version. Raises UsageError when it answers none, too late, or one older than 2022.1."""
    code, output = run_limited([str(executable), "--version"], env=env, timeout_s=VERSION_TIMEOUT_S)
    if code is None:
        raise UsageError(f"{executable} --version did not end within {VERSION_TIMEOUT_S:.0f} s; is it an nsys?")
    version = parse_version(output)
    if code != 0 or version is None:
        said = last_lines(output, 1) or "nothing"
        raise UsageError(
            f"{executable} --version said {said!r} (exit code {code}); expected 'NVIDIA Nsight Systems version …'"
        )
    tool = NsysTool(executable=executable, version=version)
    if version < MINIMUM_VERSION:
        oldest = ".".join(map(str, MINIMUM_VERSION))
        raise UsageError(
            f"{executable} is version {tool.version_text}; expected {oldest} or newer: update Nsight Systems"
        )
    return tool


def profile_command(tool: NsysTool, options: NsysOptions, *, report: Path, argv: Sequence[str]) -> list[str]:
    """`argv` under `nsys profile`, collecting from the worker's `capture` range to its end, into `report`.

    - `--capture-range-end=stop`: the default, stop-shutdown, would kill the program at the end of the range.
    - NSYS_NVTX_PROFILER_REGISTER_ONLY=0: else only registered strings start a capture, and Python's are not.
    - `--wait=primary`: nsys ends when torchrun does, and does not wait for a stray process some library left behind.
    - no CPU samples and no context switches: they need privileges and slow the step down.
    """
    command = [
        str(tool.executable),
        "profile",
        f"--trace={','.join(options.trace)}",
        "--sample=none",
        "--cpuctxsw=none",
        "--capture-range=nvtx",
        f"--nvtx-capture={names.CAPTURE}@{names.NVTX_DOMAIN}",
        "--capture-range-end=stop",
        "--env-var=NSYS_NVTX_PROFILER_REGISTER_ONLY=0",
        "--wait=primary",
        "--force-overwrite=true",
        f"--output={str(report.with_suffix('')).replace('%', '%%')}",
    ]
    if options.cuda_graph_trace is not None:
        command.insert(5, f"--cuda-graph-trace={options.cuda_graph_trace}")
    return [*command, *argv]


def export_command(executable: str, *, report: Path, export: Path) -> list[str]:
    """`nsys export` of `report` to the SQLite file `export`."""
    return [
        executable,
        "export",
        "--type=sqlite",
        "--force-overwrite=true",
        f"--output={export}",
        str(report),
    ]


def run_limited(argv: Sequence[str], *, env: Mapping[str, str], timeout_s: float) -> tuple[int | None, str]:
    """Run a short-lived nsys command in its own process group; kill the group after `timeout_s`.

    Returns (exit code, stdout and stderr together); the code is None when time ran out. Raises UsageError when
    the program cannot be started at all.
    """
    # Output goes to a file: a pipe would stay open, and be waited for, as long as any stray grandchild holds it.
    with tempfile.TemporaryFile() as output:
        try:
            process = subprocess.Popen(
                argv,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                env=dict(env),
                start_new_session=True,
            )
        except OSError as error:
            raise UsageError(f"cannot start {argv[0]}: {error.strerror}; see {EXECUTABLE_VARIABLE}") from error
        try:
            code: int | None = process.wait(timeout=timeout_s)
        except subprocess.TimeoutExpired:
            code = None
        finally:
            # Also after a normal end: what it left running in its group has nothing more to do.
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
        output.seek(0)
        return code, output.read().decode(errors="replace")


def last_lines(text: str, count: int) -> str:
    """The last `count` lines of `text` that say something; a progress bar counts as its final state."""
    lines = [line.rsplit("\r", 1)[-1].strip() for line in text.rstrip().splitlines()]
    return "\n".join([line for line in lines if line][-count:])
