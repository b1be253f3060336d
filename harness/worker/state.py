"""What a rank's steps have made of its parameters: figures that two engines which did the same work agree on.

An engine shows its parameters as `parameters()`, or has a `module` that does; one that shows none is not asked. Read
once, after the last step, so it costs no step anything.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import torch


@dataclass(frozen=True, kw_only=True)
class State:
    """`checksum` is a sum over the parameters, each weighted by its place, and `scale` the same of absolute values.

    NaN where a figure cannot be told: no parameters, or no gradients, which most engines drop at the end of a step.
    """

    checksum: float = math.nan
    scale: float = math.nan
    gradient_norm: float = math.nan

    def packed(self) -> list[float]:
        """Return the figures as numbers."""
        return [self.checksum, self.scale, self.gradient_norm]


def parameters_of(engine: Any) -> list[torch.Tensor]:
    """Return this rank's own part of the engine's parameters; none where the engine shows none."""
    for owner in (engine, getattr(engine, "module", None)):
        listing = getattr(owner, "parameters", None)
        if callable(listing):
            try:
                found: Iterable[Any] = listing()
                return [_local(one).detach() for one in found if isinstance(one, torch.Tensor)]
            except Exception:  # an engine's `parameters` may be something else altogether
                return []
    return []


def precision_of(engine: Any) -> str | None:
    """Return the coarsest floating point type among the parameters, as `bfloat16`."""
    kinds = {one.dtype for one in parameters_of(engine) if one.is_floating_point()}
    return str(max(kinds, key=lambda kind: torch.finfo(kind).eps)).removeprefix("torch.") if kinds else None


def state_of(engine: Any) -> State:
    """Return the state that the engine is in."""
    with torch.no_grad():
        own = [one for one in parameters_of(engine) if one.is_floating_point() and one.device.type != "meta"]
        if not own:
            return State()
        checksum = scale = squares = 0.0
        gradients = [grad for one in _with_gradients(engine) if (grad := one.grad) is not None]
        for place, one in enumerate(own, start=1):
            checksum += place * float(one.sum(dtype=torch.float64))
            scale += place * float(torch.linalg.vector_norm(one, 1, dtype=torch.float64))
        for grad in gradients:
            squares += float(torch.linalg.vector_norm(_local(grad), 2, dtype=torch.float64)) ** 2
        return State(checksum=checksum, scale=scale, gradient_norm=math.sqrt(squares) if gradients else math.nan)


def _with_gradients(engine: Any) -> list[Any]:
    owner = engine if callable(getattr(engine, "parameters", None)) else engine.module
    return [one for one in owner.parameters() if isinstance(one, torch.Tensor)]


def _local(one: Any) -> torch.Tensor:
    """Return what this rank holds of a tensor that may be spread over several."""
    local: torch.Tensor = one.to_local() if hasattr(one, "to_local") else one
    return local
