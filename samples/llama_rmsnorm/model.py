"""One decoder block of a Llama-like language model, with RMSNorm.

Touvron et al. 2023, "LLaMA: Open and Efficient Foundation Language Models": RMSNorm (Zhang & Sennrich 2019), rotary position
embedding (Su et al. 2021), attention with fewer keys than queries (Ainslie et al. 2023), and a gated perceptron (Shazeer 2020).
Weights come from a fixed seed.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812

WIDTH, INNER = 128, 256
HEADS, KEY_HEADS = 8, 2
HEAD = WIDTH // HEADS


class RootMeanSquareNorm(nn.Module):
    """x / √(mean(x²) + ε) · weight over the last axis, computed in float32 whatever the type of x."""

    def __init__(self, width: int, epsilon: float = 1e-6) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))
        self.epsilon = epsilon

    def forward(self, x: Tensor) -> Tensor:
        wide = x.to(torch.float32)
        wide = wide * torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + self.epsilon)
        return self.weight * wide.to(x.dtype)


class DecoderBlock(nn.Module):
    """Causal attention and a gated perceptron, each behind an RMSNorm: [N, T, WIDTH] to the same."""

    def __init__(self) -> None:
        super().__init__()
        self.input_norm, self.output_norm = RootMeanSquareNorm(WIDTH), RootMeanSquareNorm(WIDTH)
        self.query = nn.Linear(WIDTH, WIDTH, bias=False)
        self.key_value = nn.Linear(WIDTH, 2 * KEY_HEADS * HEAD, bias=False)
        self.project = nn.Linear(WIDTH, WIDTH, bias=False)
        self.gate, self.up = nn.Linear(WIDTH, INNER, bias=False), nn.Linear(WIDTH, INNER, bias=False)
        self.down = nn.Linear(INNER, WIDTH, bias=False)
        self.register_buffer("rates", 10_000.0 ** (-torch.arange(0, HEAD, 2) / HEAD))

    def forward(self, hidden: Tensor) -> Tensor:
        hidden = hidden + self.project(self.attention(self.input_norm(hidden)))
        y = self.output_norm(hidden)
        return hidden + self.down(F.silu(self.gate(y)) * self.up(y))

    def attention(self, x: Tensor) -> Tensor:
        n, tokens, _ = x.shape
        angles = torch.arange(tokens)[:, None] * self.rates
        query = rotated(self.query(x).view(n, tokens, HEADS, HEAD).transpose(1, 2), angles)
        key, value = self.key_value(x).view(n, tokens, 2 * KEY_HEADS, HEAD).transpose(1, 2).split(KEY_HEADS, 1)
        key = rotated(key, angles).repeat_interleave(HEADS // KEY_HEADS, 1)
        value = value.repeat_interleave(HEADS // KEY_HEADS, 1)
        mixed = F.scaled_dot_product_attention(query, key, value, is_causal=True)
        return mixed.transpose(1, 2).reshape(n, tokens, WIDTH)


def rotated(x: Tensor, angles: Tensor) -> Tensor:
    """Turn each pair of features, one of either half, by the angle of its position: [N, heads, T, HEAD] to the same."""
    first, second = x.chunk(2, -1)
    cos, sin = angles.cos(), angles.sin()
    return torch.cat([first * cos - second * sin, second * cos + first * sin], -1)


def block() -> nn.Module:
    """The block in evaluation mode, the same weights every time."""
    torch.manual_seed(0)
    model = DecoderBlock().eval()
    with torch.no_grad():
        for norm in (model.input_norm, model.output_norm):
            norm.weight.add_(0.3 * torch.randn_like(norm.weight))
    return model
