"""Where parameters and optimizer state live: device memory, real or emulated, and its host buffers.

Memory model, the same for both kinds:

- A tensor lives either in a *device* allocation or in a *host* allocation. They never share storage: a load or an
  offload copies every byte.
- Host buffers are allocated at a tensor's first offload and reused by every later one, as pinned memory has to be,
  because pinning costs more than the copy. While the tensor is on the device its host buffer is stale, and kept.
- Device allocations are made by a load and freed by an offload. Freed memory returns to the allocator.

`cuda` is real: host buffers are pinned and copies do not block the host. A load needs no wait, since whatever uses the
tensor is ordered after the copy on the stream. An offload waits for its stream at the end, because the host could read
the buffers next. `emulated` is for machines without a GPU: both kinds of allocation are RAM and the link is `memcpy`.

A walk over a model that is already where it should be is torch's own `model.to`, so it costs exactly that.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator
from contextlib import contextmanager
from typing import Final, Literal

import torch
from torch import Tensor
from torch.distributed.tensor import DTensor

HOST: Final = "cpu"
"""Name of the host as a destination of `BaseEngine.to`."""
EMULATED: Final = "emulated"
"""Name of emulated device memory as a destination of `BaseEngine.to`; it must differ from `HOST`."""

Place = Literal["device", "host"]


class DeviceMemory:
    """Moves tensors between device and host, and knows on which side each owner (a model, an optimizer) is.

    Owners and the tensors named by slots are known by `id`: they have to live as long as this object.
    """

    def __init__(self, device: torch.device) -> None:
        self.device = device
        self.is_emulated = device.type == "cpu"
        self.name = EMULATED if self.is_emulated else device.type
        self._place: dict[int, Place | None] = {}
        self._host_buffers: dict[Hashable, Tensor] = {}

    def place(self, owner: object) -> Place | None:
        """Return where `owner` lives: `device` until it was first moved, None after a move that failed half-way."""
        return self._place.get(id(owner), "device")

    @contextmanager
    def moving(self, owner: object, place: Place) -> Iterator[TensorMover]:
        """Yield what moves the tensors of `owner` to `place`; wait for the copies where the host depends on them."""
        self._place[id(owner)] = None  # stays so if a copy fails; the next move then copies everything again
        yield TensorMover(self, place)
        if place == "host" and not self.is_emulated:
            torch.cuda.current_stream(self.device).synchronize()
            torch.cuda.empty_cache()  # the point of offloading is memory for somebody else
        self._place[id(owner)] = place

    def allocate(self, like: Tensor, place: Place, slot: Hashable | None) -> Tensor:
        """Return uninitialised memory shaped as `like`; on the host, the buffer kept for `slot` if there is one."""
        if place == "device":
            return torch.empty_like(like, device=self.device)
        kept = self._host_buffers.get(slot)
        if kept is not None and kept.shape == like.shape and kept.dtype == like.dtype:
            return kept
        buffer = torch.empty_like(like, device=HOST, pin_memory=not self.is_emulated)
        if slot is not None:
            self._host_buffers[slot] = buffer
        return buffer


class TensorMover:
    """Copies tensors to one place and counts the bytes."""

    def __init__(self, memory: DeviceMemory, place: Place) -> None:
        self._memory = memory
        self._place = place
        self.moved_bytes = 0

    def __call__(self, tensor: Tensor, slot: Hashable | None = None) -> Tensor:
        """Return a copy of `tensor` in the other place: of this rank's shard, if it is a DTensor.

        `slot` names the host buffer; None allocates one that is not kept (for gradients, which come and go).
        """
        source = tensor.to_local() if isinstance(tensor, DTensor) else tensor  # no grad here: the shard itself
        copy = self._memory.allocate(source, self._place, slot)
        copy.copy_(source, non_blocking=True)
        self.moved_bytes += copy.numel() * copy.element_size()
        if not isinstance(tensor, DTensor):
            return copy
        # As FSDP2 wraps its own shards: `DTensor.from_local` is differentiable and costs five times as much.
        return DTensor(copy, tensor._spec, requires_grad=False)  # type: ignore[no-untyped-call]  # torch has no types here
