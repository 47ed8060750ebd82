"""One level of a diffusion model's U-Net with GroupNorm.

Ho, Jain & Abbeel 2020, "Denoising Diffusion Probabilistic Models"; Wu & He 2018, "Group Normalization". GroupNorm of one
group stands in front of the attention. Weights come from a fixed seed.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812

CHANNELS = 32
GROUPS = 8
EMBEDDING = 64


class ResidualBlock(nn.Module):
    """GroupNorm, SiLU, convolution, twice, with the time step added in between: [N, C_in, H, W] to [N, C_out, H, W]."""

    def __init__(self, channels_in: int, channels_out: int) -> None:
        super().__init__()
        self.norm1 = nn.GroupNorm(GROUPS, channels_in)
        self.conv1 = nn.Conv2d(channels_in, channels_out, 3, padding=1)
        self.time = nn.Linear(EMBEDDING, channels_out)
        self.norm2 = nn.GroupNorm(GROUPS, channels_out)
        self.conv2 = nn.Conv2d(channels_out, channels_out, 3, padding=1)
        self.shortcut = nn.Conv2d(channels_in, channels_out, 1)

    def forward(self, x: Tensor, embedding: Tensor) -> Tensor:
        y = self.conv1(F.silu(self.norm1(x))) + self.time(F.silu(embedding))[:, :, None, None]
        return self.shortcut(x) + self.conv2(F.silu(self.norm2(y)))


class Attention(nn.Module):
    """Self-attention over all positions behind a GroupNorm of one group: [N, C, H, W] to the same."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.norm = nn.GroupNorm(1, channels)
        self.qkv = nn.Conv2d(channels, 3 * channels, 1)
        self.project = nn.Conv2d(channels, channels, 1)

    def forward(self, x: Tensor) -> Tensor:
        tokens = self.qkv(self.norm(x)).flatten(2).transpose(1, 2).unsqueeze(1)  # one head
        mixed = F.scaled_dot_product_attention(*tokens.chunk(3, -1))
        return x + self.project(mixed.squeeze(1).transpose(1, 2).reshape(x.shape))


class UNetLevel(nn.Module):
    """A noisy image [N, 3, H, W] and its time step [N] to the noise [N, 3, H, W]; H and W are even."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Sequential(nn.Linear(EMBEDDING, EMBEDDING), nn.SiLU(), nn.Linear(EMBEDDING, EMBEDDING))
        self.enter = nn.Conv2d(3, CHANNELS, 3, padding=1)
        self.down = ResidualBlock(CHANNELS, CHANNELS)
        self.halve = nn.Conv2d(CHANNELS, CHANNELS, 3, stride=2, padding=1)
        self.middle, self.attention = ResidualBlock(CHANNELS, 2 * CHANNELS), Attention(2 * CHANNELS)
        self.up = ResidualBlock(3 * CHANNELS, CHANNELS)
        self.norm, self.leave = nn.GroupNorm(GROUPS, CHANNELS), nn.Conv2d(CHANNELS, 3, 3, padding=1)
        rates = torch.exp(-math.log(10_000) * torch.arange(EMBEDDING // 2) / (EMBEDDING // 2))
        self.register_buffer("rates", rates)

    def forward(self, noisy: Tensor, step: Tensor) -> Tensor:
        angles = step[:, None] * self.rates
        embedding = self.embed(torch.cat([angles.sin(), angles.cos()], 1))
        full = self.down(self.enter(noisy), embedding)
        half = self.attention(self.middle(self.halve(full), embedding))
        grown = F.interpolate(half, scale_factor=2.0, mode="nearest")
        return self.leave(F.silu(self.norm(self.up(torch.cat([full, grown], 1), embedding))))


def unet() -> tuple[nn.Module, dict[str, Tensor]]:
    """The network in evaluation mode with example inputs, the same weights every time."""
    torch.manual_seed(0)
    model = UNetLevel().eval()
    with torch.no_grad():
        for norm in (module for module in model.modules() if isinstance(module, nn.GroupNorm)):
            norm.weight.add_(0.3 * torch.randn_like(norm.weight))
            norm.bias.add_(0.3 * torch.randn_like(norm.bias))
    return model, {"noisy": torch.randn(2, 3, 32, 32), "step": torch.tensor([10.0, 700.0])}
