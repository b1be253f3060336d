"""Fill a module's weights from a seeded generator, before sharding: the same whatever the number of ranks."""

from __future__ import annotations

import math

import torch
from torch import nn

WEIGHT_STD = 0.02


@torch.no_grad()
def initialise_weights(module: nn.Module, generator: torch.Generator) -> None:
    """Norms become 1, adapter B 0, adapter A uniform as in PEFT, everything else normal with std 0.02 (Qwen3's).

    Draws in the order of `named_modules`, on the device that the module and the generator share.
    """
    for name, child in module.named_modules():
        for parameter in child.parameters(recurse=False):
            if isinstance(child, nn.RMSNorm):
                parameter.fill_(1.0)
            elif ".lora_B." in name:
                parameter.zero_()
            elif ".lora_A." in name:
                bound = 1 / math.sqrt(parameter.shape[1])  # kaiming_uniform_ with a = √5
                parameter.uniform_(-bound, bound, generator=generator)
            else:
                parameter.normal_(0.0, WEIGHT_STD, generator=generator)
