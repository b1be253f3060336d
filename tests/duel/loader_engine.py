"""Loops that work in the background, for duels on real launches: what happens between steps is what they differ in."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from typing import Any, Literal

import torch
from torch.utils.data import DataLoader, Dataset

Work = Literal["wait", "compute"]


def burn(milliseconds: float) -> None:
    """Compute for that long, measured in processor time of this thread."""
    until = time.thread_time() + milliseconds / 1000
    while time.thread_time() < until:
        sum(range(1000))


class Items(Dataset[torch.Tensor]):
    """Items that take a while to make."""

    def __init__(self, item_ms: float, work: Work) -> None:
        self.item_ms, self.work = item_ms, work

    def __len__(self) -> int:
        return 1 << 20

    def __getitem__(self, index: int) -> torch.Tensor:
        if self.work == "compute":
            burn(self.item_ms)
        else:
            time.sleep(self.item_ms / 1000)
        return torch.tensor(float(index % 7))


class Engine:
    """A step takes the next item of its loader, then waits, as for a device, or computes."""

    def __init__(self, step_ms: float, item_ms: float, work: Work, workers: int, burning: bool) -> None:
        self.step_ms, self.work = step_ms, work
        self.items: Iterator[Any] | None = None
        if workers:
            self.items = iter(DataLoader(Items(item_ms, work), num_workers=workers, batch_size=1))
        if burning:
            threading.Thread(target=burn, args=(10**9,), daemon=True).start()

    def batch(self, step: int) -> float:
        return float(step)

    def train_batch(self, batch: float) -> torch.Tensor:
        item = torch.tensor([batch]) if self.items is None else next(self.items)
        if self.work == "compute":
            burn(self.step_ms)
        else:
            time.sleep(self.step_ms / 1000)
        return item.sum()


def build(
    step_ms: float = 20, item_ms: float = 5, work: Work = "wait", workers: int = 4, burning: bool = False
) -> Engine:
    return Engine(step_ms, item_ms, work, workers, burning)
