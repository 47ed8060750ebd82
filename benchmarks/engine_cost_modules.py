"""Networks at their papers' sizes that no library of ``engine_cost_models.yaml`` has: written from the papers."""

from __future__ import annotations

from torch import Tensor, nn


def _convolution(inputs: int, outputs: int, size: int, stride: int = 1) -> list[nn.Module]:
    """A convolution behind reflection padding, as both papers have them where nothing else is said."""
    return [nn.ReflectionPad2d(size // 2), nn.Conv2d(inputs, outputs, size, stride)]


class Residual(nn.Module):
    """Two convolutions with InstanceNorm and a shortcut."""

    def __init__(self, channels: int, affine: bool) -> None:
        super().__init__()
        first = [*_convolution(channels, channels, 3), nn.InstanceNorm2d(channels, affine=affine), nn.ReLU()]
        self.block = nn.Sequential(*first, *_convolution(channels, channels, 3), nn.InstanceNorm2d(channels, affine=affine))

    def forward(self, x: Tensor) -> Tensor:
        return x + self.block(x)


class CycleGanGenerator(nn.Sequential):
    """The generator of Zhu et al. 2017, "Unpaired Image-to-Image Translation using Cycle-Consistent Adversarial Networks": its
    appendix calls it c7s1-64, d128, d256, R256 nine times, u128, u64, c7s1-3. InstanceNorms have no parameters."""

    def __init__(self, channels: int = 64, blocks: int = 9) -> None:
        parts = [*_convolution(3, channels, 7), nn.InstanceNorm2d(channels), nn.ReLU()]
        for width in (channels, 2 * channels):
            parts += [nn.Conv2d(width, 2 * width, 3, 2, 1), nn.InstanceNorm2d(2 * width), nn.ReLU()]
        parts += [Residual(4 * channels, affine=False) for _ in range(blocks)]
        for width in (4 * channels, 2 * channels):
            parts += [nn.ConvTranspose2d(width, width // 2, 3, 2, 1, 1), nn.InstanceNorm2d(width // 2), nn.ReLU()]
        super().__init__(*parts, *_convolution(channels, 3, 7), nn.Tanh())


class StyleTransfer(nn.Sequential):
    """The network of Johnson et al. 2016, "Perceptual Losses for Real-Time Style Transfer and Super-Resolution", with
    the affine InstanceNorms of Ulyanov et al. 2016 ("Instance Normalization") and nearest upsampling."""

    def __init__(self, channels: int = 32, blocks: int = 5) -> None:
        parts: list[nn.Module] = []
        for inputs, outputs, size, stride in ((3, 1, 9, 1), (1, 2, 3, 2), (2, 4, 3, 2)):
            inputs = inputs if not parts else inputs * channels
            parts += [
                *_convolution(inputs, outputs * channels, size, stride),
                nn.InstanceNorm2d(outputs * channels, affine=True),
            ]
            parts.append(nn.ReLU())
        parts += [Residual(4 * channels, affine=True) for _ in range(blocks)]
        for width in (4 * channels, 2 * channels):
            parts += [nn.Upsample(scale_factor=2.0), *_convolution(width, width // 2, 3)]
            parts += [nn.InstanceNorm2d(width // 2, affine=True), nn.ReLU()]
        super().__init__(*parts, *_convolution(channels, 3, 9), nn.Sigmoid())
