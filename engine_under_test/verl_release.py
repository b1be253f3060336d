"""Finds verl and what the adapter needs of it. Whatever is missing is said in one line: what was looked for, and where.

verl has no stable interface for its engines, and moves things between releases. The adapter was read against 0.7.0 to
0.9.1; with a release that it does not fit it must stop at import, before anything is measured.
"""

from __future__ import annotations

import importlib
import importlib.util
import sys
from typing import Any, Final

ADAPTED_TO: Final = "0.7.0 to 0.9.1"
ENGINE_BASE: Final = "verl.workers.engine.base"
ENGINE_FSDP: Final = "verl.workers.engine.fsdp.transformer_impl"
PLATFORM: Final = "verl.plugin.platform"

NEEDED: Final = (
    f"{ENGINE_BASE}:EngineRegistry.new",
    f"{ENGINE_BASE}:EngineRegistry.register",
    f"{ENGINE_BASE}:BaseEngine.train_batch",
    f"{ENGINE_BASE}:BaseEngine.infer_batch",
    f"{ENGINE_BASE}:get_device_name",
    f"{ENGINE_FSDP}:FSDPEngineWithLMHead.initialize",
    f"{ENGINE_FSDP}:FSDPEngine.to",
    f"{ENGINE_FSDP}:get_device_name",
    f"{ENGINE_FSDP}:fsdp2_clip_grad_norm_",
    "verl.workers.config:HFModelConfig",
    "verl.workers.config:FSDPEngineConfig",
    "verl.workers.config:FSDPOptimizerConfig",
    "verl.trainer.config:CheckpointConfig",
    "verl.utils.tensordict_utils:get_tensordict",
    "verl.workers.utils.losses:sft_loss",
)
"""`module:attribute` of everything the adapter calls or replaces."""


class UnsupportedReleaseError(ImportError):
    """This verl is not one the adapter fits."""


def require_verl() -> str:
    """Import verl and return its version. Raises ImportError where there is none."""
    if importlib.util.find_spec("verl") is None:
        raise ImportError(
            f"verl is not installed in the environment of {sys.executable}, and this scenario measures it; "
            "give an environment that has it, or a release of it as the subject (docs/verl.md)"
        )
    return str(getattr(_imported("verl"), "__version__", "of unknown version"))


def has_platforms() -> bool:
    """Whether this release asks a platform object for its device (from 0.9). verl is imported."""
    try:
        return importlib.util.find_spec(PLATFORM) is not None
    except ModuleNotFoundError:  # of its parent package
        return False


def find(place: str) -> Any:
    """Return what `module:attribute.attribute` names.

    Raises UnsupportedReleaseError where verl has it no longer, and ImportError where verl itself lacks a package.
    """
    module_name, _, attributes = place.partition(":")
    found = _imported(module_name)
    for attribute in attributes.split("."):
        if not hasattr(found, attribute):
            raise UnsupportedReleaseError(_moved(f"{attributes} in {module_name}"))
        found = getattr(found, attribute)
    return found


def check() -> None:
    """Look for all of `NEEDED`. Raises as `find`."""
    for place in NEEDED:
        find(place)


def _imported(module_name: str) -> Any:
    try:
        return importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        missing = error.name or ""
        if missing == module_name or module_name.startswith(f"{missing}."):
            raise UnsupportedReleaseError(_moved(f"module {module_name}")) from error
        raise ImportError(
            f"{module_name} needs {missing!r}, which the environment of {sys.executable} lacks (docs/verl.md says what "
            "verl needs beside itself)"
        ) from error


def _moved(what: str) -> str:
    version = getattr(sys.modules.get("verl"), "__version__", "of unknown version")
    return f"verl {version} has no {what}, where the adapter looked for it; the adapter fits verl {ADAPTED_TO}"
