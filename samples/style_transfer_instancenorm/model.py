"""An image-to-image generator with InstanceNorm: affine, without parameters, and with running statistics.

Johnson, Alahi & Fei-Fei 2016, "Perceptual Losses for Real-Time Style Transfer and Super-Resolution", with the instance
normalization of Ulyanov, Vedaldi & Lempitsky 2016. Older checkpoints of such generators were trained with running statistics
in their InstanceNorms; outside of training these compute what BatchNorm computes. Weights come from a fixed seed.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn


def convolution(channels_in: int, channels_out: int, kernel: int, stride: int = 1) -> nn.Module:
    """A convolution behind reflection padding: [N, C_in, H, W] to [N, C_out, H/stride, W/stride]."""
    return nn.Sequential(nn.ReflectionPad2d(kernel // 2), nn.Conv2d(channels_in, channels_out, kernel, stride))


class Residual(nn.Module):
    """Two convolutions with InstanceNorms that have no parameters, and a shortcut."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.conv1, self.norm1 = convolution(channels, channels, 3), nn.InstanceNorm2d(channels)
        self.conv2, self.norm2 = convolution(channels, channels, 3), nn.InstanceNorm2d(channels)

    def forward(self, x: Tensor) -> Tensor:
        return x + self.norm2(self.conv2(torch.relu(self.norm1(self.conv1(x)))))


class Generator(nn.Module):
    """[N, 3, H, W] images to [N, 3, H', W'] images, sizes rounded up to a multiple of 4."""

    def __init__(self) -> None:
        super().__init__()
        self.encode = nn.Sequential(
            convolution(3, 16, 9),
            nn.InstanceNorm2d(16, affine=True),
            nn.ReLU(),
            convolution(16, 32, 3, stride=2),
            nn.InstanceNorm2d(32, affine=True),
            nn.ReLU(),
            convolution(32, 48, 3, stride=2),
            nn.InstanceNorm2d(48, affine=True, track_running_stats=True),
            nn.ReLU(),
        )
        self.body = nn.Sequential(Residual(48), Residual(48))
        self.decode = nn.Sequential(
            nn.Upsample(scale_factor=2.0),
            convolution(48, 32, 3),
            nn.InstanceNorm2d(32, affine=True),
            nn.ReLU(),
            nn.Upsample(scale_factor=2.0),
            convolution(32, 16, 3),
            nn.InstanceNorm2d(16, track_running_stats=True),
            nn.ReLU(),
            convolution(16, 3, 9),
        )

    def forward(self, image: Tensor) -> Tensor:
        return torch.sigmoid(self.decode(self.body(self.encode(image))))


def generator() -> nn.Module:
    """The network in evaluation mode, the same weights and statistics every time."""
    torch.manual_seed(0)
    model = Generator()
    with torch.no_grad():
        for parameter in (p for m in model.modules() if isinstance(m, nn.InstanceNorm2d) for p in m.parameters()):
            parameter.add_(0.3 * torch.randn_like(parameter))
        for _ in range(4):  # in training mode, so the running statistics become those of random images
            model(torch.rand(2, 3, 32, 32))
    return model.eval()
