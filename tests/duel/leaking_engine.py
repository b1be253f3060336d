"""A small training loop that may keep memory or time from step to step, for duels on real launches."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import torch
from torch.utils.data import DataLoader, Dataset


class Items(Dataset[torch.Tensor]):
    """Items of which the worker that makes them keeps something."""

    def __init__(self, keep_bytes: int) -> None:
        self.keep_bytes = keep_bytes
        self.kept: list[bytes] = []

    def __len__(self) -> int:
        return 1 << 20

    def __getitem__(self, index: int) -> torch.Tensor:
        self.kept.append(b"x" * self.keep_bytes)
        return torch.full((64,), float(index % 7))


class Engine:
    """Forward and backward take and free the same memory in every step."""

    def __init__(self, step_ms: float, keep_bytes: int, loader_keeps_bytes: int, slower_us: float) -> None:
        self.step_ms, self.keep_bytes, self.slower_us = step_ms, keep_bytes, slower_us
        self.items: Iterator[Any] | None = None
        if loader_keeps_bytes:
            self.items = iter(DataLoader(Items(loader_keeps_bytes), num_workers=1, batch_size=1))
        self.kept: list[bytes] = []
        self.steps = 0

    def batch(self, step: int) -> torch.Tensor:
        return torch.full((64,), float(step % 7)) if self.items is None else next(self.items)

    def forward_backward(self, batch: torch.Tensor) -> torch.Tensor:
        activations = torch.ones(1 << 20)  # 4 MB
        time.sleep((self.step_ms + self.slower_us / 1000 * self.steps) / 1000)
        return (activations[:64] * batch).sum()

    def optimizer_step(self) -> None:
        self.steps += 1
        self.kept.append(b"x" * self.keep_bytes)


def build(step_ms: float = 10, keep_bytes: int = 0, loader_keeps_bytes: int = 0, slower_us: float = 0) -> Engine:
    return Engine(step_ms, keep_bytes, loader_keeps_bytes, slower_us)
