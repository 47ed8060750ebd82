"""Normalizations: ONNX's own, ONNX Runtime's, and those in pieces, in the spellings that exporters and people write."""

from __future__ import annotations

import numpy as np

from benchmarks.random_models.graph import BFLOAT, FLOAT, HALF, NUMPY, Growing, Held
from benchmarks.random_models.operators import Step

EPSILONS = (1e-5, 1e-3, 1e-6)


def _parameter_type(g: Growing, x: Held, since: int) -> int:
    """The type of the parameters, which newer operators let differ from the data's."""
    return FLOAT if x.dtype in (HALF, BFLOAT) and g.opset >= since and g.chance(2) else x.dtype


def batch(g: Growing, x: Held) -> Held | None:
    if not x.channels:
        return None
    n, kind = x.channels, _parameter_type(g, x, 15)
    stated = {"epsilon": g.one_of(*EPSILONS)}
    gamma, beta, mean = g.floats((n,), kind, 0.5), g.floats((n,), kind), g.floats((n,), kind)
    if g.chance(6):
        gamma = g.constant(np.array([(-1.0, 0.0, 1.0)[k % 3] for k in range(n)]).astype(NUMPY[kind]))
    variance = g.floats((n,), kind, 0.1, 3.0)
    if g.chance(8):
        gamma = g.op("Mul", [gamma, g.runtime((n,), kind)])
    if g.opset >= 14 and g.chance(10) and kind == x.dtype:
        outputs = g.op("BatchNormalization", [x.name, gamma, beta, mean, variance], outputs=3, training_mode=1, **stated)
        return x._replace(name=outputs[0])
    return x._replace(name=g.op("BatchNormalization", [x.name, gamma, beta, mean, variance], **stated))


def instance(g: Growing, x: Held) -> Held | None:
    if len(x.dims) < 3 or not x.channels:
        return None
    gamma, beta = g.floats((x.channels,), x.dtype, 0.5), g.floats((x.channels,), x.dtype)
    return x._replace(name=g.op("InstanceNormalization", [x.name, gamma, beta], epsilon=g.one_of(*EPSILONS)))


def group(g: Growing, x: Held) -> Held | None:
    if len(x.dims) < 3 or not x.channels or g.opset < 18:
        return None
    groups = g.one_of(*(n for n in (1, 2, x.channels) if x.channels % n == 0))
    count = x.channels if g.opset >= 21 else groups
    gamma, beta = g.floats((count,), x.dtype, 0.5), g.floats((count,), x.dtype)
    stated = {"num_groups": groups, "epsilon": g.one_of(*EPSILONS)}
    return x._replace(name=g.op("GroupNormalization", [x.name, gamma, beta], **stated))


def layer(g: Growing, x: Held) -> Held | None:
    axis = len(x.dims) - g.one_of(1, 1, 2)
    if g.opset < 17 or axis < 1 or any(dim.name for dim in x.dims[axis:]):
        return None
    shape = x.sizes[axis:]
    inputs = [x.name, g.floats(shape, x.dtype, 0.5), *([g.floats(shape, x.dtype)] if not g.chance(3) else [])]
    stated = {"axis": g.one_of(axis, axis - len(x.dims)), "epsilon": g.one_of(*EPSILONS)}
    return x._replace(name=g.op("LayerNormalization", inputs, **stated))


def root_mean_square(g: Growing, x: Held) -> Held | None:
    if g.opset < 23 or len(x.dims) < 2 or x.dims[-1].name:
        return None
    gamma = g.floats((x.dims[-1].size,), x.dtype, 0.5)
    return x._replace(name=g.op("RMSNormalization", [x.name, gamma], axis=-1, epsilon=g.one_of(*EPSILONS)))


def skip_layer(g: Growing, x: Held) -> Held | None:
    """ONNX Runtime's fused operators."""
    if len(x.dims) != 3 or x.dims[-1].name or x.dtype not in (FLOAT, HALF):
        return None
    wide = x.dims[-1].size
    gamma = g.floats((wide,), x.dtype, 0.5)
    kind = g.one_of("SkipLayerNormalization", "SkipSimplifiedLayerNormalization", "SimplifiedLayerNormalization")
    if kind == "SimplifiedLayerNormalization":
        name = g.op(kind, [x.name, gamma], axis=-1, epsilon=1e-5, stash_type=1)
        return x._replace(name=name)
    other = g.op("Sigmoid", [x.name])
    further = [g.floats((wide,), x.dtype)] if kind.startswith("SkipL") and g.chance(2) else []
    return x._replace(name=g.op(kind, [x.name, other, gamma, *further], domain="com.microsoft", epsilon=1e-5))


def lp(g: Growing, x: Held) -> Held | None:
    if len(x.dims) < 2:
        return None
    return x._replace(name=g.op("LpNormalization", [x.name], axis=g.one_of(-1, 1), p=g.one_of(2, 1)))


def local_response(g: Growing, x: Held) -> Held | None:
    if len(x.dims) != 4 or not x.channels:
        return None
    stated = {"size": g.one_of(3, 5, 2), "alpha": 0.01, "beta": 0.75, "bias": g.one_of(1.0, 2.0)}
    return x._replace(name=g.op("LRN", [x.name], **stated))


def mean_variance(g: Growing, x: Held) -> Held | None:
    if len(x.dims) < 3 or x.dtype not in (FLOAT, HALF):
        return None
    axes = g.one_of([0, *range(2, len(x.dims))], [*range(2, len(x.dims))])
    return x._replace(name=g.op("MeanVarianceNormalization", [x.name], axes=axes))


def in_pieces(g: Growing, x: Held) -> Held | None:
    """A mean and a variance over some axes, a division, a scale and a shift."""
    rank = len(x.dims)
    if rank < 2:
        return None
    axes = g.one_of([-1], [rank - 1], [1], [*range(2, rank)] or [-1], [*range(1, rank)])
    normalized = _divided(g, x, _centred(g, x, axes), axes)
    shapes = _parameter_shapes(x, axes)
    if not shapes:
        return x._replace(name=normalized)
    shape = g.one_of(*shapes)
    if not g.chance(5):
        normalized = g.op("Mul", _turned(g, normalized, g.floats(shape, x.dtype, 0.5)))
    if not g.chance(5):
        normalized = g.op("Add", _turned(g, normalized, g.floats(shape, x.dtype)))
    return x._replace(name=normalized)


def _turned(g: Growing, first: str, second: str) -> list[str]:
    return [second, first] if g.chance(3) else [first, second]


def _parameter_shapes(x: Held, axes: list[int]) -> list[tuple[int, ...]]:
    """Shapes of scales over the last axis, the channels, or all that is normalized."""
    rank = len(x.dims)
    shapes: list[tuple[int, ...]] = [(1,)]
    if not x.dims[-1].name:
        shapes.append((x.dims[-1].size,))
    if x.channels:
        shapes.append((x.channels, *[1] * (rank - 2)))
    whole = sorted(axis % rank for axis in axes)
    if not any(x.dims[axis].name for axis in whole):
        shapes.append(tuple(x.dims[axis].size if axis in whole else 1 for axis in range(rank)))
    return shapes


def _mean(g: Growing, name: str, axes: list[int], rank: int) -> str:
    if g.chance(5):
        flat = g.op("ReduceMean", [name], axes=axes, keepdims=0)
        return str(g.op("Unsqueeze", [flat], axes=sorted(axis % rank for axis in axes)))
    return str(g.op("ReduceMean", [name], axes=axes, keepdims=1))


def _centred(g: Growing, x: Held, axes: list[int]) -> str:
    """The data without their mean; without a mean at all it is a root mean square."""
    if g.chance(4):
        return x.name
    return str(g.op("Sub", [x.name, _mean(g, x.name, axes, len(x.dims))]))


def _divided(g: Growing, x: Held, centred: str, axes: list[int]) -> str:
    rank = len(x.dims)
    again = centred
    if centred != x.name and g.chance(5):
        again = g.op("Sub", [x.name, _mean(g, x.name, axes, rank)])
    square = g.op("Mul", [again, again]) if g.chance(2) else g.op("Pow", [again, g.scalar(2.0, x.dtype)])
    variance = _mean(g, square, axes, rank)
    known = [x.dims[axis % rank] for axis in axes]
    count = int(np.prod([dim.size for dim in known]))
    if count > 1 and not any(dim.name for dim in known) and g.chance(6):
        variance = g.op("Mul", [variance, g.scalar(count / (count - 1), x.dtype)])
    epsilon = g.scalar(g.one_of(1e-5, 1e-3), x.dtype)
    inside = not g.chance(8)
    within = g.op("Add", _turned(g, variance, epsilon)) if inside else variance
    root = g.op("Sqrt", [within]) if not g.chance(5) else g.op("Pow", [within, g.scalar(0.5, x.dtype)])
    if not inside:
        root = g.op("Add", _turned(g, root, epsilon))
    if g.chance(3):
        inverse = g.op("Reciprocal", [root]) if g.chance(2) else g.op("Div", [g.scalar(1.0, x.dtype), root])
        return str(g.op("Mul", _turned(g, centred, inverse)))
    return str(g.op("Div", [centred, root]))


def unit_length(g: Growing, x: Held) -> Held | None:
    """Divided by the length, which is kept from zero, as PyTorch's ``normalize`` does."""
    if len(x.dims) < 2 or x.dtype == BFLOAT:
        return None
    axis = g.one_of(1, -1)
    length = g.op("ReduceL2", [x.name], axes=[axis], keepdims=1)
    if g.chance(3):
        bounded = g.op("Add", [length, g.scalar(1e-6, x.dtype)])
    else:
        bounded = g.op("Clip", [length, g.op("Squeeze", [g.scalar(1e-6, x.dtype)])])
    if g.chance(2):
        bounded = g.op("Expand", [bounded, g.op("Shape", [x.name])])
    return x._replace(name=g.op("Div", [x.name, bounded]))


def group_in_pieces(g: Growing, x: Held) -> Held | None:
    """GroupNorm as PyTorch exports it: groups as channels of an InstanceNormalization, then a scale and a shift."""
    if len(x.dims) < 3 or not x.channels or x.channels % 2:
        return None
    groups = g.one_of(1, 2, x.channels)
    shape = g.constant(np.array([0, groups, -1], np.int64))
    flat = g.op("Reshape", [x.name, shape])
    ones = (np.ones(groups), np.zeros(groups)) if not g.chance(5) else (np.full(groups, 2.0), np.ones(groups))
    parameters = [g.constant(value.astype(NUMPY[x.dtype])) for value in ones]
    normalized = g.op("InstanceNormalization", [flat, *parameters], epsilon=g.one_of(*EPSILONS))
    back = g.op("Reshape", [normalized, g.op("Shape", [x.name])])
    channels = (x.channels, *[1] * (len(x.dims) - 2))
    scaled = g.op("Mul", _turned(g, back, g.floats(channels, x.dtype, 0.5)))
    return x._replace(name=g.op("Add", _turned(g, scaled, g.floats(channels, x.dtype))))


def adaptive(g: Growing, x: Held) -> Held | None:
    """An InstanceNormalization whose scale another input gives, for each sample."""
    if len(x.dims) < 3 or not x.channels:
        return None
    plain = g.op(
        "InstanceNormalization", [x.name, *(g.constant(np.full(x.channels, v).astype(NUMPY[x.dtype])) for v in (1, 0))]
    )
    style = g.runtime((1, x.channels, *[1] * (len(x.dims) - 2)), x.dtype)
    return x._replace(name=g.op("Mul", [plain, style]))


NORMS: tuple[Step, ...] = (
    *(batch, batch, batch, batch, instance, group, layer, root_mean_square, skip_layer, lp, local_response, mean_variance),
    *(in_pieces, in_pieces, in_pieces, unit_length, group_in_pieces, adaptive),
)
