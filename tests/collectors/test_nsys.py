"""The nsys collector against the stand-in of `tests/doubles/nsys.py`: real processes and files, every way it fails."""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from harness.collectors import nsys_cli
from harness.collectors.nsys import Nsys
from harness.errors import LaunchError, UsageError
from harness.trace.reader import read_trace

ROOT = Path(__file__).resolve().parents[2]
DOUBLE = ROOT / "tests" / "doubles" / "nsys.py"
RANKS, WARMUP, STEPS = 2, 1, 3

Install = Callable[..., dict[str, str]]


@pytest.fixture
def install(tmp_path: Path) -> Install:
    """Put the stand-in on a PATH of its own as `nsys`, failing as `mode` says; return the environment to use it."""

    def make(mode: str = "", **extra: str) -> dict[str, str]:
        folder = tmp_path / "bin"
        folder.mkdir(exist_ok=True)
        (folder / "nsys").write_text(
            f'#!/bin/sh\nNSYS_DOUBLE={mode} exec {shlex.quote(sys.executable)} {shlex.quote(str(DOUBLE))} "$@"\n'
        )
        (folder / "nsys").chmod(0o755)
        (tmp_path / "tmp").mkdir(exist_ok=True)
        env = {"PATH": f"{folder}:/usr/bin:/bin", "PYTHONPATH": str(ROOT), "TMPDIR": str(tmp_path / "tmp")}
        return env | {"STEPDUEL_NSYS_TIMEOUT_S": "20"} | extra

    return make


@pytest.fixture
def launch_dir(tmp_path: Path) -> Path:
    folder = tmp_path / "launch 100%"  # a space, and a character that nsys expands in --output
    folder.mkdir()
    (folder / "plan.json").write_text(json.dumps({"capture": [WARMUP, WARMUP + STEPS - 1]}))
    return folder


def run_launch(env: dict[str, str], launch_dir: Path, *, ranks: int = RANKS) -> int:
    """Wrap the small launch, run it as the launcher does, and return its exit code."""
    script = str(ROOT / "tests" / "collectors" / "fake_ranks.py")
    argv, launch_env = Nsys(env=env).wrap([sys.executable, script, *map(str, (ranks, WARMUP, STEPS))], env, launch_dir)
    with (launch_dir / "torchrun.log").open("wb") as log:
        return subprocess.run(argv, env=launch_env, stdout=log, stderr=log, timeout=60, check=False).returncode


def test_a_launch_becomes_a_trace_with_the_measured_steps_of_every_rank(
    install: Install, launch_dir: Path, tmp_path: Path
) -> None:
    env = install()
    assert Nsys(env=env).available().reason.startswith("nsys 2025.1.3.140 at ")
    assert run_launch(env, launch_dir) == 0
    destination = tmp_path / "traces" / "run.sqlite"
    assert Nsys(env=env).collect(launch_dir, RANKS, destination) == destination
    trace = read_trace(destination)
    assert (trace.info.collector, trace.info.nsys_version) == ("nsys", "2025.1.3.140")
    assert trace.ranks == (0, 1), "from the rank marks: nsys knows of no rank"
    steps = [i for i in range(len(trace.ranges)) if trace.strings[trace.ranges.name_id[i]] == "step"]
    assert len(steps) == RANKS * STEPS, "the warm-up steps are outside the capture"
    assert destination.with_suffix(".nsys-rep").stat().st_size > 0, "kept for the GUI"
    assert_exact_commands(launch_dir, tmp_path / "bin" / "nsys")


def assert_exact_commands(launch_dir: Path, nsys: Path) -> None:
    stored = json.loads((launch_dir / "nsys.commands.json").read_text())
    assert stored["nsys_version"] == "2025.1.3.140"
    assert stored["export"][1:4] == ["export", "--type=sqlite", "--force-overwrite=true"]
    executable, *options = stored["profile"][: stored["profile"].index(sys.executable)]
    assert executable == str(nsys)
    assert options == [
        "profile",
        "--trace=cuda,nvtx,osrt",
        "--sample=none",
        "--cpuctxsw=none",
        "--capture-range=nvtx",
        "--nvtx-capture=capture@stepduel",
        "--capture-range-end=stop",
        "--env-var=NSYS_NVTX_PROFILER_REGISTER_ONLY=0",
        "--wait=primary",
        "--force-overwrite=true",
        f"--output={str(launch_dir).replace('%', '%%')}/nsys",
    ]


@pytest.mark.parametrize(
    ("mode", "message"),
    [
        ("no_report", "nsys left no report:.*No reports were generated"),
        ("qdstrm_only", r"nsys left no report but only its raw .*nsys\.qdstrm:.*Importation failed"),
        ("empty_report", "nsys left no report"),
        ("crash_at_end", "nsys left no report:.*Sending SIGSEGV"),
        ("crash_at_start", "nsys left no report:.*RuntimeException"),
        ("export_fails", r"nsys export failed with exit code 1; the report is kept at .*nsys\.nsys-rep:.*not a valid"),
        ("export_hangs", r"nsys export did not end within 1 s; the report is kept at"),
        ("empty_export", "holds no whole 'step' ranges, expected 3 from each rank \\(1\\)"),
    ],
)
def test_every_failure_of_nsys_fails_the_launch(
    install: Install, launch_dir: Path, tmp_path: Path, mode: str, message: str
) -> None:
    env = install(mode)
    code = run_launch(env, launch_dir, ranks=1)
    assert (code == 0) == (mode not in ("crash_at_start", "crash_at_end"))
    if mode == "export_hangs":
        env["STEPDUEL_NSYS_TIMEOUT_S"] = "1"
    with pytest.raises(LaunchError) as error:
        Nsys(env=env).collect(launch_dir, 1, tmp_path / "run.sqlite")
    assert re.search(message, str(error.value), re.DOTALL), error.value
    if mode != "empty_export":
        assert not (tmp_path / "run.sqlite").exists(), "nothing half-written passes for a trace"


def test_steps_that_one_rank_lacks_fail_the_launch(install: Install, launch_dir: Path, tmp_path: Path) -> None:
    env = install()
    assert run_launch(env, launch_dir, ranks=1) == 0
    with pytest.raises(LaunchError, match=r"holds 3 whole 'step' ranges, expected 3 from each rank \(2\)"):
        Nsys(env=env).collect(launch_dir, RANKS, tmp_path / "run.sqlite")
    assert (tmp_path / "run.sqlite").exists(), "what there is stays for a look"


@pytest.mark.parametrize(
    ("mode", "message"),
    [
        ("old_version", r"is version 2021\.3\.2\.4; expected 2022\.1 or newer"),
        ("garbage_version", r"said 'NVIDIA Nsight Systems version of the future' \(exit code 0\)"),
        ("silent_version", r"said 'nothing' \(exit code 0\)"),
    ],
)
def test_an_unusable_nsys_is_refused_before_the_start(
    install: Install, launch_dir: Path, mode: str, message: str
) -> None:
    collector = Nsys(env=install(mode))
    assert not collector.available().ok
    with pytest.raises(UsageError, match=message):
        collector.wrap(["true"], {}, launch_dir)
    assert not (launch_dir / "nsys.commands.json").exists()


def test_a_version_that_never_comes_is_not_waited_for(install: Install, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nsys_cli, "VERSION_TIMEOUT_S", 1.0)
    availability = Nsys(env=install("hang_version")).available()
    assert not availability.ok
    assert "did not end within 1 s" in availability.reason


def test_refuses_what_cannot_work(install: Install, launch_dir: Path, tmp_path: Path) -> None:
    env = install()
    nowhere = {"PATH": str(tmp_path)}
    cases = [
        (Nsys(env=nowhere), "no nsys on PATH; install Nsight Systems, or name it with STEPDUEL_NSYS"),
        (Nsys(env={**env, "STEPDUEL_NSYS": "/no/such/nsys"}), "STEPDUEL_NSYS=/no/such/nsys: no such program"),
        (Nsys(env={**env, "NSYS_PROFILING_SESSION_ID": "7"}), "already inside Nsight Systems"),
        (Nsys(env={**env, "STEPDUEL_NSYS_TRACE": "cuda,osrt"}), "lacks nvtx"),
        (Nsys(env={**env, "STEPDUEL_NSYS_TRACE": "nvtx,--kill=x"}), "no API name"),
        (Nsys(env={**env, "STEPDUEL_NSYS_CUDA_GRAPH_TRACE": "nodes"}), "expected graph or node"),
        (Nsys(env={**env, "STEPDUEL_NSYS_TIMEOUT_S": "soon"}), "expected a positive number of seconds"),
        (Nsys(env=env, minimum_free_bytes=1 << 60), "MiB free"),
    ]
    for collector, message in cases:
        with pytest.raises(UsageError, match=message):
            collector.wrap(["true"], env, launch_dir)
    broken = tmp_path / "broken"
    broken.write_bytes(b"\x7fELF nonsense")
    broken.chmod(0o755)
    with pytest.raises(UsageError, match="cannot start"):
        Nsys(env={**env, "STEPDUEL_NSYS": str(broken)}).wrap(["true"], env, launch_dir)


def test_options_from_the_environment_reach_nsys(install: Install, launch_dir: Path) -> None:
    env = install(STEPDUEL_NSYS_TRACE="cuda, nvtx,osrt,cublas,cudnn", STEPDUEL_NSYS_CUDA_GRAPH_TRACE="node")
    command, _ = Nsys(env=env).wrap(["true"], env, launch_dir)
    assert "--trace=cuda,nvtx,osrt,cublas,cudnn" in command
    assert "--cuda-graph-trace=node" in command
    assert subprocess.run(command, env=env, capture_output=True, check=False).returncode == 0, "the stand-in knows them"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("NVIDIA Nsight Systems version 2024.6.2.225-246235244400v0\n", (2024, 6, 2, 225)),
        ("NVIDIA Nsight Systems version 2021.3.2.4-027534f", (2021, 3, 2, 4)),
        ("NVIDIA Nsight Systems version 2025.2", (2025, 2)),
        ("WARNING: driver 535.1.2 is old\nNVIDIA Nsight Systems version 2022.1.1.61-1d07dc0\n", (2022, 1, 1, 61)),
        ("ERROR: nsys 2024.1 was not found in /opt", None),
        ("", None),
    ],
)
def test_versions(text: str, expected: tuple[int, ...] | None) -> None:
    assert nsys_cli.parse_version(text) == expected


def test_a_limited_command_takes_its_children_with_it(tmp_path: Path) -> None:
    child = tmp_path / "pid"
    started = time.monotonic()
    code, output = nsys_cli.run_limited(
        ["/bin/sh", "-c", f"echo working; sleep 600 & echo $! > {child}; wait"],
        env={"PATH": "/usr/bin:/bin"},
        timeout_s=1,
    )
    assert (code, output) == (None, "working\n")
    assert time.monotonic() - started < 60
    with pytest.raises(ProcessLookupError):
        wait_for_end(int(child.read_text()))


def wait_for_end(pid: int) -> None:
    """Signal 0 until the process is gone, which raises; a killed orphan may be a zombie for a moment."""
    for _ in range(100):
        os.kill(pid, 0)
        if Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] == "Z":
            raise ProcessLookupError
        time.sleep(0.05)


def test_last_lines_show_a_progress_bar_as_it_ended() -> None:
    text = "a\n\n[1/1] [0%  ]\r[1/1] [50% ]\r[1/1] [100%] x.nsys-rep\nERROR: b\n\n"
    assert nsys_cli.last_lines(text, 2) == "[1/1] [100%] x.nsys-rep\nERROR: b"
