"""What goes into a launch and what comes out of it."""

from __future__ import annotations

import json
import os
import shutil
import socket
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from harness.errors import UsageError

PLAN_VERSION: Final = 1
WORKER: Final = Path(__file__).resolve().parent.parent / "worker" / "__main__.py"

# What a surrounding torchrun, or a shell that had one, would hand down.
_NOT_INHERITED: Final = ("RANK", "LOCAL_RANK", "GROUP_RANK", "ROLE_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE")
_PREFIXES_NOT_INHERITED: Final = ("MASTER_", "TORCHELASTIC_", "PET_")


@dataclass(frozen=True, kw_only=True)
class LaunchRequest:
    """One launch: which code, which configuration, where its files go.

    `launch_dir` is this launch's own folder, made if absent. `engine_root` goes first on the ranks' `sys.path`;
    None leaves the engine to the interpreter's own packages. `measured_root`, what that engine adapts, goes before
    it. `python` is the interpreter that torchrun and the ranks run under. `probes` are plan entries (`{"name",
    "target", "result"}`, or NVIDIA's `{"module", "functions"}`). `env` is added to the inherited environment.
    `exit_timeout_s` is how long the tree may take to end after its last word: a collector that wraps it writes its
    report then.
    """

    launch_dir: Path
    factory: str
    engine: Mapping[str, Any] = field(default_factory=dict)
    engine_root: Path | None = None
    measured_root: Path | None = None
    ranks: int = 1
    mode: str = "train"
    seed: int = 0
    warmup_steps: int = 0
    steps: int = 1
    capture: tuple[int, int] | None = None
    probes: Sequence[Mapping[str, Any]] = ()
    collector: str = "recorder"
    python: Path = Path(sys.executable)
    env: Mapping[str, str] = field(default_factory=dict)
    start_timeout_s: float = 120.0
    timeout_s: float = 60.0
    exit_timeout_s: float = 10.0

    def __post_init__(self) -> None:
        if self.ranks < 1:
            raise UsageError(f"ranks is {self.ranks}; expected at least 1")
        for root in (self.engine_root, self.measured_root):
            if root is not None and not root.is_dir():
                raise UsageError(f"engine root {root}: no such folder")
        if shutil.which(self.python) is None:
            raise UsageError(f"python {self.python}: no such interpreter")

    def write_plan(self, control_socket: Path) -> Path:
        """Write the plan into the launch's folder and return its path."""
        document = {
            "plan": PLAN_VERSION,
            "engine_root": None if self.engine_root is None else str(self.engine_root.resolve()),
            "measured_root": None if self.measured_root is None else str(self.measured_root.resolve()),
            "factory": self.factory,
            "engine": dict(self.engine),
            "mode": self.mode,
            "seed": self.seed,
            "warmup_steps": self.warmup_steps,
            "steps": self.steps,
            "capture": None if self.capture is None else list(self.capture),
            "probes": [dict(probe) for probe in self.probes],
            "collector": self.collector,
            "launch_dir": str(self.launch_dir.resolve()),
            "control_socket": str(control_socket),
            "start_timeout_s": self.start_timeout_s,
            "timeout_s": self.timeout_s,
        }
        path = self.launch_dir / "plan.json"
        try:
            with path.open("x", encoding="utf-8") as file:
                json.dump(document, file, indent=1)
        except FileExistsError:
            raise UsageError(
                f"{self.launch_dir}: holds a launch already; give every launch a folder of its own"
            ) from None
        return path.resolve()

    def argv(self, plan: Path) -> list[str]:
        """The torchrun command: one node, rendezvous and workers on the loopback interface, no restarts.

        `-P` keeps the folder it is started in off torchrun's own `sys.path`. The agent looks for ended ranks every
        0.1 s, which costs nothing and finds a dead rank soon.
        """
        return [
            str(self.python), "-P", "-m", "torch.distributed.run", "--standalone", "--local-addr=127.0.0.1",
            f"--nproc-per-node={self.ranks}", "--max-restarts=0", "--monitor-interval=0.1", str(WORKER), str(plan),
        ]  # fmt: skip

    def environment(self) -> dict[str, str]:
        """The environment of the whole tree. A rank computes in one thread unless the user said how many.

        OpenMP threads wait for one another by spinning. Where another process has one of their cores, each small
        matrix product then takes a scheduler's slice: a step of 1 s became one of 20 s on two busy cores.
        """
        env = {
            name: value
            for name, value in os.environ.items()
            if name not in _NOT_INHERITED and not name.startswith(_PREFIXES_NOT_INHERITED)
        }
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
    versions: Mapping[str, str | None]
    engine_description: Mapping[str, Any]


@dataclass(frozen=True, kw_only=True)
class StepReport:
    """One step: `durations_ns` by rank; mean loss and sum of tokens over ranks; other figures by metric.

    `loss` and `tokens` are None where the engine tells none; metrics that a rank cannot tell are left out.
    """

    index: int
    durations_ns: tuple[int, ...]
    loss: float | None
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
