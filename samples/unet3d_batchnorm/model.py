"""A small volumetric U-Net with BatchNorm3d, 16 channels at full resolution.

Çiçek et al. 2016, "3D U-Net: Learning Dense Volumetric Segmentation from Sparse Annotation". The weights are drawn from a
fixed seed and the running statistics come from random volumes, so nothing is segmented, but no layer is trivial.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

SIZE = 16
CLASSES = 3


class Double(nn.Sequential):
    """Two 3x3x3 convolutions, each with a BatchNorm3d: [N, C_in, D, H, W] to [N, C_out, D, H, W]."""

    def __init__(self, channels_in: int, channels_out: int) -> None:
        first = nn.Conv3d(channels_in, channels_out, 3, padding=1, bias=False)
        second = nn.Conv3d(channels_out, channels_out, 3, padding=1, bias=False)
        norms = nn.BatchNorm3d(channels_out), nn.BatchNorm3d(channels_out)
        super().__init__(first, norms[0], nn.ReLU(), second, norms[1], nn.ReLU())


class UNet3d(nn.Module):
    """[N, 1, 16, 16, 16] volumes to [N, CLASSES, 16, 16, 16] scores."""

    def __init__(self) -> None:
        super().__init__()
        self.down1, self.down2, self.bottom = Double(1, 16), Double(16, 32), Double(32, 64)
        self.pool = nn.MaxPool3d(2)
        self.grow2, self.up2 = nn.ConvTranspose3d(64, 32, 2, stride=2), Double(64, 32)
        self.grow1, self.up1 = nn.ConvTranspose3d(32, 16, 2, stride=2), Double(32, 16)
        self.head = nn.Conv3d(16, CLASSES, 1)

    def forward(self, volume: Tensor) -> Tensor:
        full = self.down1(volume)
        half = self.down2(self.pool(full))
        x = self.up2(torch.cat([half, self.grow2(self.bottom(self.pool(half)))], 1))
        return self.head(self.up1(torch.cat([full, self.grow1(x)], 1)))


def unet() -> tuple[nn.Module, Tensor]:
    """The network in evaluation mode with an example input, the same every time."""
    torch.manual_seed(0)
    model = UNet3d()
    with torch.no_grad():
        for _ in range(4):  # in training mode, so the running statistics become those of random volumes
            model(torch.randn(2, 1, SIZE, SIZE, SIZE))
    return model.eval(), torch.randn(2, 1, SIZE, SIZE, SIZE)
