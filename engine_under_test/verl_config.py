"""Configuration of the verl engine, and what it means in verl's own configuration classes.

Flat fields, one a key of a scenario's `[engine]` table. The model is Qwen3-MoE with `transformers`' names for its
widths; the defaults keep the module tree of 12 layers with 64 experts while the arithmetic is tiny, because what a mode
switch costs the host follows from the number of modules, parameters and live objects.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import Any, Final

DECODER_LAYER: Final = "Qwen3MoeDecoderLayer"
"""Class of the layers that FSDP2 gathers one by one. Newer transformers no longer name it to verl 0.7."""
INITIALIZER_RANGE: Final = 0.2
"""Ten times Qwen3's: at these widths its own would predict every token alike, and every batch would lose the same."""

_AT_LEAST_ONE: Final = (
    "layers",
    "experts",
    "hidden_size",
    "moe_intermediate_size",
    "heads",
    "kv_heads",
    "batch_size",
    "micro_batches",
)
_AT_LEAST_TWO: Final = ("head_dim", "vocab_size", "sequence_length")
_AT_LEAST_ZERO: Final = ("seed", "experts_per_token", "lora_rank")
_ABOVE_ZERO: Final = ("lora_alpha", "learning_rate", "max_grad_norm")


@dataclass(frozen=True, kw_only=True)
class VerlConfig:
    """What the engine trains and how it offloads. Checked when built: a `ValueError` names the field and its rule."""

    seed: int = 0
    """Seeds weights, adapters and token batches."""

    layers: int = 12
    experts: int = 64
    experts_per_token: int = 0
    """Experts a token is sent to; 0 sends it to all, which several ranks need (see `verl.py`)."""
    hidden_size: int = 16
    moe_intermediate_size: int = 8
    heads: int = 2
    kv_heads: int = 1
    head_dim: int = 8
    vocab_size: int = 256
    lora_rank: int = 0
    """Rank of the adapters on all linears; 0 trains all parameters and makes no adapter."""
    lora_alpha: int = 16

    param_offload: bool = False
    """Keep parameters on the host outside a mode."""
    optimizer_offload: bool = False
    """Keep optimizer state on the host outside train mode."""
    disable_auto_offload: bool = False
    """Enter and leave modes without moving anything, as a caller does that places the model itself."""

    batch_size: int = 2
    """Sequences per rank and step."""
    sequence_length: int = 16
    micro_batches: int = 1
    """Equal parts of a batch that run one after the other and accumulate gradients."""
    learning_rate: float = 1e-3
    max_grad_norm: float = 1.0

    def __post_init__(self) -> None:
        for names, lowest in ((_AT_LEAST_ONE, 1), (_AT_LEAST_TWO, 2), (_AT_LEAST_ZERO, 0)):
            for name in names:
                self._require(name, getattr(self, name) >= lowest, f"at least {lowest}")
        for name in _ABOVE_ZERO:
            self._require(name, getattr(self, name) > 0, "above 0")
        self._require("experts_per_token", self.experts_per_token <= self.experts, f"at most experts ({self.experts})")
        self._require("heads", self.heads % self.kv_heads == 0, f"a multiple of kv_heads ({self.kv_heads})")
        self._require("head_dim", self.head_dim % 2 == 0, "even, because rotary embedding turns pairs")
        fits = self.batch_size % self.micro_batches == 0
        self._require("micro_batches", fits, f"a divisor of batch_size ({self.batch_size})")

    @property
    def routes_to_all(self) -> bool:
        """Whether every token goes to every expert, so that all of them have a gradient on every rank."""
        return self.experts_per_token in (0, self.experts)

    def _require(self, field: str, fits: bool, allowed: str) -> None:
        if not fits:
            raise ValueError(f"{field} is {getattr(self, field)!r}; allowed: {allowed}")


def transformer_options(config: VerlConfig) -> dict[str, Any]:
    """Return the keywords of `transformers.Qwen3MoeConfig`."""
    return {
        "num_hidden_layers": config.layers,
        "num_experts": config.experts,
        "num_experts_per_tok": config.experts_per_token or config.experts,
        "hidden_size": config.hidden_size,
        "intermediate_size": config.moe_intermediate_size,
        "moe_intermediate_size": config.moe_intermediate_size,
        "num_attention_heads": config.heads,
        "num_key_value_heads": config.kv_heads,
        "head_dim": config.head_dim,
        "vocab_size": config.vocab_size,
        "max_position_embeddings": config.sequence_length,
        "initializer_range": INITIALIZER_RANGE,
        "tie_word_embeddings": False,
    }


def model_options(config: VerlConfig, path: str) -> dict[str, Any]:
    """Return the keywords of verl's `HFModelConfig` for a checkpoint in the folder `path`.

    Padding is kept and attention is eager, because the rest needs kernels that only a GPU has. Checkpointing is off:
    it would compute every forward twice and tell nothing of the mode switch.
    """
    return {
        "path": path,
        "use_remove_padding": False,
        "enable_gradient_checkpointing": False,
        "override_config": {"attn_implementation": "eager"},
        "lora_rank": config.lora_rank,
        "lora_alpha": config.lora_alpha,
        "target_modules": "all-linear",
    }


def engine_options(config: VerlConfig, known: Collection[str], *, cpu: bool) -> dict[str, Any]:
    """Return the keywords of verl's `FSDPEngineConfig`, left to those that this release has (`known`).

    Gradients are synchronised after every micro-batch on a CPU, where gloo cannot reduce what later releases defer.
    """
    options: dict[str, Any] = {
        "strategy": "fsdp2",
        "param_offload": config.param_offload,
        "optimizer_offload": config.optimizer_offload,
        "use_remove_padding": False,
        "use_dynamic_bsz": False,
        "use_torch_compile": False,
        "micro_batch_size_per_gpu": config.batch_size // config.micro_batches,
        "wrap_policy": {"transformer_layer_cls_to_wrap": [DECODER_LAYER]},
        "seed": config.seed,
    }
    deferring = "use_no_sync_for_gradient_accumulation"
    if cpu and deferring in known:
        options[deferring] = False
    return options


def optimizer_options(config: VerlConfig) -> dict[str, Any]:
    """Return the keywords of verl's `FSDPOptimizerConfig`: AdamW at a constant learning rate."""
    return {"lr": config.learning_rate, "clip_grad": config.max_grad_norm, "lr_scheduler_type": "constant"}


def batch_options(config: VerlConfig) -> dict[str, Any]:
    """Return what travels with a batch: how verl is to split and read it."""
    return {
        "use_dynamic_bsz": False,
        "micro_batch_size_per_gpu": config.batch_size // config.micro_batches,
        "use_remove_padding": False,
        "use_fused_kernels": False,
        "temperature": 1.0,
        "pad_token_id": 0,
    }
