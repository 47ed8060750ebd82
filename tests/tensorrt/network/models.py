"""Small PyTorch models with the layers of well-known architectures, and how their inputs may vary."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional

#: Which axes of the first input vary, by name.
IMAGE = {0: "n", 2: "h", 3: "w"}
BATCH = {0: "n"}
TEXT = {0: "n", 1: "h"}


@dataclass(frozen=True)
class Case:
    """A model, an example input, its variable axes, and further shapes to run."""

    build: Callable[[], nn.Module]
    example: tuple[int, ...]
    axes: dict[int, str]
    shapes: tuple[tuple[int, ...], ...]
    tokens: int = 0


class Residual(nn.Module):
    """x + body(x)"""

    def __init__(self, *body: nn.Module) -> None:
        super().__init__()
        self.body = nn.Sequential(*body)

    def forward(self, x: Tensor) -> Tensor:
        return x + self.body(x)


def conv(i: int, o: int, norm: Callable[[int], nn.Module], stride: int = 1, groups: int = 1) -> nn.Sequential:
    return nn.Sequential(nn.Conv2d(i, o, 3, stride, 1, groups=groups, bias=False), norm(o), nn.ReLU())


def resnet(norm: Callable[[int], nn.Module]) -> nn.Module:
    body = Residual(conv(16, 16, norm), nn.Conv2d(16, 16, 3, padding=1), norm(16))
    stem = nn.Sequential(nn.Conv2d(3, 16, 7, 2, 3), norm(16), nn.ReLU(), nn.MaxPool2d(3, 2, 1))
    return nn.Sequential(stem, body, nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(16, 5))


def mobilenet() -> nn.Module:
    depthwise = conv(32, 32, nn.BatchNorm2d, groups=32)
    block = Residual(nn.Conv2d(8, 32, 1), nn.BatchNorm2d(32), nn.ReLU6(), depthwise, nn.Conv2d(32, 8, 1))
    return nn.Sequential(conv(3, 8, nn.BatchNorm2d, 2), block, nn.Hardswish(), nn.AvgPool2d(3, 2, 1), nn.Sigmoid())


class Dense(nn.Module):
    """DenseNet's pre-activation and concatenation, squeeze-and-excitation, ceiling mode."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, 8, 3, padding=1)
        self.grow = nn.ModuleList(
            nn.Sequential(nn.BatchNorm2d(8 + 4 * i), nn.ReLU(), nn.Conv2d(8 + 4 * i, 4, 3, padding=1)) for i in range(3)
        )
        self.pool = nn.MaxPool2d(3, 2, ceil_mode=True)
        self.gate = nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Conv2d(20, 20, 1), nn.Hardsigmoid())

    def forward(self, x: Tensor) -> Tensor:
        x = self.stem(x)
        for layer in self.grow:
            x = torch.cat([x, layer(x)], 1)
        x = self.pool(x)
        return x * self.gate(x)


class UNet(nn.Module):
    """Transposed convolution on one level, bilinear upsampling on the other."""

    def __init__(self, norm: Callable[[int], nn.Module]) -> None:
        super().__init__()
        self.down = nn.ModuleList([conv(3, 8, norm), conv(8, 16, norm), conv(16, 32, norm)])
        self.up, self.merge = nn.ConvTranspose2d(32, 16, 4, 2, 1), conv(32, 16, norm)
        self.out = nn.Conv2d(24, 2, 1)

    def forward(self, x: Tensor) -> Tensor:
        a = self.down[0](x)
        b = self.down[1](functional.max_pool2d(a, 2))
        c = self.merge(torch.cat([self.up(self.down[2](functional.max_pool2d(b, 2))), b], 1))
        return self.out(torch.cat([functional.interpolate(c, scale_factor=2.0, mode="bilinear", align_corners=True), a], 1))


def generator(affine: bool) -> nn.Module:
    def norm(channels: int) -> nn.Module:
        return nn.InstanceNorm2d(channels, affine=affine)

    block = Residual(nn.ReflectionPad2d(1), nn.Conv2d(16, 16, 3), norm(16), nn.LeakyReLU(0.2))
    down = nn.Sequential(nn.ReflectionPad2d(3), nn.Conv2d(3, 8, 7), norm(8), nn.ReLU(), nn.Conv2d(8, 16, 3, 2, 1), norm(16))
    up = nn.Sequential(nn.ConvTranspose2d(16, 8, 3, 2, 1, 1), norm(8), nn.ReLU(), nn.Conv2d(8, 3, 7, padding=3), nn.Tanh())
    return nn.Sequential(down, block, up)


class Segmentation(nn.Module):
    """Group normalization in three dimensions, trilinear upsampling."""

    def __init__(self) -> None:
        super().__init__()
        body = [nn.GroupNorm(4, 8), nn.ReLU(), nn.Conv3d(8, 8, 3, padding=1)]
        self.stem, self.body, self.down = nn.Conv3d(1, 8, 3, padding=1), Residual(*body), nn.Conv3d(8, 8, 3, 2, 1)

    def forward(self, x: Tensor) -> Tensor:
        x = self.body(self.stem(x))
        return x + functional.interpolate(self.down(x), scale_factor=2.0, mode="trilinear", align_corners=False)


class ChannelLayerNorm(nn.LayerNorm):
    """ConvNeXt's LayerNorm over the channels of an image."""

    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x.permute(0, 2, 3, 1)).permute(0, 3, 1, 2)


def convnext() -> nn.Module:
    spatial = [nn.Conv2d(16, 16, 7, padding=3, groups=16), ChannelLayerNorm(16)]
    channels = [nn.Conv2d(16, 32, 1), nn.GELU(), nn.Conv2d(32, 16, 1)]
    return nn.Sequential(nn.Conv2d(3, 16, 4, 4), ChannelLayerNorm(16), Residual(*spatial, *channels))


class Transformer(nn.Module):
    """Embedding, position table, masked attention, LayerNorm or RMS norm with rotary embedding."""

    def __init__(self, rotary: bool) -> None:
        super().__init__()
        self.rotary = rotary
        self.embed, self.place = nn.Embedding(50, 32), nn.Embedding(64, 32)
        self.norm = nn.RMSNorm(32, eps=1e-6) if rotary else nn.LayerNorm(32)
        self.qkv, self.out = nn.Linear(32, 96), nn.Linear(32, 32)
        self.mlp = nn.Sequential(nn.Linear(32, 64), nn.SiLU() if rotary else nn.GELU(), nn.Linear(64, 32))

    def forward(self, ids: Tensor) -> Tensor:
        n, length = ids.shape
        position = torch.arange(length)
        x = self.embed(ids) + (0 if self.rotary else self.place(position))
        q, k, v = (t.reshape(n, length, 4, 8).transpose(1, 2) for t in self.qkv(self.norm(x)).chunk(3, -1))
        if self.rotary:
            angle = position[:, None] * (10000.0 ** (-torch.arange(0, 8, 2) / 8))
            table = torch.cat([angle, angle], -1)
            q, k = (t * table.cos() + torch.cat([-t[..., 4:], t[..., :4]], -1) * table.sin() for t in (q, k))
        scores = q @ k.transpose(-1, -2) / 8**0.5
        mask = position[None, :] > position[:, None]
        weights = scores.masked_fill(mask, torch.finfo(scores.dtype).min).softmax(-1)
        x = x + self.out((weights @ v).transpose(1, 2).reshape(n, length, 32))
        return x + self.mlp(self.norm(x))


class Windows(nn.Module):
    """Swin's shifted windows, and what else moves data: roll, flip, pad, gather, where, top-k, einsum."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("index", torch.tensor([3, 1, 2, 0, 3]))

    def forward(self, x: Tensor) -> Tensor:
        n = x.shape[0]
        y = torch.roll(x, (-1, -1), (2, 3)).reshape(n, 4, 2, 4, 2, 4).permute(0, 2, 4, 3, 5, 1).reshape(n * 4, 16, 4)
        y = torch.einsum("bij,bkj->bik", y, y)[..., self.index]
        y = functional.pad(y, (1, 2), value=0.5).flip(1)
        values, places = y.topk(3, dim=1)
        return torch.where(values > 0, values.cumsum(1), functional.softplus(values)) + places.float() + y.std(1, keepdim=True)


CASES = {
    "resnet": Case(lambda: resnet(nn.BatchNorm2d), (2, 3, 32, 32), IMAGE, ((1, 3, 40, 36),)),
    "resnet_group_norm": Case(lambda: resnet(lambda c: nn.GroupNorm(4, c)), (2, 3, 32, 32), IMAGE, ((1, 3, 40, 36),)),
    "mobilenet": Case(mobilenet, (2, 3, 32, 32), IMAGE, ((1, 3, 40, 36),)),
    "densenet": Case(Dense, (2, 3, 32, 32), IMAGE, ((1, 3, 41, 37),)),
    "unet": Case(lambda: UNet(nn.BatchNorm2d), (2, 3, 32, 32), IMAGE, ((1, 3, 40, 36),)),
    "generator": Case(lambda: generator(False), (2, 3, 32, 32), IMAGE, ((1, 3, 40, 36),)),
    "generator_affine": Case(lambda: generator(True), (2, 3, 32, 32), IMAGE, ((1, 3, 40, 36),)),
    "segmentation": Case(Segmentation, (2, 1, 8, 8, 8), BATCH, ((1, 1, 8, 8, 8),)),
    "convnext": Case(convnext, (2, 3, 32, 32), IMAGE, ((1, 3, 40, 36),)),
    "bert": Case(lambda: Transformer(False), (2, 10), TEXT, ((1, 7),), tokens=50),
    "llama": Case(lambda: Transformer(True), (2, 10), TEXT, ((1, 7),), tokens=50),
    "windows": Case(Windows, (2, 4, 8, 8), BATCH, ((3, 4, 8, 8),)),
}


def varied(build: Callable[[], nn.Module]) -> nn.Module:
    """A model, the same each time, with parameters and statistics that no fold can lose without a trace."""
    torch.manual_seed(0)
    model = build()
    for module in model.modules():
        if isinstance(getattr(module, "running_mean", None), Tensor):
            nn.init.normal_(module.running_mean, 0, 0.5)
            nn.init.uniform_(module.running_var, 0.5, 2)
        if isinstance(module, nn.GroupNorm | nn.LayerNorm | nn.RMSNorm | nn.modules.batchnorm._NormBase):
            for name, parameter in module.named_parameters():
                nn.init.uniform_(parameter, 0.5, 1.5) if name == "weight" else nn.init.normal_(parameter, 0, 0.3)
    return model.eval()
