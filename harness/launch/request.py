"""What goes into a launch and what comes out of it."""

from __future__ import annotations

import os
import shutil
import socket
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final

from harness.errors import UsageError
from harness.subject.git import LOCAL_VARIABLES
from harness.worker.plan import Plan
from harness.worker.side_paths import moved_paths

WORKER: Final = Path(__file__).resolve().parent.parent / "worker" / "__main__.py"

# What a surrounding torchrun, or a shell that had one, would hand down.
_NOT_INHERITED: Final = ("RANK", "LOCAL_RANK", "GROUP_RANK", "ROLE_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE")
_PREFIXES_NOT_INHERITED: Final = ("MASTER_", "TORCHELASTIC_", "PET_")

_GPU_DRIVERS: Final = ("/dev/nvidiactl", "/dev/kfd", "/dev/dxg")
"""NVIDIA's, AMD's, and the one under WSL."""

Wrap = Callable[[Sequence[str], Mapping[str, str], Path], tuple[list[str], dict[str, str]]]
"""A collector's `wrap`: command line, environment and launch folder to the ones to use instead."""


@dataclass(frozen=True, kw_only=True)
class LaunchRequest:
    """One launch: the plan for its ranks, and what only the host needs.

    `python` is the interpreter that the ranks and their parent run under. `env` is added to the inherited environment.
    `exit_timeout_s` is how long the tree may take to end after its last word: a collector that wraps it writes its
    report then.
    """

    plan: Plan
    ranks: int = 1
    python: Path = Path(sys.executable)
    env: Mapping[str, str] = field(default_factory=dict)
    cwd: Path | None = None
    """Where all its processes start; None is where this one is."""
    wrap: Wrap | None = None
    exit_timeout_s: float = 10.0

    def __post_init__(self) -> None:
        if self.ranks < 1:
            raise UsageError(f"ranks is {self.ranks}; expected at least 1")
        for root in (self.plan.engine_root, self.plan.measured_root):
            if root is not None and not root.is_dir():
                raise UsageError(f"engine root {root}: no such folder")
        if shutil.which(self.python) is None:
            raise UsageError(f"python {self.python}: no such interpreter")

    def write_plan(self, control_socket: Path) -> Path:
        """Write the plan into the launch's folder, which is made if absent, and return its path."""
        plan = self.plan
        resolved = replace(
            plan,
            engine_root=plan.engine_root and plan.engine_root.resolve(),
            measured_root=plan.measured_root and plan.measured_root.resolve(),
            side_root=plan.side_root and plan.side_root.resolve(),
            launch_dir=plan.launch_dir.resolve(),
            control_socket=control_socket,
        )
        path = resolved.launch_dir / "plan.json"
        path.parent.mkdir(parents=True, exist_ok=True)
        try:
            resolved.write(path)
        except FileExistsError:
            raise UsageError(
                f"{plan.launch_dir}: holds a launch already; give every launch a folder of its own"
            ) from None
        return path

    def command(self, plan: Path) -> tuple[list[str], dict[str, str]]:
        """The command line to start and its whole environment.

        That is torchrun, where a tool is put around the launch or a device may be used. Otherwise the worker forks its
        ranks, which imports torch once instead of twice and more (`harness.worker.fork`).
        """
        torchrun, env = self._torchrun(plan), self._environment()
        argv = torchrun
        if self.wrap is not None:
            argv, env = self.wrap(torchrun, env, self.plan.launch_dir.resolve())
        if argv == torchrun and not self._may_use_gpu():
            argv = [str(self.python), "-u", str(WORKER), str(plan), str(self.ranks)]
        return argv, env

    def _may_use_gpu(self) -> bool:
        """Whether a GPU's driver is here and the engine may use it. Asks no driver: none may be woken before a fork."""
        return self.plan.engine.get("device") != "cpu" and any(map(os.path.exists, _GPU_DRIVERS))

    def _torchrun(self, plan: Path) -> list[str]:
        """The torchrun command: one node, rendezvous and workers on the loopback interface, no restarts.

        `-P` keeps the folder it is started in off torchrun's own `sys.path`. The agent looks for ended ranks every
        0.1 s, which costs nothing and finds a dead rank soon.
        """
        return [
            str(self.python), "-P", "-m", "torch.distributed.run", "--standalone", "--local-addr=127.0.0.1",
            f"--nproc-per-node={self.ranks}", "--max-restarts=0", "--monitor-interval=0.1", str(WORKER), str(plan),
        ]  # fmt: skip

    def _environment(self) -> dict[str, str]:
        """The environment of the whole tree. A rank computes in one thread unless the user said how many.

        OpenMP threads wait for one another by spinning. Where another process has one of their cores, each small
        matrix product then takes a scheduler's slice: a step of 1 s became one of 20 s on two busy cores.
        """
        env = {
            name: value
            for name, value in os.environ.items()
            if name not in _NOT_INHERITED and not name.startswith(_PREFIXES_NOT_INHERITED)
        }
        plan = self.plan
        if plan.side_root is not None and plan.working_tree is not None:
            env = {name: value for name, value in env.items() if name not in LOCAL_VARIABLES}
            if "PYTHONPATH" in env:
                entries = env["PYTHONPATH"].split(os.pathsep)
                env["PYTHONPATH"] = os.pathsep.join(moved_paths(entries, plan.working_tree, plan.side_root))
        env.setdefault("OMP_NUM_THREADS", "1")
        if any(name == "lo" for _, name in socket.if_nameindex()):
            env.setdefault("GLOO_SOCKET_IFNAME", "lo")  # one node: needs no resolvable host name, and stays private
        return {**env, **self.env}


@dataclass(frozen=True, kw_only=True)
class Ready:
    """What rank 0 says when every rank has built its engine. `pids` by rank; `threads` that a rank computes in."""

    ranks: int
    device: str
    pids: tuple[int, ...]
    threads: int
    start_ns: int
    """From the start of the launch until every rank had built its engine."""
    precision: str | None
    """The coarsest type of its parameters, as `bfloat16`; None where the engine shows none."""
    versions: Mapping[str, str | None]
    engine_description: Mapping[str, Any]


@dataclass(frozen=True, kw_only=True)
class StepReport:
    """One step: `durations_ns` and `losses` by rank; sum of tokens over ranks; other figures by metric.

    Losses and `tokens` are None where the engine tells none; metrics that a rank cannot tell are left out.
    """

    index: int
    durations_ns: tuple[int, ...]
    losses: tuple[float | None, ...]
    tokens: int | None
    figures: Mapping[str, float]

    @property
    def duration_ns(self) -> int:
        """Duration of the slowest rank."""
        return max(self.durations_ns)


@dataclass(frozen=True, kw_only=True)
class LaunchOutcome:
    """How a launch ended that ran to its `stop`. `clean_exit`: the tree ended by itself, in time, with status 0."""

    traces: tuple[Path, ...]
    clean_exit: bool
    exit_status: int | None
    states: tuple[tuple[float, ...], ...] = ()
    """By rank, the figures of `harness.worker.state.State`."""
