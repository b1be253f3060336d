"""An engine that fails on request, for the tests of launches. Lives apart so that it can be an `engine_root`."""

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from typing import Literal

import torch
import torch.distributed as dist

Fault = Literal["none", "raise", "kill", "hang", "exit", "leave", "shout", "text", "build"]


class Engine:
    def __init__(self, fault: Fault, on_rank: int, at_step: int) -> None:
        self.fault, self.on_rank, self.at_step = fault, on_rank, at_step
        self.step = -1
        self.weight = torch.ones(4, requires_grad=True)
        self.description = {
            "path": sys.path,
            "harness_file": sys.modules["harness"].__file__,
            "threads": os.environ["OMP_NUM_THREADS"],
            "master_port": os.environ["MASTER_PORT"],
            "seed_drew": float(torch.rand(())),
        }

    def batch(self, step: int) -> torch.Tensor:
        self.step = step
        return torch.full((4,), step + 10.0 * dist.get_rank())

    @contextlib.contextmanager
    def train_mode(self) -> Iterator[None]:
        load(self)
        yield

    def forward_backward(self, batch: torch.Tensor) -> torch.Tensor | str:
        if self.step == self.at_step and dist.get_rank() == self.on_rank:
            misbehave(self.fault)
        loss = (self.weight * batch).sum()
        torch.autograd.backward(loss)
        dist.all_reduce(self.weight.grad)
        return "0.5" if self.fault == "text" else loss

    def optimizer_step(self) -> None:
        self.weight.grad = None

    def infer_batch(self, batch: torch.Tensor) -> torch.Tensor:
        return batch

    def num_tokens(self, batch: torch.Tensor) -> int:
        return batch.numel()


def load(engine: Engine) -> int:
    return 64


def misbehave(fault: Fault) -> None:
    print("about to", fault, flush=True)
    if fault == "raise":
        raise ArithmeticError("the loss is not finite\nsecond line")
    if fault == "kill":
        os.kill(os.getpid(), signal.SIGKILL)
    if fault == "exit":
        os._exit(9)
    if fault == "leave":
        os._exit(0)
    if fault == "shout":
        raise ArithmeticError("x" * 1_000_000)
    if fault == "hang":
        linger_here()


def linger_here() -> None:
    time.sleep(600)


def build(fault: Fault = "none", on_rank: int = 1, at_step: int = 1, helper: bool = False) -> Engine:
    if helper:  # as an engine's own agent: another session, no pipe to its parent, and it ignores a hang-up
        subprocess.Popen(["sleep", "600"], start_new_session=True, stdin=subprocess.DEVNULL)
    if fault == "build" and dist.get_rank() == on_rank:
        raise MemoryError("no room for the optimizer")
    return Engine(fault, on_rank, at_step)
