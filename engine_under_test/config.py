"""Configuration of the FSDP2 engine: flat fields, so that one key of a scenario's `[engine]` table is one field.

The widths follow the names of `Qwen3MoeConfig`. Defaults give the tiny model whose module tree is as large as a real
one's (12 layers of 64 experts). The true widths of Qwen3-30B-A3B are hidden_size 2048, layers 48, experts 128,
experts_per_token 8, moe_intermediate_size 768, heads 32, kv_heads 4, head_dim 128, vocab_size 151936.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import Final, Literal, get_args

Device = Literal["auto", "cpu", "cuda"]
ModelDtype = Literal["float32", "bfloat16"]
MixedPrecision = Literal["none", "bf16"]
ContextSwitch = Literal["when_offloaded", "always"]

_CHOICES: Final[dict[str, Collection[str]]] = {
    "device": get_args(Device),
    "model_dtype": get_args(ModelDtype),
    "mixed_precision": get_args(MixedPrecision),
    "context_switch": get_args(ContextSwitch),
}
_AT_LEAST_ONE: Final = (
    "layers",
    "experts",
    "experts_per_token",
    "hidden_size",
    "moe_intermediate_size",
    "heads",
    "kv_heads",
    "micro_batches",
    "batch_size",
)
_AT_LEAST_TWO: Final = ("head_dim", "vocab_size", "sequence_length")
_AT_LEAST_ZERO: Final = ("lora_rank", "seed", "slowdown_share")
_ABOVE_ZERO: Final = ("learning_rate", "max_grad_norm", "lora_alpha", "rope_theta")


@dataclass(frozen=True, kw_only=True)
class Fsdp2Config:
    """What the engine trains and how it offloads.

    Checked when built: a `ValueError` names the field, its value and what is allowed.
    """

    device: Device = "auto"
    """`auto` is cuda where there is one. On `cpu` device memory is emulated in RAM (see `device.py`)."""
    seed: int = 0
    """Seeds weights, adapters and token batches."""

    layers: int = 12
    experts: int = 64
    experts_per_token: int = 4
    hidden_size: int = 32
    moe_intermediate_size: int = 16
    heads: int = 4
    kv_heads: int = 2
    head_dim: int = 8
    vocab_size: int = 512
    rope_theta: float = 1_000_000.0
    lora_rank: int = 4
    """Rank of the adapters on every attention and expert linear; 0 trains all parameters and makes no adapter."""
    lora_alpha: float = 4.0
    """An adapter's output is scaled by lora_alpha / lora_rank."""

    batch_size: int = 4
    """Sequences per rank and step."""
    sequence_length: int = 32
    micro_batches: int = 1
    """Equal parts of a batch that run one after the other and accumulate gradients."""
    learning_rate: float = 1e-3
    max_grad_norm: float = 1.0

    model_dtype: ModelDtype = "float32"
    """Dtype of the sharded parameters and so of the optimizer state."""
    mixed_precision: MixedPrecision = "none"
    """`bf16` computes and gathers in bfloat16 and reduces gradients in float32."""

    param_offload: bool = False
    """Keep parameters on the host outside a mode."""
    optimizer_offload: bool = False
    """Keep optimizer state on the host outside train mode."""
    cpu_offload_policy: bool = False
    """Let FSDP2's own CPUOffloadPolicy keep parameters, gradients and optimizer state on the host, always."""
    context_switch: ContextSwitch = "when_offloaded"
    """`always` keeps the old behaviour: entering train mode loads everything, offloaded or not."""

    slowdown_share: float = 0.0
    """Spin after forward and backward for this share of the time they took: a known slowdown to test the instrument."""

    def __post_init__(self) -> None:
        for name, allowed in _CHOICES.items():
            self._require(name, getattr(self, name) in allowed, f"one of {', '.join(allowed)}")
        for name in _AT_LEAST_ONE:
            self._require(name, getattr(self, name) >= 1, "at least 1")
        for name in _AT_LEAST_TWO:
            self._require(name, getattr(self, name) >= 2, "at least 2")
        for name in _AT_LEAST_ZERO:
            self._require(name, getattr(self, name) >= 0, "at least 0")
        for name in _ABOVE_ZERO:
            self._require(name, getattr(self, name) > 0, "above 0")
        self._check_fit()

    def _check_fit(self) -> None:
        """Check the fields that limit one another."""
        self._require("experts_per_token", self.experts_per_token <= self.experts, f"at most experts ({self.experts})")
        self._require("heads", self.heads % self.kv_heads == 0, f"a multiple of kv_heads ({self.kv_heads})")
        self._require("head_dim", self.head_dim % 2 == 0, "even, because rotary embedding turns pairs")
        fits = self.batch_size % self.micro_batches == 0
        self._require("micro_batches", fits, f"a divisor of batch_size ({self.batch_size})")
        manual = [name for name in ("param_offload", "optimizer_offload") if getattr(self, name)]
        fits = not (self.cpu_offload_policy and manual)
        self._require(
            "cpu_offload_policy", fits, f"false together with {' and '.join(manual)}: FSDP2 moves the model itself"
        )

    def _require(self, field: str, fits: bool, allowed: str) -> None:
        if not fits:
            raise ValueError(f"{field} is {getattr(self, field)!r}; allowed: {allowed}")
