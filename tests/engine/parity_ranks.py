"""Run every way to offload on this rank of a gloo job, and write what was computed as JSON.

    python parity_ranks.py RANK RANKS STORE OUT

One process group serves all engines, because starting processes costs more than all the training here.
"""

from __future__ import annotations

import hashlib
import json
import sys
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed.fsdp import FSDPModule

from engine_under_test import fsdp2
from engine_under_test.adamw import local_shard
from engine_under_test.config import Fsdp2Config
from engine_under_test.fsdp2 import Fsdp2Engine, build_engine

STEPS = 2
SMALL: dict[str, Any] = {
    "device": "cpu",
    "layers": 2,
    "experts": 3,
    "experts_per_token": 1,  # so that the ranks' tokens choose different experts
    "hidden_size": 16,
    "moe_intermediate_size": 8,
    "vocab_size": 64,
    "sequence_length": 4,
    "batch_size": 2,
    "learning_rate": 0.01,
}
# Rank 3 does not divide by two, so two ranks hold shards of different size and FSDP2 pads one.
MODELS: dict[str, dict[str, Any]] = {
    "lora": {"lora_rank": 3},
    "full": {"lora_rank": 0},
    "bf16": {"lora_rank": 3, "mixed_precision": "bf16", "micro_batches": 2},
}
OFFLOADS: dict[str, dict[str, Any]] = {
    "none": {},
    "param": {"param_offload": True},
    "optimizer": {"optimizer_offload": True},
    "param_optimizer": {"param_offload": True, "optimizer_offload": True},
    "cpu_offload_policy": {"cpu_offload_policy": True},
    "always": {"context_switch": "always"},
}
RUNS = [
    *((model, offload) for model in ("lora", "full") for offload in OFFLOADS),
    ("bf16", "none"),
    ("bf16", "param_optimizer"),
]


def digest(tensors: list[Tensor]) -> str:
    """Hash the bits of tensors."""
    sha = hashlib.sha256()
    for tensor in tensors:
        sha.update(tensor.detach().contiguous().view(torch.uint8).numpy().tobytes())
    return sha.hexdigest()


def trained(config: Fsdp2Config) -> dict[str, Any]:
    """Train a few steps with an evaluation between, counting what the four functions of offload.py say they moved."""
    moved: dict[str, int] = {}
    names = [name for name in vars(fsdp2) if name.startswith(("load_fsdp", "offload_fsdp"))]
    originals = {name: getattr(fsdp2, name) for name in names}
    for name, original in originals.items():

        def counting(*arguments: Any, name: str = name, original: Any = original) -> None:
            moved[name] = moved.get(name, 0) + original(*arguments)

        setattr(fsdp2, name, counting)
    try:
        engine = build_engine(config)
        losses = run(engine)
    finally:
        for name, original in originals.items():
            setattr(fsdp2, name, original)
    root: FSDPModule = engine.module  # type: ignore[assignment]  # fully_shard changes the class of what it is given
    root.reshard()  # a forward alone leaves the root gathered, and its parameters whole
    return {
        "losses": losses,
        "parameters": digest([local_shard(p) for p in engine.module.parameters()]),
        "moments": digest([state["exp_avg_sq"] for state in engine.optimizer.state.values()]),
        "moved": moved,
        "parameter_bytes": sum(
            local_shard(p).numel() * local_shard(p).element_size() for p in engine.module.parameters()
        ),
        "trainable_bytes": sum(local_shard(p).numel() * local_shard(p).element_size() for p in engine.trainable),
    }


def run(engine: Fsdp2Engine) -> list[float]:
    losses = []
    for step in range(STEPS):
        with engine.train_mode():
            losses.append(engine.train_batch(engine.batch(step)).item())
        with engine.eval_mode():
            losses.append(engine.infer_batch(engine.batch(step)).item())
    return losses


def trained_on_both_batches() -> list[float]:
    """Losses of one process that takes the batches of two ranks as two micro-batches."""
    config = {**SMALL, **MODELS["lora"]}
    batches = build_engine(Fsdp2Config(**config))
    engine = build_engine(Fsdp2Config(**{**config, "batch_size": 2 * SMALL["batch_size"], "micro_batches": 2}))
    losses = []
    for step in range(STEPS):
        with engine.train_mode():
            both = torch.cat([batches.batch_of(step, rank) for rank in range(2)])
            losses.append(engine.train_batch(both).item())
    return losses


def main() -> None:
    rank, ranks, store, out = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3], Path(sys.argv[4])
    torch.set_num_threads(1)
    file_store = dist.FileStore(store, ranks)  # type: ignore[attr-defined]  # public, but not re-exported for mypy
    dist.init_process_group("gloo", store=file_store, rank=rank, world_size=ranks)
    results = {
        f"{model}/{offload}": trained(Fsdp2Config(**{**SMALL, **MODELS[model], **OFFLOADS[offload]}))
        for model, offload in RUNS
    }
    if ranks == 1:
        results["lora/both_batches"] = {"losses": trained_on_both_batches()}
    out.write_text(json.dumps(results), encoding="utf-8")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
