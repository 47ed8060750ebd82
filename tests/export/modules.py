"""Modules for tests of what is done with a PyTorch model before it is exported."""

from __future__ import annotations

import torch
from torch import Tensor, nn


class FrozenBatchNorm(nn.Module):
    """BatchNorm whose scale, shift and statistics are buffers, written from the definition."""

    def __init__(self, channels: int, epsilon: float = 1e-5) -> None:
        super().__init__()
        self.small = epsilon
        for name, value in (("weight", 1.0), ("bias", 0.0), ("running_mean", 0.0), ("running_var", 1.0)):
            self.register_buffer(name, torch.full((channels,), value))

    def forward(self, x: Tensor) -> Tensor:
        scale = self.weight * (self.running_var + self.small).rsqrt()
        shift = self.bias - self.running_mean * scale
        return x * scale.view(1, -1, 1, 1) + shift.view(1, -1, 1, 1)


def named(name: str) -> type[nn.Module]:
    """A class called ``name`` that holds one weight and scales by it."""

    def init(self: nn.Module, channels: int) -> None:
        nn.Module.__init__(self)
        self.weight = nn.Parameter(torch.ones(channels))

    def forward(self: nn.Module, x: Tensor) -> Tensor:
        return x * self.weight

    return type(name, (nn.Module,), {"__init__": init, "forward": forward})


def trained(model: nn.Module, seed: int = 0) -> nn.Module:
    """``model`` in evaluation mode with running statistics as after training."""
    draw = torch.Generator().manual_seed(seed)
    for module in model.modules():
        if getattr(module, "running_mean", None) is not None:
            module.running_mean.copy_(torch.randn(module.running_mean.shape, generator=draw))
            module.running_var.copy_(torch.rand(module.running_var.shape, generator=draw) + 0.5)
            if hasattr(module, "num_batches_tracked"):
                module.num_batches_tracked.fill_(100)
    return model.eval()
