"""What a mode switch costs, part by part: `python benchmarks/mode_switch.py [--repeats 5] [KEY=VALUE ...]`.

KEY=VALUE sets fields of `Fsdp2Config`, as in `layers=48 experts=128 lora_rank=0`. Times are wall and CPU ms (a busy
machine stretches the first), median and least, after two training steps. The load of a resident model should cost what
`model.to` costs, which is measured just before it.
"""

from __future__ import annotations

import argparse
import ast
import gc
import statistics
import time
from collections.abc import Callable
from typing import Any

import torch

from engine_under_test.config import Fsdp2Config
from engine_under_test.fsdp2 import Fsdp2Engine, build_engine
from engine_under_test.offload import (
    load_fsdp_model_to_gpu,
    load_fsdp_optimizer,
    offload_fsdp_model_to_cpu,
    offload_fsdp_optimizer,
)


def setting(text: str) -> tuple[str, Any]:
    """Parse KEY=VALUE; a value that is no Python literal is text."""
    key, _, value = text.partition("=")
    try:
        return key, ast.literal_eval(value)
    except (ValueError, SyntaxError):
        return key, value


def parts_of(engine: Fsdp2Engine) -> dict[str, Callable[[], object]]:
    """What to time, in an order in which each finds the state it needs."""
    module, optimizer, memory = engine.module, engine.optimizer, engine.memory
    return {
        "model.to, resident": lambda: module.to(memory.device),
        "load_fsdp_model_to_gpu, resident": lambda: load_fsdp_model_to_gpu(module, memory),
        "load_fsdp_optimizer, resident": lambda: load_fsdp_optimizer(optimizer, memory),
        "gc.collect": gc.collect,
        "module.train": lambda: module.train(),
        "offload_fsdp_model_to_cpu": lambda: offload_fsdp_model_to_cpu(module, memory),
        "load_fsdp_model_to_gpu": lambda: load_fsdp_model_to_gpu(module, memory),
        "offload_fsdp_optimizer": lambda: offload_fsdp_optimizer(optimizer, memory),
        "load_fsdp_optimizer": lambda: load_fsdp_optimizer(optimizer, memory),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("settings", nargs="*", metavar="KEY=VALUE", type=setting)
    arguments = parser.parse_args()
    engine = build_engine(Fsdp2Config(**dict(arguments.settings)))
    for name, value in engine.description.items():
        print(f"{name:34} {value}")
    for step in range(2):
        with engine.train_mode():
            engine.train_batch(engine.batch(step))

    wall_ms: dict[str, list[float]] = {}
    cpu_ms: dict[str, list[float]] = {}
    parts: dict[str, Callable[[], object]] = {**parts_of(engine), "train_mode and train_batch": lambda: train(engine)}
    for _ in range(arguments.repeats):
        for name, part in parts.items():
            wall_s, cpu_s = time.perf_counter(), time.process_time()
            part()
            if not engine.memory.is_emulated:
                torch.cuda.synchronize()
            wall_ms.setdefault(name, []).append((time.perf_counter() - wall_s) * 1e3)
            cpu_ms.setdefault(name, []).append((time.process_time() - cpu_s) * 1e3)
    print(f"{'ms':34} {'wall':>9} {'least':>9} {'CPU':>9} {'least':>9}")
    for name in parts:
        columns = [figure for took in (wall_ms[name], cpu_ms[name]) for figure in (statistics.median(took), min(took))]
        print(f"{name:34} " + " ".join(f"{figure:9.1f}" for figure in columns))


def train(engine: Fsdp2Engine) -> None:
    with engine.train_mode():
        engine.train_batch(engine.batch(0)).item()


if __name__ == "__main__":
    main()
