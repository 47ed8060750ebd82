"""Image restoration in the manner of NAFNet (Chen et al. 2022): LayerNorm over channels in pieces, and gates.

Its norms square what may be as large as a pixel, and add an epsilon of 1e-6: half precision loses both. Export it with
``trtnorm export benchmarks/nafnet.py:nafnet -o nafnet.onnx``.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn


class LayerNorm2d(nn.Module):
    """LayerNorm over the channels of an image, in pieces."""

    def __init__(self, channels: int, epsilon: float = 1e-6) -> None:
        super().__init__()
        self.weight, self.bias = nn.Parameter(torch.rand(channels) + 0.5), nn.Parameter(torch.randn(channels) * 0.1)
        self.epsilon = epsilon

    def forward(self, x: Tensor) -> Tensor:
        centred = x - x.mean(1, keepdim=True)
        y = centred / (centred.pow(2).mean(1, keepdim=True) + self.epsilon).sqrt()
        return self.weight[:, None, None] * y + self.bias[:, None, None]


class Block(nn.Module):
    """Depthwise convolution, a gate, channel attention, and a gated perceptron."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.norm1, self.norm2 = LayerNorm2d(channels), LayerNorm2d(channels)
        self.widen = nn.Conv2d(channels, 2 * channels, 1)
        self.depthwise = nn.Conv2d(2 * channels, 2 * channels, 3, 1, 1, 1, 2 * channels)
        self.attention, self.narrow = nn.Conv2d(channels, channels, 1), nn.Conv2d(channels, channels, 1)
        self.inner, self.outer = nn.Conv2d(channels, 2 * channels, 1), nn.Conv2d(channels, channels, 1)

    def forward(self, x: Tensor) -> Tensor:
        a, b = self.depthwise(self.widen(self.norm1(x))).chunk(2, 1)
        y = a * b
        x = x + self.narrow(y * self.attention(y.mean((2, 3), keepdim=True)))
        a, b = self.inner(self.norm2(x)).chunk(2, 1)
        return x + self.outer(a * b)


class Restoration(nn.Module):
    """One level down and up, with the image added to the result."""

    def __init__(self, channels: int = 16) -> None:
        super().__init__()
        self.head, self.tail = nn.Conv2d(3, channels, 3, 1, 1), nn.Conv2d(channels, 3, 3, 1, 1)
        self.down = nn.Conv2d(channels, 2 * channels, 2, 2)
        self.up = nn.Sequential(nn.Conv2d(2 * channels, 4 * channels, 1), nn.PixelShuffle(2))
        self.encoder, self.middle, self.decoder = Block(channels), Block(2 * channels), Block(channels)

    def forward(self, image: Tensor) -> Tensor:
        x = self.encoder(self.head(image))
        x = self.decoder(self.up(self.middle(self.down(x))) + x)
        return image + self.tail(x)


def nafnet() -> tuple[nn.Module, Tensor]:
    """The network with weights from a fixed seed, and an image."""
    torch.manual_seed(0)
    return Restoration().eval(), torch.rand(1, 3, 64, 64)
