"""The FSDP2 engine: the model of `model.py`, sharded per block, trained with AdamW on synthetic tokens.

`build_engine(Fsdp2Config(...))` is the factory. torch.distributed may be initialised; if it is not, and this is
the only process, the engine initialises it. All ranks must make the same calls in the same order.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.fsdp import CPUOffloadPolicy, MixedPrecisionPolicy, OffloadPolicy, fully_shard

from engine_under_test.adamw import ShardedAdamW, clip_gradients, local_shard
from engine_under_test.base import BaseEngine
from engine_under_test.config import Fsdp2Config
from engine_under_test.data import hash_seed, token_batch
from engine_under_test.device import HOST, DeviceMemory
from engine_under_test.lora import freeze_base
from engine_under_test.model import Block, MoeTransformer, causal_lm_loss
from engine_under_test.offload import (
    load_fsdp_model_to_gpu,
    load_fsdp_optimizer,
    offload_fsdp_model_to_cpu,
    offload_fsdp_optimizer,
)
from engine_under_test.weights import initialise_weights

MOMENTS = 2  # tensors of AdamW state per trainable parameter, without the step counter


class Fsdp2Engine(BaseEngine[Tensor]):
    """Trains `MoeTransformer` under FSDP2. A batch is this rank's tokens (batch_size, sequence_length)."""

    def __init__(self, config: Fsdp2Config, device: torch.device) -> None:
        self.config = config
        self.device = device
        self.memory = DeviceMemory(self.device)
        mesh = init_device_mesh(self.device.type, (dist.get_world_size(),), mesh_dim_names=("shard",))
        self.module = _build_module(config, mesh, self.device)
        self.trainable = [p for p in self.module.parameters() if p.requires_grad]
        self.optimizer = ShardedAdamW(self.trainable, learning_rate=config.learning_rate)
        self.description = self._describe()
        """What was built: counts over the whole model, bytes of this rank's shards."""
        if self.is_param_offload_enabled or self.is_optimizer_offload_enabled:
            self.to(
                HOST,
                model=self.is_param_offload_enabled,
                optimizer=self.is_optimizer_offload_enabled,
                grad=self.is_param_offload_enabled,
            )

    @property
    def device_name(self) -> str:
        return self.memory.name

    @property
    def is_param_offload_enabled(self) -> bool:
        return self.config.param_offload

    @property
    def is_optimizer_offload_enabled(self) -> bool:
        return self.config.optimizer_offload

    @property
    def always_switches(self) -> bool:
        return self.config.context_switch == "always"

    def batch(self, step: int) -> Tensor:
        """Return this rank's tokens of a step, (batch_size, sequence_length), on the device."""
        return self.batch_of(step, dist.get_rank()).to(self.device)

    def batch_of(self, step: int, rank: int) -> Tensor:
        """Return any rank's tokens of a step, (batch_size, sequence_length), on the CPU."""
        c = self.config
        return token_batch(
            seed=c.seed, step=step, rank=rank, size=c.batch_size, length=c.sequence_length, vocab_size=c.vocab_size
        )

    def num_tokens(self, batch: Tensor) -> int:
        """Return this rank's tokens in a batch."""
        return batch.numel()

    def load(self, *, model: bool, optimizer: bool) -> None:
        """Copy the parts to the device. Under FSDP2's CPUOffloadPolicy, nothing: FSDP2 then owns the placement."""
        if self.config.cpu_offload_policy:
            return
        if model:
            load_fsdp_model_to_gpu(self.module, self.memory)
        if optimizer:
            load_fsdp_optimizer(self.optimizer, self.memory)

    def offload(self, *, model: bool, optimizer: bool) -> None:
        """Copy the parts to the host. Under FSDP2's CPUOffloadPolicy, nothing: FSDP2 then owns the placement."""
        if self.config.cpu_offload_policy:
            return
        if model:
            offload_fsdp_model_to_cpu(self.module, self.memory)
        if optimizer:
            offload_fsdp_optimizer(self.optimizer, self.memory)

    def set_training(self, training: bool) -> None:
        """Set the training flag where it differs: walking 15,000 modules to set it again takes tens of milliseconds."""
        if self.module.training != training:
            self.module.train(training)

    def forward_backward(self, batch: Tensor) -> Tensor:
        """Accumulate gradients over the micro-batches. Returns the mean loss over them and over ranks, 0-d float32."""
        self.require_mode("train", "forward_backward")
        began_s = time.perf_counter()
        total = torch.zeros((), device=self.device)
        with self._recovering():
            for tokens in batch.chunk(self.config.micro_batches):
                loss = causal_lm_loss(self.module(tokens), tokens) / self.config.micro_batches
                loss.backward()  # type: ignore[no-untyped-call]  # torch leaves it unannotated
                total += loss.detach()
        loss = self._mean_over_ranks(total)
        self._slow_down(time.perf_counter() - began_s)
        return loss

    def optimizer_step(self) -> Tensor:
        """Clip the gradients, update the parameters. Returns the gradient norm over all ranks before clipping, 0-d."""
        self.require_mode("train", "optimizer_step")
        norm = clip_gradients(self.trainable, max_norm=self.config.max_grad_norm)
        self.optimizer.step()
        return norm

    def optimizer_zero_grad(self) -> None:
        """Drop all gradients, so that their memory is free until the next backward."""
        self.optimizer.zero_grad(set_to_none=True)

    @torch.no_grad()
    def infer_batch(self, batch: Tensor) -> Tensor:
        """Run forward alone. Returns the mean loss over ranks, 0-d float32."""
        self.require_mode("eval", "infer_batch")
        with self._recovering():
            parts = [causal_lm_loss(self.module(tokens), tokens) for tokens in batch.chunk(self.config.micro_batches)]
        return self._mean_over_ranks(torch.stack(parts).mean())

    def _describe(self) -> Mapping[str, object]:
        # Once, when built: after a forward alone FSDP2 leaves the root's parameters whole until the next reshard.
        parameters = list(self.module.parameters())
        shards = [local_shard(p) for p in parameters]
        trainable_bytes = sum(local_shard(p).nbytes for p in self.trainable)
        return {
            "engine": "fsdp2",
            "device": str(self.device),
            "device_memory": "emulated in RAM" if self.memory.is_emulated else "real",
            "ranks": dist.get_world_size(),
            "modules": sum(1 for _ in self.module.modules()),
            "parameters": len(parameters),
            "trainable_parameters": len(self.trainable),
            "elements": sum(p.numel() for p in parameters),
            "trainable_elements": sum(p.numel() for p in self.trainable),
            "parameter_bytes": sum(shard.nbytes for shard in shards),
            "optimizer_state_bytes": MOMENTS * trainable_bytes,
            "dtype": self.config.model_dtype,
            "mixed_precision": self.config.mixed_precision,
        }

    @contextmanager
    def _recovering(self) -> Iterator[None]:
        """Bring FSDP2 back to its shards when a forward or backward is cut short, or nothing could be offloaded.

        A torch too old to know `reset_iter_state` stays as it is: the offload then fails and is noted on the error.
        """
        try:
            yield
        except BaseException:
            reset = getattr(self.module, "reset_iter_state", None)
            if reset is not None:
                reset()
            raise

    def _mean_over_ranks(self, value: Tensor) -> Tensor:
        dist.all_reduce(value)
        return value / dist.get_world_size()

    def _slow_down(self, took_s: float) -> None:
        """Spin for `slowdown_share` of `took_s` (host time; on a GPU that is the time to launch the work)."""
        until_s = time.perf_counter() + took_s * self.config.slowdown_share
        while time.perf_counter() < until_s:
            pass


def build_engine(config: Fsdp2Config) -> Fsdp2Engine:
    """Build the engine that `config` describes, on this rank's device. The factory that scenarios name."""
    device = _choose_device(config)
    _ensure_process_group(device)
    return Fsdp2Engine(config, device)


def _choose_device(config: Fsdp2Config) -> torch.device:
    """Return this rank's device: `cuda:LOCAL_RANK` or `cpu`."""
    if config.device == "cpu" or (config.device == "auto" and not torch.cuda.is_available()):
        return torch.device("cpu")
    if not torch.cuda.is_available():
        raise RuntimeError("device is 'cuda' but torch finds no GPU: use device='cpu' or 'auto'")
    device = torch.device("cuda", int(os.environ.get("LOCAL_RANK", "0")))
    torch.cuda.set_device(device)
    return device


def _ensure_process_group(device: torch.device) -> None:
    """Initialise torch.distributed for a lone process; a process of several needs its launcher to have done so."""
    if dist.is_initialized():
        return
    if int(os.environ.get("WORLD_SIZE", "1")) > 1:
        raise RuntimeError(
            "torch.distributed is not initialised and WORLD_SIZE is above 1: call init_process_group first"
        )
    store = dist.HashStore()  # type: ignore[attr-defined]  # public and documented, but not re-exported for mypy
    backend = "gloo" if device.type == "cpu" else "cpu:gloo,cuda:nccl"
    dist.init_process_group(backend, store=store, rank=0, world_size=1)


def _build_module(config: Fsdp2Config, mesh: DeviceMesh, device: torch.device) -> MoeTransformer:
    """Build without memory, then allocate, fill and shard one block after the other: only one is ever whole."""
    with torch.device("meta"):
        module = MoeTransformer(config)
    if config.model_dtype != "float32":
        module.to(getattr(torch, config.model_dtype))
    mixed = config.mixed_precision == "bf16"
    precision = (
        MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)
        if mixed
        else MixedPrecisionPolicy()
    )
    offload = CPUOffloadPolicy(pin_memory=device.type == "cuda") if config.cpu_offload_policy else OffloadPolicy()
    generator = torch.Generator(device=device).manual_seed(hash_seed(config.seed))
    for part in (*module.layers, module.embed_tokens, module.norm, module.lm_head):
        part.to_empty(device=device)
        initialise_weights(part, generator)
        if config.lora_rank:
            freeze_base(part)
        if isinstance(part, Block):
            fully_shard(part, mesh=mesh, mp_policy=precision, offload_policy=offload)
    fully_shard(module, mesh=mesh, mp_policy=precision, offload_policy=offload)
    return module
