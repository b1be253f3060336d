"""Low-rank adapters on frozen linears, with the module tree that PEFT gives them.

A wrapped linear is six modules (itself, `base_layer`, two `ModuleDict`s and an adapter in each), because the size of
the tree is what a walk over the model costs. Source: Hu et al. 2021, LoRA; names as in `peft.tuners.lora.Linear`.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional

ADAPTER = "default"


class LoraLinear(nn.Module):
    """y = x Wᵀ + (alpha / rank) · x Aᵀ Bᵀ with W frozen. B starts at zero, so training starts at the base model."""

    def __init__(self, base: nn.Linear, *, rank: int, alpha: float) -> None:
        super().__init__()
        self.base_layer = base
        self.lora_A = nn.ModuleDict({ADAPTER: nn.Linear(base.in_features, rank, bias=False)})
        self.lora_B = nn.ModuleDict({ADAPTER: nn.Linear(rank, base.out_features, bias=False)})
        self.scaling = alpha / rank

    def forward(self, rows: Tensor) -> Tensor:
        """Map rows (n, in) to (n, out). Reads the weights directly: child calls would cost more than tiny matmuls."""
        base = functional.linear(rows, self.base_layer.weight)
        down = functional.linear(rows, _weight(self.lora_A))
        return torch.addmm(base, down, _weight(self.lora_B).t(), alpha=self.scaling)


def freeze_base(module: nn.Module) -> None:
    """Leave only the adapters of `module` trainable."""
    for name, parameter in module.named_parameters():
        parameter.requires_grad_(".lora_A." in name or ".lora_B." in name)


def linear(in_features: int, out_features: int, *, rank: int, alpha: float) -> nn.Module:
    """Return a linear without bias, wrapped in an adapter when `rank` is not 0."""
    base = nn.Linear(in_features, out_features, bias=False)
    return LoraLinear(base, rank=rank, alpha=alpha) if rank else base


def _weight(adapters: nn.ModuleDict) -> Tensor:
    weight = adapters[ADAPTER].weight
    assert isinstance(weight, Tensor)
    return weight
