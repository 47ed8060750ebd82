"""Whole networks, exported in float64, against PyTorch."""

from __future__ import annotations

import io
import warnings
from typing import Any

import numpy as np
import onnx
import pytest

from trtnorm_cli.evaluate.float64 import evaluate_float64

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.torch
nn = torch.nn


class Block(nn.Module):
    def __init__(self, channels: int, norm: Any) -> None:
        super().__init__()
        layers = [
            nn.Conv2d(channels, channels, 3, padding=1, groups=4),
            norm(channels),
            nn.SiLU(),
            nn.Conv2d(channels, channels, 1),
        ]
        self.body = nn.Sequential(*layers)

    def forward(self, x: Any) -> Any:
        return x + self.body(x)


class Attention(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.norm, self.mix = nn.LayerNorm(width), nn.Linear(width, 3 * width)
        self.feed = nn.Sequential(nn.LayerNorm(width), nn.Linear(width, 2 * width), nn.GELU(), nn.Linear(2 * width, width))

    def forward(self, x: Any) -> Any:
        q, k, v = self.mix(self.norm(x)).chunk(3, dim=-1)
        x = x + torch.softmax(q @ k.transpose(1, 2) * 0.25, dim=-1) @ v
        return x + self.feed(x)


class Network(nn.Module):
    """Convolutions with each kind of normalization, down and up, and attention over what remains."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(3, 8, 7, 2, 3, bias=False), nn.BatchNorm2d(8), nn.ReLU(), nn.MaxPool2d(3, 2, 1))
        norms = (nn.BatchNorm2d, lambda n: nn.InstanceNorm2d(n, affine=True), lambda n: nn.GroupNorm(2, n))
        self.blocks = nn.Sequential(*(Block(8, norm) for norm in norms))
        self.up, self.down = nn.ConvTranspose2d(8, 4, 4, 2, 1), nn.Conv2d(4, 16, 4, 4)
        self.attention, self.head = Attention(16), nn.Linear(16, 10)

    def forward(self, x: Any) -> Any:
        y = self.up(self.blocks(self.stem(x)))
        y = nn.functional.interpolate(y, scale_factor=2, mode="bilinear", align_corners=False)
        y = self.down(nn.functional.avg_pool2d(y, 3, 1, 1))
        return self.head(self.attention(y.flatten(2).transpose(1, 2)).mean(1))


def test_a_network_with_every_normalization():
    torch.manual_seed(0)
    network = Network().double().eval()
    for module in network.modules():
        if isinstance(module, nn.BatchNorm2d):
            module.running_mean.normal_()
            module.running_var.uniform_(0.5, 2)
    x = torch.randn(2, 3, 32, 40, dtype=torch.float64)
    stream = io.BytesIO()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.onnx.export(
            network, (x,), stream, dynamo=False, opset_version=17, input_names=["x"], training=torch.onnx.TrainingMode.PRESERVE
        )
    model = onnx.load_from_string(stream.getvalue())
    assert {"BatchNormalization", "InstanceNormalization", "ConvTranspose", "Resize"} <= {n.op_type for n in model.graph.node}
    result = evaluate_float64(model, {"x": x.numpy()})
    expected = network(x).detach().numpy()
    # The exporter writes the epsilons and the scale of the attention as float32.
    np.testing.assert_allclose(next(iter(result.outputs.values())), expected, rtol=0, atol=1e-7 * np.abs(expected).max())
    assert not [name for name, how in result.evaluated_with.items() if not how.startswith("trtnorm")]
