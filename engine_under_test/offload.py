"""Move a model's parameters, or an optimizer's state, between device and host. Each function returns bytes moved.

The four names are those of verl (`verl.utils.fsdp_utils`), so that one probe file fits both. What is already in its
place is walked and not copied, and the walk costs what torch's costs. The Adam step counter stays on the CPU: the
optimizer reads it on the host, and a load of it would make every step wait for the device.
"""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from engine_under_test.device import HOST, DeviceMemory, Place


@torch.no_grad()
def load_fsdp_model_to_gpu(model: nn.Module, memory: DeviceMemory) -> int:
    """Copy every parameter, gradient and buffer to the device. Returns bytes moved, 0 when it is there already."""
    if memory.place(model) == "device":
        model.to(memory.device)
        return 0
    return _move_model(model, memory, "device")


@torch.no_grad()
def offload_fsdp_model_to_cpu(model: nn.Module, memory: DeviceMemory) -> int:
    """Copy every parameter, gradient and buffer to the host. Returns bytes moved, 0 when it is there already."""
    if memory.place(model) == "host":
        model.to(HOST)
        return 0
    return _move_model(model, memory, "host")


@torch.no_grad()
def load_fsdp_optimizer(optimizer: Optimizer, memory: DeviceMemory) -> int:
    """Copy the optimizer's state to the device. Returns bytes moved, 0 when it is there already or still empty."""
    return _move_optimizer(optimizer, memory, "device")


@torch.no_grad()
def offload_fsdp_optimizer(optimizer: Optimizer, memory: DeviceMemory) -> int:
    """Copy the optimizer's state to the host. Returns bytes moved, 0 when it is there already or still empty."""
    return _move_optimizer(optimizer, memory, "host")


def _move_model(model: nn.Module, memory: DeviceMemory, place: Place) -> int:
    with memory.moving(model, place) as move:
        # What model.to does, with our copy in place of Tensor.to. FSDP2 learns of the new shards in its own _apply.
        model._apply(  # type: ignore[no-untyped-call]  # torch leaves it unannotated
            lambda tensor: move(tensor, id(tensor) if isinstance(tensor, nn.Parameter) else None)
        )
    return move.moved_bytes


def _move_optimizer(optimizer: Optimizer, memory: DeviceMemory, place: Place) -> int:
    if not optimizer.state:
        return 0
    if memory.place(optimizer) == place:
        device = memory.device if place == "device" else HOST
        for state, key, _ in _state_tensors(optimizer):
            state[key] = state[key].to(device)
        return 0
    with memory.moving(optimizer, place) as move:
        for state, key, slot in _state_tensors(optimizer):
            state[key] = move(state[key], slot)
    return move.moved_bytes


def _state_tensors(optimizer: Optimizer) -> Iterator[tuple[dict[str, Tensor], str, tuple[int, str]]]:
    """Yield (state of one parameter, key, slot) for every tensor but the step counter."""
    for parameter, state in optimizer.state.items():
        for key, value in state.items():
            if key != "step" and isinstance(value, Tensor):
                yield state, key, (id(parameter), key)
