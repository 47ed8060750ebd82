"""A small Vision Transformer with LayerNorm.

Dosovitskiy et al. 2021, "An Image is Worth 16x16 Words: Transformers for Image Recognition at Scale"; normalization stands in
front of each part, as there. Weights come from a fixed seed.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812

SIZE, PATCH = 64, 16
WIDTH, HEADS, DEPTH = 96, 4, 3
CLASSES = 10


class Block(nn.Module):
    """Self-attention and a two-layer perceptron, each behind a LayerNorm and with a shortcut: [N, T, WIDTH] to the same."""

    def __init__(self) -> None:
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(WIDTH, eps=1e-6), nn.LayerNorm(WIDTH, eps=1e-6)
        self.qkv, self.project = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
        self.mlp = nn.Sequential(nn.Linear(WIDTH, 4 * WIDTH), nn.GELU(), nn.Linear(4 * WIDTH, WIDTH))

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.project(self.attention(self.norm1(x)))
        return x + self.mlp(self.norm2(x))

    def attention(self, x: Tensor) -> Tensor:
        n, tokens, _ = x.shape
        query, key, value = self.qkv(x).view(n, tokens, 3, HEADS, -1).permute(2, 0, 3, 1, 4)
        return F.scaled_dot_product_attention(query, key, value).transpose(1, 2).reshape(n, tokens, WIDTH)


class VisionTransformer(nn.Module):
    """[N, 3, 64, 64] images to [N, CLASSES] logits."""

    def __init__(self) -> None:
        super().__init__()
        self.patches = nn.Conv2d(3, WIDTH, PATCH, stride=PATCH)
        self.token = nn.Parameter(torch.randn(1, 1, WIDTH))
        self.position = nn.Parameter(0.1 * torch.randn(1, (SIZE // PATCH) ** 2 + 1, WIDTH))
        self.blocks = nn.Sequential(*(Block() for _ in range(DEPTH)))
        self.norm = nn.LayerNorm(WIDTH, eps=1e-6)
        self.head = nn.Linear(WIDTH, CLASSES)

    def forward(self, image: Tensor) -> Tensor:
        patches = self.patches(image).flatten(2).transpose(1, 2)
        x = torch.cat([self.token.expand(patches.shape[0], -1, -1), patches], 1) + self.position
        return self.head(self.norm(self.blocks(x))[:, 0])


def vit() -> nn.Module:
    """The network in evaluation mode, the same weights every time."""
    torch.manual_seed(0)
    model = VisionTransformer().eval()
    with torch.no_grad():
        for norm in (module for module in model.modules() if isinstance(module, nn.LayerNorm)):
            norm.weight.add_(0.3 * torch.randn_like(norm.weight))
            norm.bias.add_(0.3 * torch.randn_like(norm.bias))
    return model
