"""Packages that look to the adapter like verl: what it calls and replaces, and nothing behind it.

The mode switch is verl 0.8's own, line by line, because the patches exist for its comparisons with "cpu".
"""

from __future__ import annotations

from pathlib import Path

DEVICE = """
def get_device_name():
    return "cpu"
"""

PLATFORM = """
import abc

current = None

class PlatformBase(abc.ABC):
    @property
    @abc.abstractmethod
    def device_name(self): ...
    @abc.abstractmethod
    def empty_cache(self): ...
    @abc.abstractmethod
    def nvtx_range(self, message): ...
    @abc.abstractmethod
    def fold_space(self): ...

def set_platform(platform):
    global current
    current = platform
"""

BASE = """
from verl.utils.device import get_device_name

class BaseEngine:
    def train_batch(self, data, loss_function): ...
    def infer_batch(self, data, loss_function): ...

class BaseEngineCtx:
    def __init__(self, engine):
        self.engine = engine

    def _context_switch(self, device):
        if device != "cpu":
            if not self.engine.param_offload and not self.engine.optimizer_offload:
                return
        self.engine.to(device=device, model=self.engine.param_offload, optimizer=self.engine.optimizer_offload)

    def __enter__(self):
        self._context_switch(get_device_name())

    def __exit__(self, *exc):
        self._context_switch("cpu")

class EngineRegistry:
    _engines = {}

    @classmethod
    def register(cls, model_type, backend, device="cuda"):
        def decorator(engine_class):
            for one in device if isinstance(device, list) else [device]:
                cls._engines.setdefault((model_type, backend), {})[one] = engine_class
            return engine_class
        return decorator

    @classmethod
    def new(cls, model_type, backend, *args, **kwargs):
        device = get_device_name()
        assert device in cls._engines[model_type, backend], f"Unknown device: {device}"
        return cls._engines[model_type, backend][device](*args, **kwargs)
"""

FSDP = """
import torch
from verl.utils.device import get_device_name
from verl.workers.engine.base import BaseEngine, EngineRegistry

torch.cpu.empty_cache  # later releases take what their device module has while they are imported

def fsdp2_clip_grad_norm_(parameters, max_norm, foreach=None):
    return parameters, max_norm, foreach

class FSDPEngine(BaseEngine):
    def __init__(self, param_offload=False, optimizer_offload=False):
        self.param_offload, self.optimizer_offload, self.moves = param_offload, optimizer_offload, []

    def initialize(self): ...

    def clip(self):
        return fsdp2_clip_grad_norm_([], 1.0)

    def autocast_device(self):
        return get_device_name()

    def to(self, device, model=True, optimizer=True):
        if self.moves is None:
            raise RuntimeError("nothing to move")
        device_name = get_device_name()
        assert device in (device_name, "cpu")
        if device == device_name:
            self.moves.append(("load", model, optimizer))
        elif device == "cpu":
            self.moves.append(("offload", model, optimizer))

@EngineRegistry.register("language_model", "fsdp2", device=["cuda", "npu"])
class FSDPEngineWithLMHead(FSDPEngine): ...
"""

FILES = {
    "verl/__init__.py": '__version__ = "0.8.0"\n',
    "verl/utils/device.py": DEVICE,
    "verl/utils/tensordict_utils.py": "def get_tensordict(tensors, others): return {**tensors, **others}\n",
    "verl/workers/engine/base.py": BASE,
    "verl/workers/engine/fsdp/transformer_impl.py": FSDP,
    "verl/workers/config.py": "class HFModelConfig: ...\nclass FSDPEngineConfig: ...\nclass FSDPOptimizerConfig: ...\n",
    "verl/workers/utils/losses.py": "def sft_loss(config, model_output, data, dp_group=None): ...\n",
    "verl/trainer/config.py": "class CheckpointConfig: ...\n",
}
WITH_PLATFORM = {**FILES, "verl/plugin/platform.py": PLATFORM}


def write_tree(folder: Path, files: dict[str, str]) -> None:
    """Write the files, and an empty `__init__.py` into every package that has none."""
    for name, text in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
        for package in path.relative_to(folder).parents:
            if package.name:
                (folder / package / "__init__.py").touch()
