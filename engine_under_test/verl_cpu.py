"""What has to be replaced for verl's engine to run on a CPU as it does on a GPU. On CUDA nothing is.

verl knows `cuda` and `npu`. On a CPU it lacks a few functions, and its engine tells host from device by comparing with
the string "cpu": where the device *is* "cpu", entering a mode never returns early and leaving one loads, so what
releases changed could not be seen. The patches give the control flow of a GPU. What they cannot give is copies: device
and host are the same memory, so a load or an offload walks everything and moves nothing.

Every patch is named in the engine's `description`, and so in results and reports.
"""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable
from dataclasses import dataclass
from functools import wraps
from typing import Any, Final, Literal

import torch

from engine_under_test.verl_release import ENGINE_BASE, ENGINE_FSDP, PLATFORM, find, has_platforms


class ShadowDevice(str):
    """A device name that torch reads as its text, but that equals nothing except itself."""

    __slots__ = ()

    def __eq__(self, other: object) -> bool:
        return self is other

    def __ne__(self, other: object) -> bool:
        return self is not other

    __hash__ = str.__hash__


SHADOW: Final = ShadowDevice("cpu")


@dataclass(frozen=True, kw_only=True)
class Patch:
    """One replacement: its name in results, when it is made, and for which releases."""

    name: str
    when: Literal["before_engine_import", "after_engine_import"]
    apply: Callable[[], None]
    needed: Callable[[], bool] = lambda: True


def apply(when: Literal["before_engine_import", "after_engine_import"]) -> list[str]:
    """Make the patches of that moment that this release needs. Returns their names."""
    chosen = [patch for patch in PATCHES if patch.when == when and patch.needed()]
    for patch in chosen:
        patch.apply()
    return [patch.name for patch in chosen]


def _lacks_empty_cache() -> bool:
    return not hasattr(torch.cpu, "empty_cache")


def _add_empty_cache() -> None:
    """There is no cache of device memory to empty, and verl asks whatever device it has to do so."""
    torch.cpu.empty_cache = lambda: None  # type: ignore[attr-defined]  # this is what adds it


def _set_platform() -> None:
    find(f"{PLATFORM}:set_platform")(cpu_platform(find(f"{PLATFORM}:PlatformBase")))


def cpu_platform(base: type[Any]) -> Any:
    """Return an instance of a subclass of verl's `PlatformBase` for a CPU.

    What an engine never asks for is there, because the base class demands it, and raises NotImplementedError.
    """

    def unused(name: str) -> Callable[..., Any]:
        def method(*_args: Any, **_kwargs: Any) -> Any:
            raise NotImplementedError(f"{name} of a CPU platform")

        return method

    known: dict[str, Any] = {
        "device_name": property(lambda _: "cpu"),
        "vendor_name": property(lambda _: "cpu"),
        "device_module": property(lambda _: torch.cpu),
        "is_available": lambda _: True,
        "current_device": lambda _: "cpu",
        "device_count": lambda _: 1,
        "set_device": lambda _self, _index: None,
        "synchronize": lambda _self, _index=None: None,
        "manual_seed": lambda _, seed: torch.manual_seed(seed),
        "manual_seed_all": lambda _, seed: torch.manual_seed(seed),
        "empty_cache": lambda _: None,
        "get_device_capability": lambda _self, _index=0: (None, None),
        "communication_backend_name": lambda _: "gloo",
        "nvtx_range": lambda _self, _message: contextlib.nullcontext(),
        "is_ipc_supported": lambda _: False,
    }
    abstract: frozenset[str] = getattr(base, "__abstractmethods__", frozenset())
    rest = {name: unused(name) for name in abstract if name not in known}
    return type("CpuPlatform", (base,), {**known, **rest})()


def _register_engine() -> None:
    register = find(f"{ENGINE_BASE}:EngineRegistry.register")
    register("language_model", "fsdp2", device=SHADOW)(find(f"{ENGINE_FSDP}:FSDPEngineWithLMHead"))


def _shadow_device() -> None:
    """Let mode switch and registry see a device that is not "cpu", and `FSDPEngine.to` the same while it runs.

    Everything else in the engine's module goes on seeing "cpu": `torch.autocast` compares, too.
    """
    base, fsdp = find(f"{ENGINE_BASE}:get_device_name"), find(f"{ENGINE_FSDP}:FSDPEngine")
    original = fsdp.to
    moving = False

    @wraps(base)
    def shadow() -> str:
        return SHADOW

    @wraps(base)
    def shadow_while_moving() -> str:
        return SHADOW if moving else str(base())

    @wraps(original)
    def to(self: Any, *args: Any, **kwargs: Any) -> Any:
        nonlocal moving
        moving = True
        try:
            return original(self, *args, **kwargs)
        finally:
            moving = False

    _replace(ENGINE_BASE, "get_device_name", shadow)
    _replace(ENGINE_FSDP, "get_device_name", shadow_while_moving)
    fsdp.to = to


def _clip_one_by_one() -> None:
    """The first `_foreach_*` over DTensors is quadratic in their number: minutes where a loop takes seconds."""
    clip = find(f"{ENGINE_FSDP}:fsdp2_clip_grad_norm_")

    @wraps(clip)
    def clip_one_by_one(*args: Any, **kwargs: Any) -> Any:
        return clip(*args, **{**kwargs, "foreach": False})

    _replace(ENGINE_FSDP, "fsdp2_clip_grad_norm_", clip_one_by_one)


def _replace(module: str, name: str, value: object) -> None:
    setattr(sys.modules[module], name, value)


PATCHES: Final = (
    Patch(
        name="torch.cpu.empty_cache added",
        when="before_engine_import",
        apply=_add_empty_cache,
        needed=_lacks_empty_cache,
    ),
    Patch(name="CPU platform set", when="before_engine_import", apply=_set_platform, needed=has_platforms),
    Patch(name="engine registered for the CPU", when="after_engine_import", apply=_register_engine),
    Patch(name="device name unequal to 'cpu' in the mode switch", when="after_engine_import", apply=_shadow_device),
    Patch(name="gradient clipping with foreach=False", when="after_engine_import", apply=_clip_one_by_one),
)
