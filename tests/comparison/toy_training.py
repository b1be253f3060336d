"""A data-parallel training of a tiny model in one process, with every piece of a step in reach of a mutant."""

from __future__ import annotations

import copy
import math
from typing import Any

import torch

from harness.store import DuelStepRecord, PairRecord, SideName
from harness.worker.state import state_of
from harness.worker.step import loss_of

RANKS, STEPS = 2, 6
LAST = STEPS - 1


class Toy:
    """Two replicas of one model. Each method is a piece that a real engine can get wrong; tests replace them."""

    lr, momentum, decay, clip, seed, dropout = 0.05, 0.9, 0.01, 0.1, 1, 0.1

    def __init__(self) -> None:
        torch.manual_seed(self.seed)
        model = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.ReLU(), torch.nn.Linear(8, 1))
        self.models = [copy.deepcopy(model) for _ in range(RANKS)]
        self.velocity = [[torch.zeros_like(one) for one in model.parameters()] for _ in range(RANKS)]

    def batch(self, step: int, rank: int) -> torch.Tensor:
        return torch.randn(16, 8, generator=torch.Generator().manual_seed(100 * step + rank))

    def target(self, batch: torch.Tensor) -> torch.Tensor:
        return batch.sum(1, keepdim=True).sin()

    def forward(self, rank: int, batch: torch.Tensor, step: int) -> torch.Tensor:
        keep = torch.rand(batch.shape, generator=torch.Generator().manual_seed(step)) >= self.dropout
        output: torch.Tensor = self.models[rank](batch * keep)
        return output

    def loss(self, rank: int, step: int) -> torch.Tensor:
        batch = self.batch(step, rank)
        return (self.forward(rank, batch, step) - self.target(batch)).square().mean()

    def backward(self, rank: int, step: int, loss: torch.Tensor) -> None:
        torch.autograd.backward(loss)

    def reported(self, rank: int, step: int, loss: torch.Tensor) -> Any:
        return loss

    def gradients(self, rank: int) -> list[torch.Tensor]:
        return [torch.zeros_like(one) if one.grad is None else one.grad for one in self.models[rank].parameters()]

    def reduce(self, step: int) -> None:
        for parts in zip(*(self.gradients(rank) for rank in range(RANKS)), strict=True):
            mean = torch.stack(parts).mean(0)
            for part in parts:
                part.copy_(mean)

    def clip_norm(self, step: int) -> float:
        return self.clip

    def rate(self, step: int) -> float:
        return self.lr / (1 + step)

    def update(self, rank: int, step: int) -> None:
        grads = self.gradients(rank)
        norm = math.sqrt(sum(float(grad.square().sum()) for grad in grads))
        share = min(1.0, self.clip_norm(step) / norm) if norm else 1.0
        with torch.no_grad():
            for one, grad, speed in zip(self.models[rank].parameters(), grads, self.velocity[rank], strict=True):
                speed.mul_(self.momentum).add_(grad * share + self.decay * one)
                one.sub_(self.rate(step) * speed)

    def clear(self, rank: int, step: int) -> None:
        self.models[rank].zero_grad()

    def after(self, step: int) -> None: ...

    def step(self, step: int) -> list[Any]:
        losses = [self.loss(rank, step) for rank in range(RANKS)]
        for rank, loss in enumerate(losses):
            self.backward(rank, step, loss)
        self.reduce(step)
        for rank in range(RANKS):
            self.update(rank, step)
            self.clear(rank, step)
        self.after(step)
        return [self.reported(rank, step, loss) for rank, loss in enumerate(losses)]


def records(toy: Toy, side: SideName) -> list[DuelStepRecord]:
    """Return the steps of a side as a duel stores them."""
    return [
        DuelStepRecord(
            pair=1, side=side, sequence=step, rank=rank, slot=0, measured=True, began_ns=0, duration_ns=1,
            loss=loss_of(loss, "forward_backward"), tokens=None, figures={},
        )
        for step in range(STEPS)
        for rank, loss in enumerate(toy.step(step))
    ]  # fmt: skip


def pair(base: Toy, head: Toy) -> PairRecord:
    """Return the launch pair, with the state that each side ended in."""
    base_launch, head_launch = (
        {"state": [[str(figure) for figure in state_of(model).packed()] for model in toy.models]}
        for toy in (base, head)
    )
    return PairRecord(
        pair=1, started_at="", order_seed=0, starter="base", start_ns=0, conditions={},
        base_launch=base_launch, head_launch=head_launch,
    )  # fmt: skip
