"""Seeded synthetic token batches: any rank can rebuild any rank's batch of any step from three integers."""

from __future__ import annotations

import torch
from torch import Tensor


def token_batch(*, seed: int, step: int, rank: int, size: int, length: int, vocab_size: int) -> Tensor:
    """Return int64 tokens (size, length) on the CPU, the same for the same arguments on every machine.

    Low ids are common (the density falls as 1/√id) and every second token follows from the one before it, so that
    there is something to learn.
    """
    generator = torch.Generator().manual_seed(hash_seed(seed, step, rank))
    uniform = torch.rand(size, length, generator=generator, dtype=torch.float64)
    tokens = (uniform.square() * vocab_size).long()
    tokens[:, 1::2] = (tokens[:, 0 : length - length % 2 : 2] * 5 + 1) % vocab_size
    return tokens


def hash_seed(*parts: int) -> int:
    """Mix integers into one 63-bit seed (FNV-1a over words), so that neighbouring steps and ranks do not correlate."""
    value = 0xCBF29CE484222325
    for part in parts:
        value = ((value ^ (part & 0xFFFFFFFFFFFFFFFF)) * 0x100000001B3) & 0xFFFFFFFFFFFFFFFF
        value ^= value >> 32
    return value >> 1
