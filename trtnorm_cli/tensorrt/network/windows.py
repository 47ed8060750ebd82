"""The places of a sliding window over an input, with TensorRT's padding modes as explicit numbers.

Formulas from the documentation of ``nvinfer1::PaddingMode``. I, O are input and output length, S the stride, DK the dilated
kernel length, B and A the padding before and after the data.
"""

from __future__ import annotations

from collections.abc import Callable

from trtnorm_cli.light_dataclass import dataclass
from trtnorm_cli.tensorrt.network.context import LayerContext


@dataclass(frozen=True)
class Window:
    """Kernel length, stride, dilation and padding for each spatial axis.

    ``before``/``after`` are None where SAME padding depends on a length known at run time only. ``overhang`` is how far the
    last window may reach beyond the padded input, because the output length is rounded up.
    """

    kernel: tuple[int, ...]
    stride: tuple[int, ...]
    dilation: tuple[int, ...]
    mode: str
    before: tuple[int, ...] | None
    after: tuple[int, ...] | None
    overhang: tuple[int, ...]

    @property
    def pads(self) -> list[int] | None:
        """The padding in ONNX's order, all starts before all ends."""
        return None if self.before is None or self.after is None else [*self.before, *self.after]

    @property
    def auto_pad(self) -> str:
        """ONNX's name of a SAME mode."""
        return self.mode


def window_of(layer: LayerContext, kernel: tuple[int, ...]) -> Window:
    """The window of a convolution or pooling layer over input 0, shaped [batch …, channels, spatial axes …]."""
    handle, shape = layer.handle, layer.shape(0)
    if len(shape) < len(kernel) + 2:
        raise layer.layer.refused(f"a {len(kernel)}-dimensional window over a tensor of rank {len(shape)}")
    stride = tuple(handle.stride_nd)
    dilation = tuple(getattr(handle, "dilation_nd", ())) or (1,) * len(kernel)
    mode = handle.padding_mode.name
    before, after, overhang = tuple(handle.pre_padding), tuple(handle.post_padding), (0,) * len(kernel)
    spatial = shape[len(shape) - len(kernel) :]
    if mode == "EXPLICIT_ROUND_UP":
        overhang = tuple(map(_overhang, spatial, kernel, stride, dilation, before, after))
    elif mode in ("SAME_UPPER", "SAME_LOWER"):
        return _same(kernel, stride, dilation, mode, spatial)
    elif mode != "EXPLICIT_ROUND_DOWN":
        raise layer.layer.refused(f"no translation of the padding mode {mode}")
    return Window(kernel, stride, dilation, mode, before, after, overhang)


def with_one_batch_axis(layer: LayerContext, spatial_rank: int, compute: Callable[[str], str]) -> str:
    """Apply ``compute`` to input 0 as [batch, channels, spatial axes …], which is all that ONNX takes.

    TensorRT allows several batch axes, which are folded into one before and unfolded after.
    """
    x, rank = layer.wide(0), layer.rank(0)
    batch_axes = rank - spatial_rank - 1
    if batch_axes == 1:
        return compute(x)
    folded = layer.op("Concat", layer.ints(-1), layer.op("Shape", x, start=batch_axes), axis=0)
    y = compute(layer.op("Reshape", x, folded))
    unfolded = layer.op("Concat", layer.op("Shape", x, end=batch_axes), layer.op("Shape", y, start=1), axis=0)
    return layer.op("Reshape", y, unfolded)


def _overhang(length: int, kernel: int, stride: int, dilation: int, before: int, after: int) -> int:
    """Padding that makes rounding down give ceil((M − DK) / S) + 1. S − 1 is enough for any length."""
    if length < 0:
        return stride - 1
    rest = (length + before + after - (dilation * (kernel - 1) + 1)) % stride
    return (stride - rest) % stride


def _same(
    kernel: tuple[int, ...], stride: tuple[int, ...], dilation: tuple[int, ...], mode: str, spatial: tuple[int, ...]
) -> Window:
    overhang = (0,) * len(kernel)
    if min(spatial) < 0:
        return Window(kernel, stride, dilation, mode, None, None, overhang)
    # O = ceil(I / S); P = floor((I − 1) / S) · S + DK − I, and nothing is cropped where that is negative.
    total = [
        max((i - 1) // s * s + d * (k - 1) + 1 - i, 0) for i, k, s, d in zip(spatial, kernel, stride, dilation, strict=True)
    ]
    return Window(kernel, stride, dilation, mode, *split_padding(total, mode), overhang)


def split_padding(total: list[int], mode: str) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """SAME_UPPER puts the odd element behind the data, SAME_LOWER before it."""
    less, more = tuple(p // 2 for p in total), tuple(p - p // 2 for p in total)
    return (less, more) if mode == "SAME_UPPER" else (more, less)
