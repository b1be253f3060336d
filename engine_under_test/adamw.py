"""AdamW and gradient clipping over this rank's shards, as plain tensors.

AdamW and a scaling work element by element, and the norm of all gradients is the root of a sum over ranks, so a shard
needs nothing of the others but that sum. The results are those of the DTensor path without its dispatch for every
parameter and operation, and without `_foreach_*` on DTensors, whose first call is quadratic in the number of tensors.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed.tensor import DTensor
from torch.optim import Optimizer
from torch.optim.adamw import adamw

BETAS = (0.9, 0.999)
EPS = 1e-8
WEIGHT_DECAY = 0.01


class ShardedAdamW(Optimizer):
    """AdamW whose moments are plain tensors, one pair a parameter, where the parameter's shard is.

    Source: Loshchilov & Hutter 2019; the arithmetic is `torch.optim.adamw.adamw` with `foreach=True`.
    """

    def __init__(self, parameters: Iterable[Tensor], *, learning_rate: float) -> None:
        super().__init__(parameters, {"lr": learning_rate})

    @torch.no_grad()
    def step(self, closure: Callable[[], Any] | None = None) -> None:  # type: ignore[override]  # returns no loss
        """Update every parameter that has a gradient."""
        assert closure is None, "a closure would need a forward pass for every shard"
        for group in self.param_groups:
            with_gradient = [p for p in group["params"] if p.grad is not None]
            states = [self._state_of(p) for p in with_gradient]
            adamw(
                [local_shard(p) for p in with_gradient],
                [local_shard(p.grad) for p in with_gradient],
                [state["exp_avg"] for state in states],
                [state["exp_avg_sq"] for state in states],
                [],
                [state["step"] for state in states],
                foreach=True,
                amsgrad=False,
                beta1=BETAS[0],
                beta2=BETAS[1],
                lr=group["lr"],
                weight_decay=WEIGHT_DECAY,
                eps=EPS,
                maximize=False,
            )

    def _state_of(self, parameter: Tensor) -> dict[str, Tensor]:
        state: dict[str, Tensor] = self.state[parameter]
        if not state:
            shard = local_shard(parameter)
            state["step"] = torch.zeros((), dtype=torch.float32)  # on the CPU, always: the host reads it
            state["exp_avg"] = torch.zeros_like(shard)
            state["exp_avg_sq"] = torch.zeros_like(shard)
        return state


@torch.no_grad()
def clip_gradients(parameters: Iterable[Tensor], *, max_norm: float) -> Tensor:
    """Scale all gradients so that their L2 norm over all ranks is at most `max_norm`.

    Returns the norm before, 0-d float32. As `torch.nn.utils.clip_grad_norm_`, with one all-reduce and no
    wait for the device.
    """
    shards = [local_shard(p.grad) for p in parameters if p.grad is not None]
    squares = torch.stack(torch._foreach_norm(shards, dtype=torch.float32)).square().sum()
    dist.all_reduce(squares)
    total = squares.sqrt()
    torch._foreach_mul_(shards, (max_norm / (total + 1e-6)).clamp(max=1.0))
    return total


def local_shard(tensor: Tensor) -> Tensor:
    """Return this rank's part of a DTensor as a plain tensor that shares its storage; other tensors as they are."""
    return tensor.to_local() if isinstance(tensor, DTensor) else tensor
