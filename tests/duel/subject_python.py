"""Stands in for a subject's Python: takes the worker's command line and plays every rank of the launch, without torch.

`install(folder)` writes an executable. What it reports is made up but repeatable: step times around the plan's
`engine.step_ms`, with launch luck and scatter drawn from the hash seed and the side. Anything but such a command
line goes to the real interpreter. STEPDUEL_TEST_FAULT = "SIDE PAIR STEP kill|raise|hang|build" makes a launch
misbehave.
"""

from __future__ import annotations

import json
import os
import random
import signal
import socket
import sys
import time
from pathlib import Path
from typing import Any, NoReturn

WORKER = str(Path(__file__).resolve().parents[2] / "harness" / "worker" / "__main__.py")


def install(folder: Path) -> Path:
    """Write the stand-in into `folder` and return its path."""
    path = folder / "subject-python"
    path.write_text(f"#!{sys.executable}\nimport runpy\nrunpy.run_path({__file__!r}, run_name='__main__')\n")
    path.chmod(0o755)
    return path


class Launch:
    """All ranks of one launch."""

    def __init__(self, plan: dict[str, Any], ranks: int) -> None:
        self.plan, self.ranks, self.folder = plan, ranks, Path(plan["launch_dir"])
        self.engine = plan["engine"]
        side = self.folder.name
        self.draws = random.Random(f"{os.environ['PYTHONHASHSEED']} {side}")
        self.luck = self.draws.gauss(0, float(self.engine.get("luck", 0.002)))
        fault = os.environ.get("STEPDUEL_TEST_FAULT", "none none -1 none").split()
        self.fault = fault[3] if fault[:2] == [side, self.folder.parent.name] else "none"
        self.fault_at = int(fault[2])
        self.steps: list[list[int]] = []
        self.extras: list[tuple[str, int]] = []
        """Of each step: what it pays beyond its usual time, ns, and in which range."""

    def serve(self) -> None:
        connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        connection.connect(self.plan["control_socket"])
        lines = connection.makefile("r")

        def send(**event: Any) -> None:
            connection.sendall(json.dumps(event).encode() + b"\n")

        if self.engine.get("refuse"):
            send(event="refused", message="engine: unknown key 'refuse'. Allowed: step_ms")
            return
        if self.engine.get("build_raises") or self.fault == "build":
            self.fail("build", None, "AssertionError: the model must move along")
        about = {"versions": {"torch": self.engine.get("torch", "2.13.0")}, "engine_description": {"toy": True}}
        send(event="ready", ranks=self.ranks, device="cpu", pids=[os.getpid()] * self.ranks, threads=1, **about)
        for line in lines:
            if json.loads(line)["command"] == "stop":
                break
            index = len(self.steps)
            (self.folder / "rank0.phase").write_text(f"{os.getpid()} step {index}")
            if index == self.fault_at:
                self.misbehave()
            send(event="step", index=index, **self.step(index))
        self.tell_loaded()
        send(event="done", traces=[str(self.trace(rank)) for rank in range(self.ranks)])
        if "end_status" in self.engine:
            sys.exit(int(self.engine["end_status"]))

    def tell_loaded(self) -> None:
        """Report the one module of the toy, from the folder that the plan names."""
        root = self.plan["engine_root"]
        loaded = {"modules": [f"{root}/toy.py"] if self.plan["side_root"] else [], "objects": [], "opened": []}
        for rank in range(self.ranks):
            report = json.dumps({**loaded, "elsewhere": {}, "started": [], "installed": []})
            (self.folder / f"rank{rank}.loaded.json").write_text(report)

    def step(self, index: int) -> dict[str, Any]:
        time.sleep(float(self.engine.get("sleep_ms", 0)) / 1000)
        (self.folder / "cores").write_text(json.dumps(sorted(os.sched_getaffinity(0))))
        usual_ns = float(self.engine.get("step_ms", 100)) * 1e6
        usual_ns *= 1 + float(self.engine.get("slowdown_share", 0)) / 2  # forward and backward are half of a step
        usual_ns *= 1 + float(self.engine.get("unlike_share", 0)) * (index * 7 % 5)  # some steps are longer, alike
        usual_ns += float(self.engine.get("slower_ms", 0)) * 1e6 * index
        usual_ns += float(self.engine.get("compile_ms", 0)) * 1e6 * (index == 0)
        self.extras.append(self.extra(index))
        self.steps.append(
            [
                int(usual_ns * (1 + self.luck + self.draws.gauss(0, 0.004) - 0.1 * rank)) + self.extras[-1][1]
                for rank in range(self.ranks)
            ]
        )
        loss = 2.0 + index if index < int(self.engine.get("other_loss_from", 1 << 30)) else 2.5 + index
        memory = int(self.engine.get("memory", 10**9))
        rss = memory // 2 + int(self.engine.get("leak", 0)) * index
        figures = {
            "losses": [loss] * self.ranks,
            "tokens": 64,
            "figures": {"peak_memory_bytes": memory, "rss_bytes": rss},
        }
        return {"durations_ns": self.steps[-1], **figures}

    def extra(self, index: int) -> tuple[str, int]:
        """What step `index` pays on top: a checkpoint, one recompilation, a slow mode, a hiccup of the machine."""
        pays_ns = int(float(self.engine.get("pays_ms", 0)) * 1e6)
        every = int(self.engine.get("every", 0))
        if every and index % every == every - 1:
            return "checkpoint", pays_ns
        if index == int(self.engine.get("once_at", -1)):
            return "recompile", pays_ns
        if self.draws.random() < float(self.engine.get("pays_rate", 0)):
            return "slow_mode", pays_ns
        if self.draws.random() < float(self.engine.get("hiccup_rate", 0)):
            return "hiccup", int(self.draws.expovariate(1) * 3e8)
        return "none", 0

    def misbehave(self) -> None:
        if self.fault == "kill":
            os.kill(os.getpid(), signal.SIGKILL)
        if self.fault == "hang":
            time.sleep(600)
        if self.fault == "raise":
            self.fail("step", self.fault_at, "ArithmeticError: loss is NaN")

    def fail(self, phase: str, step: int | None, error: str) -> NoReturn:
        failure = {"rank": 0, "phase": phase, "step": step, "error": error}
        failure |= {"traceback": "", "time_ns": time.monotonic_ns()}
        (self.folder / "rank0.failure.json").write_text(json.dumps(failure))
        (self.folder / "rank0.log").write_text(f"{error}\n")
        sys.exit(1)

    def trace(self, rank: int) -> Path:
        """Write the steps as the recorder would: half a step is forward_backward; `extra_ms` lies in `extra`."""
        from harness import names
        from harness.trace import schema
        from harness.trace.writer import TraceWriter

        path = self.folder / f"rank{rank}.sqlite"
        pid = 1000 + rank
        writer = TraceWriter(
            path,
            collector="recorder",
            process_id=pid,
            process_name="toy",
            session_start_utc_ns=10**18,
            system_clock_ns=0,
            rank=rank,
        )
        domain, thread = writer.domain_id(names.NVTX_DOMAIN), schema.global_tid(pid, pid)
        extra_ns = int(float(self.engine.get("extra_ms", 0)) * 1e6)
        now = 1000
        rows: list[tuple[Any, ...]] = []
        for index, durations in enumerate(self.steps):
            end = now + durations[rank]
            inner = now + (durations[rank] - self.extras[index][1]) // 2
            spans = [(now, end, names.STEP, index), (now, inner, names.FORWARD_BACKWARD, None)]
            what, paid_ns = self.extras[index]
            if paid_ns:
                spans.append((end - paid_ns, end, what, None))
            if extra_ns:
                spans.append((inner, inner + extra_ns, "extra", None))
            rows += [(a, b, schema.NVTX_PUSH_POP, text, thread, None, domain, value) for a, b, text, value in spans]
            rows.append((now + 1, None, schema.NVTX_MARK, names.RANK_MARK, thread, None, domain, rank))
            now = end + 1000
        writer.add_ranges(rows)
        writer.close()
        return path


def main() -> None:
    arguments = sys.argv[1:]
    if WORKER not in arguments:  # the supervisor's command line holds the worker's as well
        os.execv(sys.executable, [sys.executable, *arguments])
    path, ranks = arguments[-2:]
    plan = json.loads(Path(path).read_text())
    (Path(plan["launch_dir"]) / "pid").write_text(str(os.getpid()))
    Launch(plan, int(ranks)).serve()


if __name__ == "__main__":
    main()
