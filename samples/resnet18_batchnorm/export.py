"""Export a ResNet-18 to ONNX with its 20 BatchNorm layers left in the graph.

The architecture is that of He et al. 2015, "Deep Residual Learning for Image Recognition" (table 1, 18 layers, with
projection shortcuts). The weights are drawn from a fixed seed, so the model recognises nothing, but no layer is trivial
and the values stay in a sane range through the depth. The same PyTorch writes the same file every time.
"""

from __future__ import annotations

import argparse
import logging
import math
import warnings
from pathlib import Path

import torch
from torch import Tensor, nn

SEED = 0
OPSET = 20
CLASSES = 1000
# Weights follow He et al. 2015, "Delving Deep into Rectifiers": uniform with variance 2/fan-in, so that layers behind a
# ReLU neither grow nor fade; running variances around one fit that.
MEAN, VARIANCE = (-0.3, 0.3), (0.5, 2.0)
SCALE, SHIFT = (0.6, 1.4), (-0.2, 0.2)
# The branch that joins the shortcut is scaled down, or the variance would double with each of the eight blocks.
JOINING_SCALE = (0.2, 0.6)


class BasicBlock(nn.Module):
    """Two 3x3 convolutions and a shortcut: [N, C_in, H, W] to [N, C_out, H/stride, W/stride]."""

    def __init__(self, channels_in: int, channels_out: int, stride: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(channels_in, channels_out, 3, stride, padding=1, bias=False)
        self.bn1 = nn.BatchNorm2d(channels_out)
        self.conv2 = nn.Conv2d(channels_out, channels_out, 3, padding=1, bias=False)
        self.bn2 = nn.BatchNorm2d(channels_out)
        self.shortcut: nn.Module = nn.Identity()
        if stride != 1 or channels_in != channels_out:
            projection = nn.Conv2d(channels_in, channels_out, 1, stride, bias=False)
            self.shortcut = nn.Sequential(projection, nn.BatchNorm2d(channels_out))

    def forward(self, x: Tensor) -> Tensor:
        residual = torch.relu(self.bn1(self.conv1(x)))
        residual = self.bn2(self.conv2(residual))
        return torch.relu(residual + self.shortcut(x))


class ResNet18(nn.Module):
    """[N, 3, H, W] images to [N, 1000] logits."""

    def __init__(self) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(3, 64, 7, stride=2, padding=3, bias=False)
        self.bn1 = nn.BatchNorm2d(64)
        self.maxpool = nn.MaxPool2d(3, stride=2, padding=1)
        self.layer1 = nn.Sequential(BasicBlock(64, 64, 1), BasicBlock(64, 64, 1))
        self.layer2 = nn.Sequential(BasicBlock(64, 128, 2), BasicBlock(128, 128, 1))
        self.layer3 = nn.Sequential(BasicBlock(128, 256, 2), BasicBlock(256, 256, 1))
        self.layer4 = nn.Sequential(BasicBlock(256, 512, 2), BasicBlock(512, 512, 1))
        self.avgpool = nn.AdaptiveAvgPool2d(1)
        self.fc = nn.Linear(512, CLASSES)

    def forward(self, image: Tensor) -> Tensor:
        x = self.maxpool(torch.relu(self.bn1(self.conv1(image))))
        x = self.layer4(self.layer3(self.layer2(self.layer1(x))))
        return self.fc(torch.flatten(self.avgpool(x), 1))


def seeded_resnet18(seed: int = SEED) -> ResNet18:
    """A ResNet-18 in evaluation mode whose weights, running statistics and affine parameters all come from ``seed``."""
    draw = torch.Generator().manual_seed(seed)
    model = ResNet18().eval()
    joining = {block.bn2 for block in model.modules() if isinstance(block, BasicBlock)}
    for module in model.modules():
        if isinstance(module, nn.Conv2d):
            fill(module.weight, symmetric(math.sqrt(6 / module.weight[0].numel())), draw)
        elif isinstance(module, nn.Linear):
            fill(module.weight, symmetric(math.sqrt(3 / module.in_features)), draw)
            fill(module.bias, SHIFT, draw)
        elif isinstance(module, nn.BatchNorm2d):
            fill(module.weight, JOINING_SCALE if module in joining else SCALE, draw)
            fill(module.bias, SHIFT, draw)
            fill(module.running_mean, MEAN, draw)
            fill(module.running_var, VARIANCE, draw)
    return model


def symmetric(bound: float) -> tuple[float, float]:
    return -bound, bound


def fill(tensor: Tensor | None, interval: tuple[float, float], draw: torch.Generator) -> None:
    """Fill ``tensor`` in place with uniform values between the two ends of ``interval``."""
    assert tensor is not None, "every BatchNorm here tracks its statistics"
    low, high = interval
    # Not nn.init.uniform_: that multiplies and adds in one step where the CPU can, so the last bit depends on the CPU.
    unit = torch.rand(tensor.shape, generator=draw, dtype=torch.float64)
    with torch.no_grad():
        tensor.copy_(unit.mul(high - low).add(low))


def export(path: Path) -> None:
    """Write the model to ``path``: ``image`` [N, 3, H, W] to ``logits`` [N, 1000]; N, H and W are dynamic."""
    dynamic = {0: torch.export.Dim("N"), 2: torch.export.Dim("H"), 3: torch.export.Dim("W")}
    program = torch.onnx.export(
        seeded_resnet18(),
        (torch.zeros(2, 3, 224, 224),),
        input_names=["image"],
        output_names=["logits"],
        dynamic_shapes={"image": dynamic},
        opset_version=OPSET,
        dynamo=True,
        optimize=False,  # the exporter's own optimiser would fold the BatchNorms away
        verbose=False,
    )
    assert program is not None, "torch.onnx.export returns a program when it is given no file"
    for node in program.model.graph:
        # It holds the paths of this machine, and the file is to be the same everywhere.
        node.metadata_props.pop("pkg.torch.onnx.stack_trace", None)
    program.save(str(path), external_data=False)


def silence_known_noise() -> None:
    """Drop two remarks of the exporter that say nothing about this model; every other warning still shows."""
    # "torchvision is not installed. Skipping torchvision::nms"
    logging.getLogger("torch.onnx._internal.exporter._registration").setLevel(logging.ERROR)
    # "`isinstance(treespec, LeafSpec)` is deprecated": PyTorch's own use of itself
    warnings.filterwarnings("ignore", message=r"`isinstance\(treespec, LeafSpec\)`", category=FutureWarning)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("-o", "--output", type=Path, default=Path("resnet18.onnx"), metavar="FILE.onnx")
    output = parser.parse_args().output
    silence_known_noise()
    output.parent.mkdir(parents=True, exist_ok=True)
    export(output)
    print(f"wrote {output}")


if __name__ == "__main__":
    main()
