"""What every engine has: two modes, and a switch that brings to the device what a mode needs and takes it back.

The interface is that of `verl.workers.engine.base.BaseEngine`. A subclass says what is offloaded and how it moves; the
rules of switching are here:

- entering a mode loads what is offloaded, leaving it offloads the same; eval mode moves the model only;
- leaving train mode zeroes the gradients first, so that they are never copied;
- modes do not nest, and an exception inside one neither skips the offload nor is lost.
"""

from __future__ import annotations

import gc
from abc import ABC, abstractmethod
from types import TracebackType
from typing import Generic, Literal, TypeVar

from torch import Tensor

from engine_under_test.device import HOST

Mode = Literal["train", "eval"]
Batch = TypeVar("Batch")


class BaseEngine(ABC, Generic[Batch]):
    """An engine that trains or infers inside a mode: `with engine.train_mode(): engine.train_batch(batch)`."""

    mode: Mode | None = None
    """The mode that is entered, or None."""

    @property
    @abstractmethod
    def device_name(self) -> str:
        """Name of the device as a destination of `to`."""

    @property
    @abstractmethod
    def is_param_offload_enabled(self) -> bool:
        """Whether parameters live on the host outside a mode."""

    @property
    @abstractmethod
    def is_optimizer_offload_enabled(self) -> bool:
        """Whether optimizer state lives on the host outside train mode."""

    @property
    def always_switches(self) -> bool:
        """Whether entering a mode loads everything even when nothing is offloaded, as engines once did."""
        return False

    def to(self, device: str, model: bool = True, optimizer: bool = True, grad: bool = True) -> None:
        """Load parts of the engine to `device_name`, or offload them to "cpu".

        Gradients live in the model's tensors: they move with it, and asking for them alone is a `ValueError`. A load
        ends with a garbage collection, which frees device memory that only a reference cycle still holds.
        """
        if device not in (self.device_name, HOST):
            raise ValueError(f"device is {device!r}; allowed: {self.device_name!r} or {HOST!r}")
        if grad and not model:
            raise ValueError("grad=True with model=False: gradients move with the model; pass model=True or grad=False")
        if device == HOST:
            self.offload(model=model, optimizer=optimizer)
        else:
            self.load(model=model, optimizer=optimizer)
            gc.collect()

    def train_mode(self, *, disable_auto_offload: bool = False) -> EngineTrainModeCtx:
        """Return the context to train in. `disable_auto_offload` leaves everything where it is."""
        return EngineTrainModeCtx(self, disable_auto_offload=disable_auto_offload)

    def eval_mode(self, *, disable_auto_offload: bool = False) -> EngineEvalModeCtx:
        """Return the context to infer in. `disable_auto_offload` leaves everything where it is."""
        return EngineEvalModeCtx(self, disable_auto_offload=disable_auto_offload)

    def train_batch(self, batch: Batch) -> Tensor:
        """Run one optimizer step on `batch`, in train mode, from zeroed gradients. Returns the loss."""
        self.optimizer_zero_grad()
        loss = self.forward_backward(batch)
        self.optimizer_step()
        return loss

    def require_mode(self, mode: Mode, what: str) -> None:
        """Refuse `what` outside its mode, where parameters may be on the host."""
        if self.mode != mode:
            raise RuntimeError(f"{what} needs {mode} mode, the engine is in {self.mode or 'none'}: use {mode}_mode()")

    @abstractmethod
    def load(self, *, model: bool, optimizer: bool) -> None:
        """Move the parts to the device."""

    @abstractmethod
    def offload(self, *, model: bool, optimizer: bool) -> None:
        """Move the parts to the host."""

    @abstractmethod
    def set_training(self, training: bool) -> None:
        """Set the module's training flag, where it differs."""

    @abstractmethod
    def forward_backward(self, batch: Batch) -> Tensor:
        """Accumulate gradients of `batch`, in train mode. Returns the loss."""

    @abstractmethod
    def optimizer_step(self) -> Tensor:
        """Clip the gradients and update the parameters, in train mode. Returns the norm before clipping."""

    @abstractmethod
    def optimizer_zero_grad(self) -> None:
        """Drop all gradients."""

    @abstractmethod
    def infer_batch(self, batch: Batch) -> Tensor:
        """Run forward alone, in eval mode. Returns the loss."""


class BaseEngineCtx:
    """Context of one mode: switches on entry, switches back on exit."""

    mode: Mode

    def __init__(self, engine: BaseEngine[Batch], *, disable_auto_offload: bool = False) -> None:
        self.engine = engine
        self.disable_auto_offload = disable_auto_offload

    def _context_switch(self, device: str) -> None:
        """Move what the mode needs to `device`; nothing at all when nothing is offloaded."""
        if self.disable_auto_offload:
            return
        engine = self.engine
        model, optimizer = engine.is_param_offload_enabled, engine.is_optimizer_offload_enabled
        if device != HOST and engine.always_switches:
            model = optimizer = True
        optimizer = optimizer and self.mode == "train"
        if model or optimizer:
            engine.to(device, model=model, optimizer=optimizer, grad=model and self.mode == "train")

    def __enter__(self) -> None:
        if self.engine.mode is not None:
            raise RuntimeError(
                f"{self.mode}_mode() inside {self.engine.mode}_mode(): modes do not nest; leave it first"
            )
        self._context_switch(self.engine.device_name)
        self.engine.set_training(self.mode == "train")
        self.engine.mode = self.mode

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            self._leave()
        except Exception as failure:
            if error is None:
                raise
            # The first error is the cause, and the one to see; raising here would put the second in its place.
            error.add_note(f"leaving {self.mode} mode after this failed as well: {type(failure).__name__}: {failure}")
        finally:
            self.engine.mode = None

    def _leave(self) -> None:
        self._context_switch(HOST)


class EngineTrainModeCtx(BaseEngineCtx):
    """Train mode."""

    mode = "train"

    def _leave(self) -> None:
        self.engine.optimizer_zero_grad()
        super()._leave()


class EngineEvalModeCtx(BaseEngineCtx):
    """Eval mode: moves the model only."""

    mode = "eval"
