"""What it costs to look at what a rank loads: the report of a launch, and the audit hook in steps.

    python benchmarks/looking.py [--steps 50]

One process runs smoke's engine with a hook that counts beside ours. `report` is what a launch pays at its end; `hook at
start` is what the audit events of a launch's start cost together: counted here, and priced by the difference that our
hook makes to opening a file, and to an event that it does not care for. `hook in a step` is the same of one step.
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
LIMIT_MS = 50.0


def seconds(do: Callable[[], object]) -> float:
    """Time of doing it once, the least of many rounds."""
    rounds = []
    for _ in range(200):
        began = time.perf_counter()
        for _ in range(100):
            do()
        rounds.append((time.perf_counter() - began) / 100)
    return min(rounds)


def opens(path: str) -> Callable[[], object]:
    return lambda: os.close(os.open(path, os.O_RDONLY))


def other() -> object:
    return id(None)


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=50)
    steps = parser.parse_args().steps
    outside = opens("/etc/hosts")
    bare_open_s, bare_other_s = seconds(outside), seconds(other)

    from harness.worker.loaded import Loaded

    looks = Loaded(ROOT, None)
    open_s, other_s = seconds(outside) - bare_open_s, seconds(other) - bare_other_s
    events: list[str] = []
    counting = False

    def count(event: str, _: tuple[Any, ...]) -> None:
        if counting:
            events.append(event)

    sys.addaudithook(count)
    counting = True
    import torch
    import torch.distributed as dist

    from harness.scenario import load_scenario
    from harness.worker.options import bind_options, load_factory

    scenario = load_scenario("smoke")
    with tempfile.TemporaryDirectory() as folder:
        dist.init_process_group("gloo", init_method=f"file://{folder}/store", rank=0, world_size=1)
        torch.manual_seed(0)
        engine = bind_options(load_factory(scenario.factory), scenario.engine)()

        def step(index: int) -> None:
            batch = engine.batch(index)
            with engine.train_mode():
                engine.forward_backward(batch)
                engine.optimizer_step()

        for index in range(5):
            step(index)
        at_start = len(events)
        began = time.perf_counter()
        for index in range(steps):
            step(5 + index)
        step_ms = (time.perf_counter() - began) / steps * 1e3
        in_steps = events[at_start:]
        counting = False
        reports_ms = []
        for _ in range(10):
            began = time.perf_counter()
            looks.write(Path(folder) / "loaded.json")
            reports_ms.append((time.perf_counter() - began) * 1e3)
        dist.destroy_process_group()
    opened = events[:at_start].count("open")
    hook_ms = (opened * open_s + (at_start - opened) * other_s) * 1e3
    report_ms = statistics.median(reports_ms)
    kinds = ", ".join(f"{number / steps:g} {name}" for name, number in Counter(in_steps).items())
    step_us = (in_steps.count("open") * open_s + (len(in_steps) - in_steps.count("open")) * other_s) / steps * 1e6
    others = at_start - opened
    print(f"report            {report_ms:.1f} ms ({len(sys.modules)} modules)")
    print(
        f"hook at start     {hook_ms:.1f} ms ({opened} files of {open_s * 1e6:.2f} µs, "
        f"{others} other events of {other_s * 1e6:.2f} µs)"
    )
    share = step_us / step_ms / 10
    print(f"hook in a step    {step_us:.1f} µs ({kinds or 'no event'}) of {step_ms:.1f} ms, {share:.3f} %")
    ok = report_ms + hook_ms <= LIMIT_MS
    print(f"a launch          {report_ms + hook_ms:.1f} ms, limit {LIMIT_MS:.0f} ms: {'ok' if ok else 'TOO MUCH'}")
    return 0 if ok else 1


if __name__ == "__main__":
    raise SystemExit(main())
