"""Operators that stand around normalizations: activations, products, layouts, and arithmetic on sizes."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from benchmarks.random_models.graph import BFLOAT, DOUBLE, FLOAT, HALF, Dim, Growing, Held

Step = Callable[[Growing, Held], "Held | None"]
"""Gives the tensor that it makes of another one, or None where it does not fit."""


def activation(g: Growing, x: Held) -> Held:
    kind = g.one_of(
        "Relu", "Sigmoid", "Tanh", "LeakyRelu", "HardSwish", "Softplus", "Abs", "Neg", "Elu", "Identity", "Dropout", "Erf"
    )
    if kind == "HardSwish" and g.opset < 14:
        kind = "HardSigmoid"
    if kind == "LeakyRelu":
        return g.unary(kind, x, alpha=0.25)
    return g.unary(kind, x)


def clip(g: Growing, x: Held) -> Held:
    low, high = g.scalar(-0.5, x.dtype), g.scalar(2.0, x.dtype)
    inputs = g.one_of([low, high], [low], ["", high])
    stated = [name and g.op("Squeeze", [name]) for name in inputs]
    return x._replace(name=g.op("Clip", [x.name, *stated]))


def scale_or_shift(g: Growing, x: Held) -> Held | None:
    """Arithmetic with a constant that has one value, one for each channel, or one for each element of a row."""
    shapes: list[tuple[int, ...]] = [(), (1,), (1,) * len(x.dims)]
    if x.channels:
        shapes += [(x.channels, *[1] * (len(x.dims) - 2)), (1, x.channels, *[1] * (len(x.dims) - 2))]
    if x.dims and not x.dims[-1].name:
        shapes.append((x.dims[-1].size,))
    kind, shape = g.one_of("Add", "Mul", "Sub", "Div"), g.one_of(*shapes)
    value = g.floats(shape, x.dtype, 0.5) if kind in ("Div", "Mul") else g.floats(shape, x.dtype)
    pair = [x.name, value] if kind == "Div" or not g.chance(3) else [value, x.name]
    return x._replace(name=g.op(kind, pair))


def convolution(g: Growing, x: Held) -> Held | None:
    if len(x.dims) not in (3, 4, 5) or not x.channels:
        return None
    spatial = len(x.dims) - 2
    kernel = [g.one_of(1, 3, 2) for _ in range(spatial)]
    stride, dilation = g.one_of(1, 2), g.one_of(1, 2)
    pad = g.one_of([0] * 2 * spatial, [1] * 2 * spatial, [*[0] * spatial, *[1] * spatial])
    transposed = g.chance(4)
    groups = g.one_of(*(n for n in (1, 2, x.channels) if x.channels % n == 0))
    out = groups * g.one_of(1, 2, 4) if groups > 1 else g.one_of(4, 6, 8)
    dims = []
    for dim, k, before, after in zip(x.dims[2:], kernel, pad[:spatial], pad[spatial:], strict=True):
        reach = dilation * (k - 1) + 1
        if transposed:
            size = (dim.size - 1) * stride + reach - before - after
        else:
            size = (dim.size + before + after - reach) // stride + 1
        if size < 1:
            return None
        dims.append(dim.made(size, f"{'t' if transposed else 'c'}{stride}_{reach}_{before}_{after}"))
    shape = (x.channels, out // groups, *kernel) if transposed else (out, x.channels // groups, *kernel)
    fan = x.channels // groups * int(np.prod(kernel))
    inputs = [x.name, g.floats(shape, x.dtype, scale=fan**-0.5)]
    if g.chance(2):
        inputs.append(g.floats((out,), x.dtype))
    stated = {"strides": [stride] * spatial, "dilations": [dilation] * spatial, "pads": pad, "group": groups}
    name = g.op("ConvTranspose" if transposed else "Conv", inputs, **stated)
    return Held(name, (x.dims[0], Dim(out), *dims), x.dtype)


def product(g: Growing, x: Held) -> Held | None:
    """A matrix product with constant weights."""
    if len(x.dims) < 2 or x.dims[-1].name:
        return None
    wide, out = x.dims[-1].size, g.one_of(4, 6, 8)
    dims = (*x.dims[:-1], Dim(out))
    if len(x.dims) == 2 and g.chance(2):
        turned = g.one_of(0, 1)
        weight = g.floats((out, wide) if turned else (wide, out), x.dtype, scale=wide**-0.5)
        inputs = [x.name, weight, *([g.floats((out,), x.dtype)] if g.chance(2) else [])]
        numbers = {"alpha": 0.5, "beta": 2.0} if g.chance(4) else {}
        return Held(g.op("Gemm", inputs, transB=turned, **numbers), dims, x.dtype)
    return Held(g.op("MatMul", [x.name, g.floats((wide, out), x.dtype, scale=wide**-0.5)]), dims, x.dtype)


def attention(g: Growing, x: Held) -> Held | None:
    """A product of the tensor with itself, turned, with Softmax between."""
    if len(x.dims) < 3:
        return None
    last = len(x.dims) - 1
    turned = g.op("Transpose", [x.name], perm=[*range(last - 1), last, last - 1])
    scores = g.op("Mul", [g.op("MatMul", [x.name, turned]), g.scalar(0.3, x.dtype)])
    weights = g.op("Softmax", [scores], axis=g.one_of(-1, last))
    return Held(g.op("MatMul", [weights, x.name]), x.dims, x.dtype)


def transpose(g: Growing, x: Held) -> Held | None:
    if len(x.dims) < 3:
        return None
    axes = list(range(len(x.dims)))
    perm = g.one_of([0, *axes[2:], 1], [0, axes[-1], *axes[1:-1]], [*axes[:-2], axes[-1], axes[-2]])
    return Held(g.op("Transpose", [x.name], perm=perm), tuple(x.dims[axis] for axis in perm), x.dtype)


def flatten(g: Growing, x: Held) -> Held | None:
    """The axes behind the first in one, where their sizes are known."""
    if len(x.dims) < 3 or any(dim.name for dim in x.dims[1:]):
        return None
    wide = int(np.prod(x.sizes[1:]))
    dims = (x.dims[0], Dim(wide))
    if g.chance(2):
        return Held(g.op("Flatten", [x.name], axis=1), dims, x.dtype)
    shape = g.one_of([0, wide], [0, -1], [-1, wide])
    return Held(g.op("Reshape", [x.name, g.constant(np.array(shape, np.int64))]), dims, x.dtype)


def rows(g: Growing, x: Held) -> Held | None:
    """The spatial axes in one, by a shape of constants or of arithmetic on sizes, and often turned to rows."""
    if len(x.dims) < 4 or not x.channels:
        return None
    size = int(np.prod(x.sizes[2:]))
    joined = Dim(size, "*".join(dim.name or str(dim.size) for dim in x.dims[2:]) if any(dim.name for dim in x.dims[2:]) else "")
    if g.chance(2):
        sizes = g.op("Shape", [x.name])
        first = g.op("Slice", [sizes, *(g.constant(np.array([n], np.int64)) for n in (0, 2))])
        shape = g.op("Concat", [first, g.constant(np.array([-1], np.int64))], axis=0)
    else:
        shape = g.constant(np.array(g.one_of([0, x.channels, -1], [0, 0, -1]), np.int64))
    flat = Held(g.op("Reshape", [x.name, shape]), (x.dims[0], x.dims[1], joined), x.dtype)
    if g.chance(2):
        return flat
    return Held(g.op("Transpose", [flat.name], perm=[0, 2, 1]), (flat.dims[0], joined, flat.dims[1]), x.dtype)


def heads(g: Growing, x: Held) -> Held | None:
    """Channels or features in two axes."""
    if not x.dims or x.dims[-1].name or x.dims[-1].size % 2 or sum(bool(dim.name) for dim in x.dims) > 1 or len(x.dims) > 4:
        return None
    half = x.dims[-1].size // 2
    shape = [*(-1 if dim.name else dim.size for dim in x.dims[:-1]), *g.one_of([2, half], [half, 2])]
    dims = (*x.dims[:-1], *map(Dim, shape[-2:]))
    return Held(g.op("Reshape", [x.name, g.constant(np.array(shape, np.int64))]), dims, x.dtype)


def pooling(g: Growing, x: Held) -> Held | None:
    if len(x.dims) not in (3, 4, 5):
        return None
    spatial = len(x.dims) - 2
    if g.chance(3):
        kind = g.one_of("GlobalAveragePool", "GlobalMaxPool")
        return Held(g.op(kind, [x.name]), (*x.dims[:2], *[Dim(1)] * spatial), x.dtype)
    kernel, stride = g.one_of(2, 3), g.one_of(1, 2)
    pad = g.one_of(0, 1)
    if any(dim.size + 2 * pad < kernel for dim in x.dims[2:]):
        return None
    dims = [dim.made((dim.size + 2 * pad - kernel) // stride + 1, f"p{kernel}_{stride}_{pad}") for dim in x.dims[2:]]
    stated = {"kernel_shape": [kernel] * spatial, "strides": [stride] * spatial, "pads": [pad] * 2 * spatial}
    kind = g.one_of("MaxPool", "AveragePool")
    if kind == "AveragePool":
        stated["count_include_pad"] = g.one_of(0, 1)
    return Held(g.op(kind, [x.name], **stated), (*x.dims[:2], *dims), x.dtype)


def resize(g: Growing, x: Held) -> Held | None:
    if len(x.dims) != 4 or x.dtype == BFLOAT:
        return None
    mode = g.one_of("nearest", "linear")
    scales = g.constant(np.array([1, 1, 2, 2], np.float32))
    coordinates = g.one_of("asymmetric", "half_pixel", "pytorch_half_pixel")
    near = {"nearest_mode": "floor"} if mode == "nearest" else {}
    name = g.op("Resize", [x.name, "", scales], mode=mode, coordinate_transformation_mode=coordinates, **near)
    return Held(name, (*x.dims[:2], *(dim.made(dim.size * 2, "r2") for dim in x.dims[2:])), x.dtype)


def padding(g: Growing, x: Held) -> Held | None:
    if len(x.dims) < 3:
        return None
    mode = g.one_of("constant", "reflect", "edge")
    ahead, behind = g.one_of(1, 0), g.one_of(1, 0)
    if mode == "reflect" and x.dims[-1].size < 2:
        return None
    pads = [*[0] * (len(x.dims) - 1), ahead, *[0] * (len(x.dims) - 1), behind]
    inputs = [x.name, g.constant(np.array(pads, np.int64))]
    if mode == "constant" and g.chance(2):
        inputs.append(g.op("Squeeze", [g.scalar(0.5, x.dtype)]))
    last = x.dims[-1].made(x.dims[-1].size + ahead + behind, f"q{ahead + behind}")
    return Held(g.op("Pad", inputs, mode=mode), (*x.dims[:-1], last), x.dtype)


def slicing(g: Growing, x: Held) -> Held | None:
    """Every second element of an axis, or all but the first."""
    axis = g.number(1, len(x.dims) - 1) if len(x.dims) > 1 else 0
    dim = x.dims[axis]
    if dim.size < 2:
        return None
    step, start = g.one_of((1, 1), (2, 0), (2, 1))
    limits = [np.array([n], np.int64) for n in (start, np.iinfo(np.int64).max, axis, step)]
    made = dim.made(-(-(dim.size - start) // step), f"s{start}_{step}")
    return Held(g.op("Slice", [x.name, *map(g.constant, limits)]), (*x.dims[:axis], made, *x.dims[axis + 1 :]), x.dtype)


def split(g: Growing, x: Held) -> Held | None:
    """Two halves of the channels, each on its way, joined or multiplied."""
    axis = g.one_of(1, len(x.dims) - 1) if len(x.dims) > 1 else 0
    dim = x.dims[axis]
    if dim.name or dim.size % 2:
        return None
    half = dim.size // 2
    inputs = [x.name]
    stated: dict[str, object] = {}
    if g.opset >= 13:
        inputs.append(g.constant(np.array([half, half], np.int64)))
    else:
        stated["split"] = [half, half]
    first, second = g.op("Split", inputs, outputs=2, axis=axis, **stated)
    halved = (*x.dims[:axis], Dim(half), *x.dims[axis + 1 :])
    gate = g.op(g.one_of("Sigmoid", "Relu"), [second])
    if g.chance(2):
        return Held(g.op("Concat", [first, gate], axis=axis), x.dims, x.dtype)
    return Held(g.op("Mul", [first, gate]), halved, x.dtype)


def reduction(g: Growing, x: Held) -> Held | None:
    if len(x.dims) < 2:
        return None
    axis, keep = g.number(1, len(x.dims) - 1), g.one_of(1, 0)
    kind = g.one_of("ReduceMean", "ReduceMax", "ReduceSum")
    name = g.op(kind, [x.name], axes=[axis], keepdims=keep)
    return Held(name, (*x.dims[:axis], *([Dim(1)] if keep else []), *x.dims[axis + 1 :]), x.dtype)


def squeeze_excitation(g: Growing, x: Held) -> Held | None:
    """Channels scaled by what their means say: a scale that is known at run time only."""
    if len(x.dims) < 3 or not x.channels:
        return None
    pooled = g.op("ReduceMean", [x.name], axes=list(range(2, len(x.dims))), keepdims=1)
    return x._replace(name=g.op("Mul", [x.name, g.op("Sigmoid", [pooled])]))


def another_type(g: Growing, x: Held) -> Held:
    """Through a wider or narrower type and often back."""
    other = g.one_of(*(kind for kind in (FLOAT, HALF, BFLOAT, DOUBLE) if kind != x.dtype))
    there = g.op("Cast", [x.name], to=other)
    if other in (BFLOAT, DOUBLE) or g.chance(2):
        return x._replace(name=g.op("Cast", [g.op("Relu", [there]) if other == FLOAT else there], to=x.dtype))
    return x._replace(name=there, dtype=other)


def quantised(g: Growing, x: Held) -> Held | None:
    """To integers and back, with one scale for all."""
    if x.dtype != FLOAT:
        return None
    scale = g.constant(np.array(0.05, np.float32))
    zero = g.constant(g.one_of(np.array(0, np.int8), np.array(0, np.int8), np.array(128, np.uint8)))
    whole = g.op("QuantizeLinear", [x.name, scale, zero])
    return x._replace(name=g.op("DequantizeLinear", [whole, scale, zero]))


def quantised_convolution(g: Growing, x: Held) -> Held | None:
    """A convolution of weights in integers, with a scale for each output channel."""
    if x.dtype != FLOAT or len(x.dims) != 4 or not x.channels:
        return None
    out = g.one_of(4, 8)
    rng = np.random.default_rng(g.number(0, 7))
    whole = g.constant(rng.integers(-127, 128, (out, x.channels, 1, 1)).astype(np.int8))
    scale = g.constant(rng.uniform(0.002, 0.01, out).astype(np.float32))
    weight = g.op("DequantizeLinear", [whole, scale, g.constant(np.zeros(out, np.int8))], axis=0)
    before = quantised(g, x) if g.chance(2) else x
    assert before is not None
    return Held(g.op("Conv", [before.name, weight]), (x.dims[0], Dim(out), *x.dims[2:]), FLOAT)


KEEPING: tuple[Step, ...] = (activation, scale_or_shift, clip, squeeze_excitation, attention)
"""These keep sizes and type."""
STEPS: tuple[Step, ...] = (
    *KEEPING,
    *(convolution, convolution, convolution, product, product, transpose, flatten, rows, heads, pooling, resize, padding),
    *(slicing, split, reduction, another_type, quantised, quantised_convolution),
)
