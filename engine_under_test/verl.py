"""The real verl engine: FSDP2 language model of `verl.workers.engine`, from whichever release is importable.

`build_engine(VerlConfig(...))` is the factory that scenarios name. Importing this module imports verl and makes it
ready for this machine, so that probes find their targets as they will run: on CUDA untouched, on a CPU with the patches
of `verl_cpu.py`. torch.distributed has to be initialised before building.

Every step is verl's own `train_batch` (or `infer_batch`) inside verl's own mode contexts. Token batches are those of
`data.py`, and the loss is verl's own for fine-tuning, so one seed gives the same losses whatever the release.

Several ranks have to route every token to all experts. verl runs only the experts that a rank's tokens chose, and where
ranks chose differently their reductions of gradients no longer match.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from contextlib import AbstractContextManager
from functools import partial
from importlib.metadata import PackageNotFoundError, version
from typing import Any

import torch
import torch.distributed as dist

from engine_under_test import verl_cpu, verl_release
from engine_under_test.data import token_batch
from engine_under_test.verl_config import (
    VerlConfig,
    batch_options,
    engine_options,
    model_options,
    optimizer_options,
)
from engine_under_test.verl_model import checkpoint
from engine_under_test.verl_release import find


def _make_ready() -> tuple[str, list[str]]:
    """Import verl with what this machine needs. Returns its version and the names of the patches."""
    release = verl_release.require_verl()
    on_cpu = not torch.cuda.is_available()
    patches = verl_cpu.apply("before_engine_import") if on_cpu else []
    verl_release.check()
    if on_cpu:
        patches += verl_cpu.apply("after_engine_import")
    return release, patches


RELEASE, PATCHES = _make_ready()


class VerlEngine:
    """verl's engine under the harness' contract. A batch is verl's own TensorDict of this rank's sequences."""

    def __init__(self, config: VerlConfig, engine: Any) -> None:
        self.config = config
        self.engine = engine
        self.description = self._describe()
        self._loss = partial(_loss_in_float32, find("verl.workers.utils.losses:sft_loss"))
        self._make_batch = find("verl.utils.tensordict_utils:get_tensordict")

    def batch(self, step: int) -> Any:
        """Return this rank's sequences of a step: nested tensors (batch_size, sequence_length) on the host."""
        c = self.config
        tokens = token_batch(
            seed=c.seed,
            step=step,
            rank=dist.get_rank(),
            size=c.batch_size,
            length=c.sequence_length,
            vocab_size=c.vocab_size,
        )
        mask = torch.ones_like(tokens)
        mask[:, 0] = 0  # verl aligns log-probabilities with the mask one to the left; nothing predicts a first token
        columns = {
            "input_ids": tokens,
            "position_ids": torch.arange(c.sequence_length).repeat(c.batch_size, 1),
            "loss_mask": mask,
        }
        nested = {
            name: torch.nested.as_nested_tensor(list(column), layout=torch.jagged) for name, column in columns.items()
        }
        return self._make_batch(nested, batch_options(c))

    def num_tokens(self, batch: Any) -> int:
        """Return this rank's tokens in a batch."""
        return int(batch["input_ids"].values().numel())

    def train_mode(self) -> AbstractContextManager[Any]:
        return self._mode(self.engine.train_mode)

    def eval_mode(self) -> AbstractContextManager[Any]:
        return self._mode(self.engine.eval_mode)

    def train_batch(self, batch: Any) -> float:
        """Run one optimizer step of verl. Returns this rank's loss; the mean over ranks is that over all tokens."""
        return _summed_loss(self.engine.train_batch(batch, self._loss))

    def infer_batch(self, batch: Any) -> float:
        """Run forward alone. Returns the loss as `train_batch` does."""
        return _summed_loss(self.engine.infer_batch(batch, self._loss))

    def _mode(self, make: Any) -> AbstractContextManager[Any]:
        context: AbstractContextManager[Any] = make(disable_auto_offload=self.config.disable_auto_offload)
        return context

    def _describe(self) -> Mapping[str, object]:
        parameters = list(self.engine.module.parameters())
        on_cpu = not torch.cuda.is_available()
        return {
            "engine": "verl fsdp2",
            "verl": RELEASE,
            **{name: _installed(name) for name in ("transformers", "peft", "tensordict", "numpy")},
            "device": "cpu" if on_cpu else "cuda",
            "device_memory": "the host's: loads and offloads walk, but copy nothing" if on_cpu else "real",
            "patches": PATCHES,
            "ranks": dist.get_world_size(),
            "modules": sum(1 for _ in self.engine.module.modules()),
            "parameters": len(parameters),
            "trainable_parameters": sum(p.requires_grad for p in parameters),
            "elements": sum(p.numel() for p in parameters),
            "trainable_elements": sum(p.numel() for p in parameters if p.requires_grad),
        }


def build_engine(config: VerlConfig) -> VerlEngine:
    """Build the engine that `config` describes, on this rank's device. The factory that scenarios name."""
    if dist.get_world_size() > 1 and not config.routes_to_all:
        raise ValueError(
            f"experts_per_token is {config.experts_per_token} on {dist.get_world_size()} ranks; several ranks need 0 "
            "or all experts, because verl's reductions of gradients must match between them"
        )
    engine_config = find("verl.workers.config:FSDPEngineConfig")
    known = {field.name for field in dataclasses.fields(engine_config)}
    with checkpoint(config) as path:
        engine = find("verl.workers.engine.base:EngineRegistry.new")(
            "language_model",
            "fsdp2",
            model_config=find("verl.workers.config:HFModelConfig")(**model_options(config, path)),
            engine_config=engine_config(**engine_options(config, known, cpu=not torch.cuda.is_available())),
            optimizer_config=find("verl.workers.config:FSDPOptimizerConfig")(**optimizer_options(config)),
            checkpoint_config=find("verl.trainer.config:CheckpointConfig")(),
        )
        torch.manual_seed(config.seed)  # adapters start random, after as many draws as loading happened to take
        engine.initialize()
    return VerlEngine(config, engine)


def _loss_in_float32(sft_loss: Any, model_output: Mapping[str, Any], data: Any, dp_group: Any = None) -> Any:
    """verl's loss of log-probabilities in float32. In bfloat16, as they come, most batches would have the same loss."""
    as_float32 = {**model_output, "log_probs": model_output["log_probs"].float()}
    return sft_loss(None, as_float32, data, dp_group)


def _summed_loss(output: Mapping[str, Any]) -> float:
    """verl divides every micro-batch's loss by the tokens of the whole batch: their sum is the batch's."""
    return float(sum(output["loss"]))


def _installed(distribution: str) -> str | None:
    try:
        return version(distribution)
    except PackageNotFoundError:
        return None
