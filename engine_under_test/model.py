"""A decoder-only mixture-of-experts transformer in the shape of Qwen3-30B-A3B.

RMSNorm before attention and experts, rotary positions, grouped-query attention with q/k norm, a softmax router whose
top-k weights are renormalised, and a gate/up/down linear per expert in a `ModuleList` (as transformers 4.57 builds it,
which is what makes the module tree large). Shapes in comments:
B batch, T sequence, H hidden, D head, K experts per token.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional

from engine_under_test.config import Fsdp2Config
from engine_under_test.lora import linear

RMS_EPS = 1e-6


def rotary_tables(config: Fsdp2Config, length: int, device: torch.device) -> tuple[Tensor, Tensor]:
    """Return cos and sin of the rotary angles, each (length, head_dim) in float32. Source: Su et al. 2021, RoFormer."""
    exponents = torch.arange(0, config.head_dim, 2, device=device, dtype=torch.float32) / config.head_dim
    angles = torch.outer(torch.arange(length, device=device, dtype=torch.float32), config.rope_theta**-exponents)
    angles = torch.cat((angles, angles), dim=-1)
    return angles.cos(), angles.sin()


def rotate(heads: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Turn (B, heads, T, D) by position; the pair of element i is element i + D/2."""
    first, second = heads.chunk(2, dim=-1)
    return (heads * cos + torch.cat((-second, first), dim=-1) * sin).to(heads.dtype)


class Attention(nn.Module):
    """Causal grouped-query attention, with an RMSNorm over each head of q and k."""

    def __init__(self, config: Fsdp2Config) -> None:
        super().__init__()
        self.head_dim = config.head_dim
        rank, alpha, hidden = config.lora_rank, config.lora_alpha, config.hidden_size
        inner, kv_inner = config.heads * config.head_dim, config.kv_heads * config.head_dim
        self.q_proj = linear(hidden, inner, rank=rank, alpha=alpha)
        self.k_proj = linear(hidden, kv_inner, rank=rank, alpha=alpha)
        self.v_proj = linear(hidden, kv_inner, rank=rank, alpha=alpha)
        self.o_proj = linear(inner, hidden, rank=rank, alpha=alpha)
        self.q_norm = nn.RMSNorm(config.head_dim, eps=RMS_EPS)
        self.k_norm = nn.RMSNorm(config.head_dim, eps=RMS_EPS)

    def forward(self, hidden: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        batch, length, width = hidden.shape
        rows = hidden.reshape(-1, width)  # (B·T, H): the adapters take rows
        q, k, v = (
            proj(rows).view(batch, length, -1, self.head_dim) for proj in (self.q_proj, self.k_proj, self.v_proj)
        )
        q = rotate(self.q_norm(q).transpose(1, 2), cos, sin)  # (B, heads, T, D)
        k = rotate(self.k_norm(k).transpose(1, 2), cos, sin)  # (B, kv_heads, T, D)
        mixed = functional.scaled_dot_product_attention(q, k, v.transpose(1, 2), is_causal=True, enable_gqa=True)
        out: Tensor = self.o_proj(mixed.transpose(1, 2).reshape(batch * length, -1))
        return out.view(batch, length, width)


class Expert(nn.Module):
    """SwiGLU feed-forward: down(silu(gate(x)) · up(x)) over rows (n, H)."""

    def __init__(self, config: Fsdp2Config) -> None:
        super().__init__()
        rank, alpha = config.lora_rank, config.lora_alpha
        hidden, inner = config.hidden_size, config.moe_intermediate_size
        self.gate_proj = linear(hidden, inner, rank=rank, alpha=alpha)
        self.up_proj = linear(hidden, inner, rank=rank, alpha=alpha)
        self.down_proj = linear(inner, hidden, rank=rank, alpha=alpha)
        self.act_fn = nn.SiLU()

    def forward(self, rows: Tensor) -> Tensor:
        out: Tensor = self.down_proj(functional.silu(self.gate_proj(rows)) * self.up_proj(rows))
        return out


class SparseMoe(nn.Module):
    """Send every token to its top-k experts and add their outputs, weighted.

    Every expert runs on every rank, on no rows if no token chose it. Its parameters then have a gradient (zeros)
    everywhere, which the collectives of the ranks need in order to match.
    """

    def __init__(self, config: Fsdp2Config) -> None:
        super().__init__()
        self.experts_per_token = config.experts_per_token
        self.gate = nn.Linear(config.hidden_size, config.experts, bias=False)
        self.experts = nn.ModuleList(Expert(config) for _ in range(config.experts))

    def forward(self, hidden: Tensor) -> Tensor:
        tokens = hidden.view(-1, hidden.shape[-1])  # (B·T, H)
        scores = functional.softmax(self.gate(tokens), dim=-1, dtype=torch.float32)
        weights, chosen = scores.topk(self.experts_per_token, dim=-1)  # (B·T, K)
        weights = (weights / weights.sum(dim=-1, keepdim=True)).to(tokens.dtype)

        # Rows sorted by expert are picked and put back by unique indices, so the sums have one order on a GPU too.
        order = chosen.flatten().argsort(stable=True)
        rows_per_expert = chosen.flatten().bincount(minlength=len(self.experts)).tolist()
        copies = tokens.unsqueeze(1).expand(-1, self.experts_per_token, -1).reshape(-1, tokens.shape[-1])
        parts = torch.split(copies[order], rows_per_expert)
        outputs = torch.cat([expert(part) for expert, part in zip(self.experts, parts, strict=True)])
        outputs = outputs[order.argsort()].view(*chosen.shape, -1)  # (B·T, K, H)
        return (outputs * weights.unsqueeze(-1)).sum(dim=1).view_as(hidden)


class Block(nn.Module):
    """One decoder layer, and the unit that FSDP2 gathers."""

    def __init__(self, config: Fsdp2Config) -> None:
        super().__init__()
        self.input_layernorm = nn.RMSNorm(config.hidden_size, eps=RMS_EPS)
        self.self_attn = Attention(config)
        self.post_attention_layernorm = nn.RMSNorm(config.hidden_size, eps=RMS_EPS)
        self.mlp = SparseMoe(config)

    def forward(self, hidden: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        hidden = hidden + self.self_attn(self.input_layernorm(hidden), cos, sin)
        out: Tensor = hidden + self.mlp(self.post_attention_layernorm(hidden))
        return out


class MoeTransformer(nn.Module):
    """Token ids (B, T) to logits (B, T, vocabulary)."""

    def __init__(self, config: Fsdp2Config) -> None:
        super().__init__()
        self.config = config
        self.embed_tokens = nn.Embedding(config.vocab_size, config.hidden_size)
        self.layers = nn.ModuleList(Block(config) for _ in range(config.layers))
        self.norm = nn.RMSNorm(config.hidden_size, eps=RMS_EPS)
        self.lm_head = nn.Linear(config.hidden_size, config.vocab_size, bias=False)

    def forward(self, tokens: Tensor) -> Tensor:
        hidden = self.embed_tokens(tokens)
        cos, sin = rotary_tables(self.config, tokens.shape[1], tokens.device)
        for layer in self.layers:
            hidden = layer(hidden, cos, sin)
        logits: Tensor = self.lm_head(self.norm(hidden))
        return logits


def causal_lm_loss(logits: Tensor, tokens: Tensor) -> Tensor:
    """Mean cross-entropy, in nats, of each token given those before it: logits (B, T, V), tokens (B, T)."""
    return functional.cross_entropy(logits[:, :-1].flatten(0, 1).float(), tokens[:, 1:].flatten())
