"""The model against a second, dense implementation that shares no code with it."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

from engine_under_test.config import Fsdp2Config
from engine_under_test.model import MoeTransformer, causal_lm_loss
from engine_under_test.weights import initialise_weights

CONFIG = Fsdp2Config(
    layers=2, experts=5, experts_per_token=2, hidden_size=12, moe_intermediate_size=7, heads=4, kv_heads=2, head_dim=6
)
WEIGHT_KEY = "base_layer.weight"


def built(config: Fsdp2Config) -> MoeTransformer:
    """A model with weights large enough that attention and routing are far from uniform, and adapters that act."""
    torch.manual_seed(0)
    model = MoeTransformer(config)
    generator = torch.Generator().manual_seed(1)
    initialise_weights(model, generator)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            spread = 0.5 if "lora_B" in name else 0.1
            parameter.add_(torch.randn(parameter.shape, generator=generator) * spread)
    return model.double()


def weight(state: dict[str, Tensor], name: str, scaling: float) -> Tensor:
    """The matrix a linear stands for: its weight, or base + scaling · B A."""
    if f"{name}.weight" in state:
        return state[f"{name}.weight"]
    down, up = state[f"{name}.lora_A.default.weight"], state[f"{name}.lora_B.default.weight"]
    return state[f"{name}.base_layer.weight"] + scaling * up @ down


def norm(x: Tensor, gain: Tensor) -> Tensor:
    return x / (x.pow(2).mean(-1, keepdim=True) + 1e-6).sqrt() * gain


def turned(x: Tensor, theta: float) -> Tensor:
    """Rotary embedding of (T, n, D) as a multiplication of complex numbers."""
    length, _, width = x.shape
    pairs = torch.complex(x[..., : width // 2], x[..., width // 2 :])
    speeds = theta ** (-torch.arange(0, width, 2, dtype=torch.float64) / width)
    angles = torch.arange(length, dtype=torch.float64)[:, None] * speeds
    pairs = pairs * torch.polar(torch.ones_like(angles), angles)[:, None, :]
    return torch.cat((pairs.real, pairs.imag), dim=-1)


def dense_logits(config: Fsdp2Config, state: dict[str, Tensor], tokens: Tensor) -> Tensor:
    """Logits of one sequence (T,): every expert on every token, masked attention written out."""
    scaling = config.lora_alpha / config.lora_rank if config.lora_rank else 0.0
    x = state["embed_tokens.weight"][tokens]
    length = len(tokens)
    for i in range(config.layers):
        at = f"layers.{i}"
        h = norm(x, state[f"{at}.input_layernorm.weight"])
        q, k, v = (
            (h @ weight(state, f"{at}.self_attn.{n}_proj", scaling).T).view(length, -1, config.head_dim) for n in "qkv"
        )
        q = turned(norm(q, state[f"{at}.self_attn.q_norm.weight"]), config.rope_theta)
        k = turned(norm(k, state[f"{at}.self_attn.k_norm.weight"]), config.rope_theta)
        mixed = torch.empty(length, config.heads, config.head_dim, dtype=torch.float64)
        for head in range(config.heads):
            group = head // (config.heads // config.kv_heads)
            scores = q[:, head] @ k[:, group].T / math.sqrt(config.head_dim)
            scores = scores.masked_fill(torch.ones(length, length).triu(1).bool(), -math.inf)
            mixed[:, head] = scores.softmax(-1) @ v[:, group]
        x = x + mixed.flatten(1) @ weight(state, f"{at}.self_attn.o_proj", scaling).T

        h = norm(x, state[f"{at}.post_attention_layernorm.weight"])
        odds = (h @ state[f"{at}.mlp.gate.weight"].T).softmax(-1)
        least = odds.sort(-1, descending=True).values[:, config.experts_per_token - 1 : config.experts_per_token]
        odds = odds * (odds >= least)
        odds = odds / odds.sum(-1, keepdim=True)
        for e in range(config.experts):
            gate, up, down = (weight(state, f"{at}.mlp.experts.{e}.{n}_proj", scaling) for n in ("gate", "up", "down"))
            g = h @ gate.T
            x = x + odds[:, e : e + 1] * ((g / (1 + (-g).exp()) * (h @ up.T)) @ down.T)
    return norm(x, state["norm.weight"]) @ state["lm_head.weight"].T


@pytest.mark.parametrize("lora_rank", [0, 3])
def test_forward_equals_a_dense_implementation(lora_rank: int) -> None:
    config = Fsdp2Config(**{**vars(CONFIG), "lora_rank": lora_rank})
    model = built(config)
    tokens = torch.randint(config.vocab_size, (3, 9), generator=torch.Generator().manual_seed(2))
    state = {name: parameter.detach() for name, parameter in model.named_parameters()}
    expected = torch.stack([dense_logits(config, state, row) for row in tokens])
    logits = model(tokens)
    assert expected.std() > 0.1
    # The router's softmax and the rotary tables are float32 by design, so float64 agrees to float32's precision.
    torch.testing.assert_close(logits, expected, rtol=1e-5, atol=1e-5)


def test_every_expert_gets_a_gradient_even_with_no_token() -> None:
    model = built(CONFIG)
    tokens = torch.tensor([[1, 2]])  # 2 tokens × 2 experts cannot reach 5 experts
    causal_lm_loss(model(tokens), tokens).backward()  # type: ignore[no-untyped-call]  # torch leaves it unannotated
    gradients = {name: p.grad for name, p in model.named_parameters()}
    assert all(gradient is not None for gradient in gradients.values())
    downs = [g for name, g in gradients.items() if "layers.0." in name and "down_proj.base_layer" in name]
    idle = [gradient for gradient in downs if gradient is not None and not gradient.any()]
    assert idle, "the test needs an expert without tokens"


def test_a_token_does_not_see_the_future() -> None:
    model = built(CONFIG)
    tokens = torch.randint(CONFIG.vocab_size, (1, 8), generator=torch.Generator().manual_seed(3))
    changed = tokens.clone()
    changed[0, 5:] = (changed[0, 5:] + 1) % CONFIG.vocab_size
    before, after = model(tokens), model(changed)
    torch.testing.assert_close(before[0, :5], after[0, :5], rtol=1e-9, atol=1e-9)
    assert not torch.allclose(before[0, 5:], after[0, 5:])


def test_loss_is_the_mean_surprise_of_the_next_token() -> None:
    logits = torch.randn(2, 4, 6, generator=torch.Generator().manual_seed(4))
    tokens = torch.tensor([[1, 2, 3, 4], [5, 0, 1, 2]])
    odds = logits.exp() / logits.exp().sum(-1, keepdim=True)
    surprises = [-math.log(odds[b, t, tokens[b, t + 1]].item()) for b in range(2) for t in range(3)]
    assert causal_lm_loss(logits, tokens).item() == pytest.approx(sum(surprises) / 6, rel=1e-5)
