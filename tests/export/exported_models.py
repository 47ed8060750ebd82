"""PyTorch models as a user's file has them; the tests name their functions in a SPEC."""

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.utils._pytree as pytree
from torch import Tensor, nn


class FlowNet(nn.Module):
    """Downsamples by 8 and back, so that sizes have to be multiples of 8."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, 8, 7, 2, 3)
        self.norm = nn.InstanceNorm2d(8)
        self.down = nn.Sequential(nn.Conv2d(8, 8, 3, 2, 1, bias=False), nn.BatchNorm2d(8), nn.Conv2d(8, 8, 3, 2, 1))
        self.up = nn.Upsample(scale_factor=4)

    def forward(self, image: Tensor) -> dict[str, Tensor]:
        x = torch.relu(self.norm(self.stem(image)))
        low = self.down(x)
        return {"flow": self.up(low) + x, "low": low}


def flow() -> nn.Module:
    torch.manual_seed(0)
    return FlowNet().eval()


def flow_with_inputs() -> tuple[nn.Module, Tensor]:
    return flow(), torch.randn(1, 3, 64, 64)


class Positions(nn.Module):
    """Position embeddings of one size, as in a ViT."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Conv2d(3, 4, 4, 4)
        self.positions = nn.Parameter(torch.randn(1, 4, 4, 4))

    def forward(self, image: Tensor) -> Tensor:
        return self.embed(image) + self.positions


def vit() -> tuple[nn.Module, Tensor]:
    torch.manual_seed(0)
    return nn.Sequential(Positions(), nn.GELU()).eval(), torch.randn(2, 3, 16, 16)


class Branch(nn.Module):
    def forward(self, image: Tensor) -> Tensor:
        if image.shape[2] * image.shape[3] > 600:
            return image * 2
        return image + 1


def branch() -> tuple[nn.Module, Tensor]:
    return Branch(), torch.randn(2, 3, 16, 16)


class Square(nn.Module):
    def forward(self, image: Tensor) -> Tensor:
        return image @ image


def square() -> tuple[nn.Module, Tensor]:
    return Square(), torch.randn(2, 3, 16, 16)


class Tokens(nn.Module):
    """Token ids and a mask, given by keyword; one argument is not a tensor."""

    def __init__(self) -> None:
        super().__init__()
        self.table = nn.Embedding(11, 8)
        self.norm = nn.LayerNorm(8)

    def forward(self, ids: Tensor, *, mask: Tensor | None = None, scale: float = 1.0) -> tuple[Tensor, Tensor]:
        x = self.norm(self.table(ids)) * scale
        x = x if mask is None else x * mask[..., None]
        return x, x.sum(1)


def tokens() -> tuple[nn.Module, dict[str, object]]:
    torch.manual_seed(0)
    return Tokens().eval(), {"mask": torch.ones(2, 5), "ids": torch.randint(0, 11, (2, 5)), "scale": 0.5}


def tokens_without_inputs() -> nn.Module:
    return tokens()[0]


@dataclass
class Result:
    boxes: Tensor
    scores: list[Tensor]


class Nested(nn.Module):
    """A dict of tensors and a list of tensors in; a dataclass out."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(2, 4, 3, padding=1)

    def forward(self, batch: dict[str, Tensor], features: list[Tensor]) -> Result:
        x = self.conv(batch["image"]) * batch["weight"]
        return Result(x + features[0], [x.mean((2, 3)), features[1] * 2])


def nested() -> tuple[nn.Module, tuple[object, ...]]:
    torch.manual_seed(0)
    batch = {"image": torch.randn(2, 2, 8, 8), "weight": torch.randn(2, 1, 1, 1)}
    return Nested().eval(), (batch, [torch.randn(2, 4, 8, 8), torch.randn(2, 3)])


class TwoInputs(nn.Module):
    def forward(self, left: Tensor, right: Tensor) -> Tensor:
        return left - right


def two_inputs() -> tuple[nn.Module, tuple[Tensor, Tensor]]:
    return TwoInputs(), (torch.randn(2, 4), torch.randn(2, 4))


def _small() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Conv2d(3, 4, 3, padding=1, bias=False), nn.BatchNorm2d(4), nn.ReLU(), nn.GroupNorm(2, 4)).eval()


def small() -> tuple[nn.Module, Tensor]:
    return _small(), torch.randn(2, 3, 8, 8)


def half() -> tuple[nn.Module, Tensor]:
    return _small().half(), torch.randn(2, 3, 8, 8).half()


def bfloat16() -> tuple[nn.Module, Tensor]:
    return _small().bfloat16(), torch.randn(2, 3, 8, 8).bfloat16()


def double() -> tuple[nn.Module, Tensor]:
    return nn.Sequential(nn.Linear(8, 4), nn.LayerNorm(4)).double(), torch.randn(2, 8).double()


class OnlyTorchScript(nn.Module):
    """A branch on a number that the model holds: dynamo refuses it, TorchScript takes the side that it always takes."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("doubles", torch.tensor(1.0))

    def forward(self, x: Tensor) -> Tensor:
        return x * 2 if self.doubles.item() > 0 else x


def only_torchscript() -> tuple[nn.Module, Tensor]:
    return OnlyTorchScript(), torch.randn(2, 4)


def raises() -> nn.Module:
    return _inner()


def _inner() -> nn.Module:
    raise KeyError("no such backbone")


def not_a_module() -> int:
    return 3


def needs_arguments(width: int) -> nn.Module:
    return nn.Linear(width, width)


class BrokenForward(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x.reshape(7, 13)


def broken() -> tuple[nn.Module, Tensor]:
    return BrokenForward(), torch.randn(2, 4)


def no_tensor() -> tuple[nn.Module, Tensor]:
    class Nothing(nn.Module):
        def forward(self, x: Tensor) -> int:
            return 3

    return Nothing(), torch.randn(2)


def crashes() -> nn.Module:
    import os
    import signal

    os.kill(os.getpid(), signal.SIGSEGV)
    return nn.Identity()


instance = nn.Linear(4, 4)


class Named(dict[str, Tensor]):
    """A result as some libraries have it: registered with PyTorch, without names for its parts."""


pytree._register_pytree_node(Named, lambda v: (list(v.values()), list(v)), lambda v, keys: Named(zip(keys, v, strict=True)))


class Denoiser(nn.Module):
    """Calls its result what its input is called."""

    def forward(self, sample: Tensor) -> Named:
        return Named(sample=2 * sample, rest=sample + 1)


def denoiser() -> tuple[nn.Module, Tensor]:
    return Denoiser(), torch.randn(2, 3)


class Signed(nn.Module):
    """Its branch depends on the data, which no exporter follows."""

    def forward(self, image: Tensor) -> Tensor:
        return image if image.sum() > 0 else -image


def signed() -> tuple[nn.Module, Tensor]:
    return Signed(), torch.ones(2, 3)
