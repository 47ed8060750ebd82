"""Small PyTorch modules with the normalizations of well-known networks, for ``normalization_kernels.py``."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import torch
from torch import Tensor, nn
from torch.nn import functional


class ResidualUnit(nn.Module):
    """Two convolutions with instance normalization, as in RAFT's feature encoder (Teed & Deng 2020)."""

    def __init__(self, inputs: int, outputs: int, stride: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(inputs, outputs, 3, stride, 1)
        self.conv2 = nn.Conv2d(outputs, outputs, 3, 1, 1)
        self.norm1, self.norm2 = nn.InstanceNorm2d(outputs), nn.InstanceNorm2d(outputs)
        self.shortcut = (
            nn.Identity() if stride == 1 else nn.Sequential(nn.Conv2d(inputs, outputs, 1, stride), nn.InstanceNorm2d(outputs))
        )

    def forward(self, x: Tensor) -> Tensor:
        y = torch.relu(self.norm1(self.conv1(x)))
        return torch.relu(self.shortcut(x) + torch.relu(self.norm2(self.conv2(y))))


class FeatureEncoder(nn.Sequential):
    """RAFT's feature encoder with fewer channels: 15 instance normalizations."""

    def __init__(self) -> None:
        super().__init__(
            nn.Conv2d(3, 16, 7, 2, 3),
            nn.InstanceNorm2d(16),
            nn.ReLU(),
            ResidualUnit(16, 16, 1),
            ResidualUnit(16, 16, 1),
            ResidualUnit(16, 24, 2),
            ResidualUnit(24, 24, 1),
            ResidualUnit(24, 32, 2),
            ResidualUnit(32, 32, 1),
            nn.Conv2d(32, 32, 1),
        )


class Reductions(nn.Module):
    """Instance normalization as implementations without the operator write it, with scale and shift."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.rand(1, channels, 1, 1) + 0.5)
        self.bias = nn.Parameter(torch.randn(1, channels, 1, 1))

    def forward(self, x: Tensor) -> Tensor:
        mean = x.mean((2, 3), keepdim=True)
        variance = (x - mean).pow(2).mean((2, 3), keepdim=True)
        return (x - mean) / torch.sqrt(variance + 1e-5) * self.weight + self.bias


class Generator(nn.Module):
    """CycleGAN's generator (Zhu et al. 2017) with three residual blocks: 11 instance normalizations."""

    def __init__(self, norm: Callable[[int], nn.Module] = nn.InstanceNorm2d) -> None:
        super().__init__()
        self.head = nn.Sequential(
            *(nn.ReflectionPad2d(3), nn.Conv2d(3, 16, 7), norm(16), nn.ReLU()),
            *(nn.Conv2d(16, 32, 3, 2, 1), norm(32), nn.ReLU(), nn.Conv2d(32, 64, 3, 2, 1), norm(64), nn.ReLU()),
        )
        self.blocks = nn.ModuleList(
            nn.Sequential(
                *(nn.ReflectionPad2d(1), nn.Conv2d(64, 64, 3), norm(64), nn.ReLU()),
                *(nn.ReflectionPad2d(1), nn.Conv2d(64, 64, 3), norm(64)),
            )
            for _ in range(3)
        )
        self.tail = nn.Sequential(
            *(nn.ConvTranspose2d(64, 32, 3, 2, 1, 1), norm(32), nn.ReLU()),
            *(nn.ConvTranspose2d(32, 16, 3, 2, 1, 1), norm(16), nn.ReLU()),
            *(nn.ReflectionPad2d(3), nn.Conv2d(16, 3, 7), nn.Tanh()),
        )

    def forward(self, x: Tensor) -> Tensor:
        x = self.head(x)
        for block in self.blocks:
            x = x + block(x)
        return self.tail(x)


class UnetBlock(nn.Module):
    """Two residual blocks of a diffusion UNet: group normalization and SiLU (Ho et al. 2020), four of them."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Conv2d(4, 64, 3, padding=1)
        self.norms = nn.ModuleList(nn.GroupNorm(32, 64) for _ in range(4))
        self.convs = nn.ModuleList(nn.Conv2d(64, 64, 3, padding=1) for _ in range(4))
        for norm in self.norms:
            nn.init.normal_(norm.weight)
            nn.init.normal_(norm.bias)

    def forward(self, x: Tensor) -> Tensor:
        x = self.first(x)
        for i in (0, 2):
            y = self.convs[i](functional.silu(self.norms[i](x)))
            x = x + self.convs[i + 1](functional.silu(self.norms[i + 1](y)))
        return x


class ChannelsFirst(nn.Module):
    """ConvNeXt's own LayerNorm for data with the channels first."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.weight, self.bias = nn.Parameter(torch.rand(channels) + 0.5), nn.Parameter(torch.randn(channels))

    def forward(self, x: Tensor) -> Tensor:
        mean = x.mean(1, keepdim=True)
        variance = (x - mean).pow(2).mean(1, keepdim=True)
        x = (x - mean) / torch.sqrt(variance + 1e-6)
        return self.weight[:, None, None] * x + self.bias[:, None, None]


class ConvnextBlock(nn.Module):
    def __init__(self, channels: int) -> None:
        super().__init__()
        self.depthwise = nn.Conv2d(channels, channels, 7, padding=3, groups=channels)
        self.norm = nn.LayerNorm(channels, eps=1e-6)
        self.wide, self.narrow = nn.Linear(channels, 4 * channels), nn.Linear(4 * channels, channels)
        self.gamma = nn.Parameter(torch.rand(channels))

    def forward(self, x: Tensor) -> Tensor:
        y = self.norm(self.depthwise(x).permute(0, 2, 3, 1))
        y = self.gamma * self.narrow(functional.gelu(self.wide(y)))
        return x + y.permute(0, 3, 1, 2)


class Convnext(nn.Module):
    """Two stages of ConvNeXt (Liu et al. 2022) and its head: three normalizations channels first, five last."""

    def __init__(self) -> None:
        super().__init__()
        self.stages = nn.Sequential(
            *(nn.Conv2d(3, 32, 4, 4), ChannelsFirst(32), ConvnextBlock(32), ConvnextBlock(32)),
            *(ChannelsFirst(32), nn.Conv2d(32, 64, 2, 2), ConvnextBlock(64), ConvnextBlock(64)),
            *(ChannelsFirst(64), nn.Conv2d(64, 96, 2, 2)),
        )
        self.norm, self.head = nn.LayerNorm(96, eps=1e-6), nn.Linear(96, 10)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.norm(self.stages(x).mean((2, 3))))


class Attention(nn.Module):
    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.project, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)

    def forward(self, x: Tensor) -> Tensor:
        batch, length, width = x.shape
        q, k, v = (t.reshape(batch, length, self.heads, -1).transpose(1, 2) for t in self.project(x).chunk(3, -1))
        weights = torch.softmax(q @ k.transpose(-2, -1) * (width // self.heads) ** -0.5, -1)
        return self.out((weights @ v).transpose(1, 2).reshape(batch, length, width))


class TransformerBlock(nn.Module):
    def __init__(self, width: int, norm: Callable[[int], nn.Module]) -> None:
        super().__init__()
        self.norm1, self.attention = norm(width), Attention(width, 4)
        self.norm2, self.wide, self.narrow = norm(width), nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.attention(self.norm1(x))
        return x + self.narrow(functional.gelu(self.wide(self.norm2(x))))


class VisionTransformer(nn.Module):
    """Two blocks of ViT (Dosovitskiy et al. 2021): five layer normalizations."""

    def __init__(self) -> None:
        super().__init__()
        self.patches = nn.Conv2d(3, 64, 8, 8)
        self.blocks = nn.Sequential(TransformerBlock(64, nn.LayerNorm), TransformerBlock(64, nn.LayerNorm))
        self.norm, self.head = nn.LayerNorm(64), nn.Linear(64, 10)

    def forward(self, x: Tensor) -> Tensor:
        tokens = self.patches(x).flatten(2).transpose(1, 2)
        return self.head(self.norm(self.blocks(tokens)).mean(1))


class RootMeanSquare(nn.Module):
    """RMSNorm as in Llama and Mistral: computed in float32 whatever the type of the data (Zhang & Sennrich 2019)."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.rand(width) + 0.5)

    def forward(self, x: Tensor) -> Tensor:
        given = x.dtype
        x = x.to(torch.float32)
        x = x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6)
        return self.weight * x.to(given)


class LlamaBlock(nn.Module):
    """Two blocks with RMSNorm: five of them."""

    def __init__(self) -> None:
        super().__init__()
        self.blocks = nn.Sequential(TransformerBlock(64, RootMeanSquare), TransformerBlock(64, RootMeanSquare))
        self.norm, self.head = RootMeanSquare(64), nn.Linear(64, 32)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.norm(self.blocks(x)))


class SegmentationBlock(nn.Module):
    def __init__(self, channels: int) -> None:
        super().__init__()
        self.norm1, self.norm2 = nn.GroupNorm(8, channels), nn.GroupNorm(8, channels)
        self.conv1, self.conv2 = (nn.Conv3d(channels, channels, 3, padding=1) for _ in range(2))

    def forward(self, x: Tensor) -> Tensor:
        y = self.conv1(torch.relu(self.norm1(x)))
        return x + self.conv2(torch.relu(self.norm2(y)))


class SegResNet(nn.Module):
    """Encoder and decoder of MONAI's SegResNet (Myronenko 2018) in three dimensions: seven group normalizations."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Conv3d(1, 8, 3, padding=1)
        self.block1, self.down = SegmentationBlock(8), nn.Conv3d(8, 16, 3, 2, 1)
        self.block2, self.up = SegmentationBlock(16), nn.ConvTranspose3d(16, 8, 2, 2)
        self.block3, self.norm, self.last = SegmentationBlock(8), nn.GroupNorm(8, 8), nn.Conv3d(8, 2, 1)

    def forward(self, x: Tensor) -> Tensor:
        x = self.block1(self.first(x))
        x = x + self.up(self.block2(self.down(x)))
        return self.last(torch.relu(self.norm(self.block3(x))))


@dataclass(frozen=True)
class Example:
    """A module with the shape of its input, its dynamic axes and the normalizations that are in it."""

    make: Callable[[], nn.Module]
    shape: tuple[int, ...]
    norms: dict[str, int]
    dynamic: dict[int, str] = field(default_factory=dict)


EXAMPLES: dict[str, Example] = {
    "RAFT feature encoder": Example(FeatureEncoder, (1, 3, 64, 96), {"InstanceNorm": 15}, {2: "H", 3: "W"}),
    "CycleGAN generator": Example(Generator, (1, 3, 64, 64), {"InstanceNorm": 11}),
    "CycleGAN generator, reductions": Example(lambda: Generator(Reductions), (1, 3, 64, 64), {"InstanceNorm": 11}),
    "UNet block": Example(UnetBlock, (2, 4, 32, 32), {"GroupNorm": 4}),
    "UNet block, dynamic": Example(UnetBlock, (2, 4, 32, 32), {"GroupNorm": 4}, {0: "N", 2: "H", 3: "W"}),
    "ConvNeXt": Example(Convnext, (2, 3, 64, 64), {"LayerNorm": 8}, {0: "N"}),
    "ViT": Example(VisionTransformer, (2, 3, 64, 64), {"LayerNorm": 5}, {0: "N"}),
    "Llama block": Example(LlamaBlock, (2, 24, 64), {"RMSNorm": 5}, {0: "N", 1: "S"}),
    "SegResNet": Example(SegResNet, (1, 1, 16, 16, 16), {"GroupNorm": 7}),
}
