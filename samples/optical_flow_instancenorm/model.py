"""A small optical-flow network in the manner of RAFT, with InstanceNorm in its feature encoder.

Teed & Deng 2020, "RAFT: Recurrent All-Pairs Field Transforms for Optical Flow": features of both images, a lookup of their
correlation around the current estimate, and a convolutional GRU that refines the estimate a few times. As in the paper's
memory-saving variant, correlations are computed where they are looked up and not for all pairs of pixels. The weights are
drawn from a fixed seed, so the flow means nothing.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812

CHANNELS = 24
HIDDEN = 24
RADIUS = 2
ITERATIONS = 3


class Residual(nn.Module):
    """Two 3x3 convolutions, each with an InstanceNorm, and a shortcut: [N, C_in, H, W] to [N, C_out, H/stride, W/stride]."""

    def __init__(self, channels_in: int, channels_out: int, stride: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(channels_in, channels_out, 3, stride, padding=1)
        self.norm1 = nn.InstanceNorm2d(channels_out)
        self.conv2 = nn.Conv2d(channels_out, channels_out, 3, padding=1)
        self.norm2 = nn.InstanceNorm2d(channels_out)
        self.shortcut = nn.Sequential(nn.Conv2d(channels_in, channels_out, 1, stride), nn.InstanceNorm2d(channels_out))

    def forward(self, x: Tensor) -> Tensor:
        y = torch.relu(self.norm1(self.conv1(x)))
        return torch.relu(self.norm2(self.conv2(y)) + self.shortcut(x))


class Encoder(nn.Module):
    """[N, 3, H, W] images to features [N, CHANNELS, H/4, W/4], to which those of an eighth of the size are added."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, 16, 7, stride=2, padding=3)
        self.norm = nn.InstanceNorm2d(16)
        self.quarter = Residual(16, CHANNELS, 2)
        self.eighth = Residual(CHANNELS, CHANNELS, 2)
        self.lateral = nn.Conv2d(CHANNELS, CHANNELS, 1)

    def forward(self, image: Tensor) -> Tensor:
        quarter = self.quarter(torch.relu(self.norm(self.stem(image))))
        eighth = F.interpolate(self.eighth(quarter), scale_factor=2.0, mode="nearest")
        return self.lateral(quarter) + eighth  # equal sizes for some H and W alone


class Update(nn.Module):
    """A convolutional GRU on the hidden state, fed with correlations and the current flow; gives the change of the flow."""

    def __init__(self, correlations: int) -> None:
        super().__init__()
        inputs = HIDDEN + correlations + 2
        self.gates = nn.Conv2d(inputs, 2 * HIDDEN, 3, padding=1)
        self.candidate = nn.Conv2d(inputs, HIDDEN, 3, padding=1)
        self.flow = nn.Conv2d(HIDDEN, 2, 3, padding=1)

    def forward(self, hidden: Tensor, motion: Tensor) -> tuple[Tensor, Tensor]:
        update, reset = torch.sigmoid(self.gates(torch.cat([hidden, motion], 1))).chunk(2, 1)
        candidate = torch.tanh(self.candidate(torch.cat([reset * hidden, motion], 1)))
        hidden = (1 - update) * hidden + update * candidate
        return hidden, self.flow(hidden)


class OpticalFlow(nn.Module):
    """Two images [N, 3, H, W] to the flow [N, 2, H/4, W/4] from the first to the second, in pixels of that size."""

    def __init__(self) -> None:
        super().__init__()
        self.encoder = Encoder()
        self.context = nn.Conv2d(CHANNELS, HIDDEN, 3, padding=1)
        self.update = Update((2 * RADIUS + 1) ** 2)
        steps = torch.arange(-RADIUS, RADIUS + 1, dtype=torch.float32)
        self.register_buffer("window", torch.stack(torch.meshgrid(steps, steps, indexing="xy"), -1).view(-1, 2))

    def forward(self, first: Tensor, second: Tensor) -> Tensor:
        features1, features2 = self.encoder(first), self.encoder(second)
        hidden = torch.tanh(self.context(features1))
        start = pixel_grid(features1)
        flow = torch.zeros_like(start)
        for _ in range(ITERATIONS):
            correlation = self.correlation(features1, features2, start + flow)
            hidden, change = self.update(hidden, torch.cat([correlation, flow], 1))
            flow = flow + change
        return flow

    def correlation(self, features1: Tensor, features2: Tensor, where: Tensor) -> Tensor:
        """Products of the first features with the second ones in a window around ``where``: [N, window, H, W]."""
        n, channels, height, width = features1.shape
        points = where.permute(0, 2, 3, 1).unsqueeze(1) + self.window.view(1, -1, 1, 1, 2)
        scale = torch.stack([torch.full((), 2.0 / (width - 1)), torch.full((), 2.0 / (height - 1))])
        grid = (points * scale - 1).reshape(n, -1, width, 2)
        looked_up = F.grid_sample(features2, grid, align_corners=True).view(n, channels, -1, height, width)
        return (looked_up * features1.unsqueeze(2)).sum(1) / channels**0.5


def pixel_grid(like: Tensor) -> Tensor:
    """The coordinates x and y of each pixel: [N, 2, H, W]."""
    n, _, height, width = like.shape
    y, x = torch.meshgrid(torch.arange(height).to(like), torch.arange(width).to(like), indexing="ij")
    return torch.stack([x, y]).unsqueeze(0).expand(n, -1, -1, -1)


def flow() -> nn.Module:
    """The network in evaluation mode, the same weights every time."""
    torch.manual_seed(0)
    return OpticalFlow().eval()
