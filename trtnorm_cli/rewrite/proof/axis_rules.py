"""The effect of each operator on the axes of its tensors. An operator that is not here keeps the file's shapes."""

from __future__ import annotations

from collections.abc import Callable

from trtnorm_cli.rewrite.proof.axes import NotShortened
from trtnorm_cli.rewrite.proof.axis_moves import concatenated, flattened, gathered, reshaped, sliced, split
from trtnorm_cli.rewrite.proof.use import Tensor, Use


def elementwise(use: Use) -> Tensor:
    """Operands are aligned at the last axis, and repeated along axes of length one."""
    given = [tensor for tensor in use.inputs if tensor is not None]
    rank = max(map(len, given))
    return [
        use.axes.same([tensor[place - rank + len(tensor)] for tensor in given if place >= rank - len(tensor)])
        for place in range(rank)
    ]


def over_channels(use: Use) -> Tensor:
    """A BatchNormalization with the statistics that it is given."""
    x = use.given(0)
    if use.attributes.get("training_mode", 0) or len(x) < 2 or use.attributes.get("spatial", 1) == 0:
        raise NotShortened
    use.axes.keep(x[1:2])
    _keep_parameters(use)
    return x


def over_positions(use: Use) -> Tensor:
    """All axes but the batch are reduced, or have parameters."""
    x = use.given(0)
    use.axes.keep(x[1:])
    _keep_parameters(use)
    return x


def _keep_parameters(use: Use, first: int = 1) -> None:
    for parameter in use.inputs[first:]:
        use.axes.keep(parameter or ())


def from_axis(use: Use) -> Tensor:
    """The axes from ``axis`` on are reduced."""
    x = use.given(0)
    axis = int(use.attributes.get("axis", -1))
    use.axes.keep(x[axis:])
    _keep_parameters(use)
    return x


def along_axis(use: Use) -> Tensor:
    """One axis is reduced."""
    x = use.given(0)
    use.axes.keep([x[int(use.attributes.get("axis", -1))]])
    return x


def reduced(use: Use) -> Tensor:
    x, stated = use.given(0), use.integers("axes", 1)
    if stated is None:
        stated = [] if use.attributes.get("noop_with_empty_axes", 0) else list(range(len(x)))
    places = {place % len(x) for place in stated}
    use.axes.keep(x[place] for place in places)
    if use.attributes.get("keepdims", 1):
        return [use.axes.new(1) if place in places else axis for place, axis in enumerate(x)]
    return [axis for place, axis in enumerate(x) if place not in places]


def over_listed_axes(use: Use) -> Tensor:
    """The axes that an attribute lists are reduced."""
    x = use.given(0)
    use.axes.keep(x[int(place)] for place in use.attributes["axes"])
    return x


def among_channels(use: Use) -> Tensor:
    """Channels that lie beside each other are summed."""
    x = use.given(0)
    use.axes.keep(x[1:2])
    return x


def over_plane(use: Use) -> Tensor:
    x = use.given(0)
    use.axes.keep(x[2:])
    return [*x[:2], *(use.axes.new(1) for _ in x[2:])]


def transposed(use: Use) -> Tensor:
    x = use.given(0)
    order = use.attributes.get("perm") or range(len(x) - 1, -1, -1)
    return [x[place] for place in order]


def unsqueezed(use: Use) -> Tensor:
    x, stated = use.given(0), use.integers("axes", 1)
    if stated is None:
        raise NotShortened
    rank = len(x) + len(stated)
    places, rest = {place % rank for place in stated}, iter(x)
    return [use.axes.new(1) if place in places else next(rest) for place in range(rank)]


def squeezed(use: Use) -> Tensor:
    x, stated = use.given(0), use.integers("axes", 1)
    if stated is None:
        raise NotShortened
    places = {place % len(x) for place in stated}
    use.axes.keep(x[place] for place in places)
    return [axis for place, axis in enumerate(x) if place not in places]


def product(use: Use) -> Tensor:
    """MatMul: rows of the first operand, columns of the second, whatever is before them repeated."""
    a, b = use.given(0), use.given(1)
    if len(a) < 2 or len(b) < 2:
        raise NotShortened
    use.axes.keep((a[-1], *b[-2:]))
    before = elementwise(Use(use.axes, (a[:-2], b[:-2]), (), {}, use.work)) if max(len(a), len(b)) > 2 else []
    result = [*before, a[-2], b[-1]]
    use.work.append([*result, a[-1]])
    return result


def gemm(use: Use) -> Tensor:
    a, b = use.given(0), use.given(1)
    rows, inner = (a[1], a[0]) if use.attributes.get("transA") else (a[0], a[1])
    columns = b[0] if use.attributes.get("transB") else b[1]
    use.axes.keep((inner, *b))
    use.work.append([rows, inner, columns])
    if len(use.inputs) > 2 and use.inputs[2] is not None:
        elementwise(Use(use.axes, ([rows, columns], use.inputs[2]), (), {}, use.work))
    return [rows, columns]


def convolution(use: Use) -> Tensor:
    x, weight = use.given(0), use.given(1)
    use.axes.keep((x[1], *weight))
    _keep_parameters(use, 2)
    kernel = use.sizes(weight[2:])
    result = [x[0], weight[0], *(_slid(use, x[2 + i], i, size) for i, size in enumerate(kernel))]
    use.work.append([*result, *weight[1:]])
    return result


def pooling(use: Use) -> Tensor:
    x, kernel = use.given(0), use.attributes.get("kernel_shape")
    if not kernel:
        raise NotShortened
    return [*x[:2], *(_slid(use, x[2 + i], i, int(size)) for i, size in enumerate(kernel))]


def _slid(use: Use, axis: int, place: int, kernel: int) -> int:
    """The axis of the positions of a window that slides along ``axis``."""
    size, stride = use.axes.sizes[axis], _at(use, "strides", place, 1)
    reach = (kernel - 1) * _at(use, "dilations", place, 1) + 1
    begin, end = _pads(use, place, size, stride, reach)
    left_over = size + begin + end - reach
    if left_over < 0 or begin < 0 or end < 0:
        raise NotShortened
    count = -(-left_over // stride) if use.attributes.get("ceil_mode", 0) else left_over // stride
    # The first window that is whole, and one more; windows over the border lie beside them.
    whole = -(-begin // stride)
    use.axes.need(axis, whole * stride - begin + reach + stride)
    made = use.axes.new(count + 1)
    use.axes.link(axis, made, stride)
    return made


def _at(use: Use, name: str, place: int, default: int) -> int:
    stated = use.attributes.get(name)
    return int(stated[place]) if stated else default


def _pads(use: Use, place: int, size: int, stride: int, reach: int) -> tuple[int, int]:
    auto = use.attributes.get("auto_pad") or "NOTSET"
    if auto == "VALID":
        return 0, 0
    if auto in ("SAME_UPPER", "SAME_LOWER"):
        total = max((-(-size // stride) - 1) * stride + reach - size, 0)
        return (total // 2, total - total // 2) if auto == "SAME_UPPER" else (total - total // 2, total // 2)
    pads = use.attributes.get("pads")
    return (int(pads[place]), int(pads[place + len(pads) // 2])) if pads else (0, 0)


def transposed_convolution(use: Use) -> Tensor:
    x, weight = use.given(0), use.given(1)
    if use.attributes.get("output_shape") or (use.attributes.get("auto_pad") or "NOTSET") not in ("NOTSET", "VALID"):
        raise NotShortened
    use.axes.keep((x[1], *weight))
    _keep_parameters(use, 2)
    channels = use.axes.fixed([use.axes.sizes[weight[1]] * int(use.attributes.get("group", 1))])
    kernel = use.sizes(weight[2:])
    result = [x[0], *channels, *(_spread(use, x[2 + i], i, size) for i, size in enumerate(kernel))]
    use.work.append([x[0], *x[2:], *weight])
    return result


def _spread(use: Use, axis: int, place: int, kernel: int) -> int:
    """The axis along which each position of ``axis`` lays a kernel."""
    size, stride = use.axes.sizes[axis], _at(use, "strides", place, 1)
    reach = (kernel - 1) * _at(use, "dilations", place, 1) + 1
    begin, end = _pads(use, place, size, stride, reach)
    extra = _at(use, "output_padding", place, 0)
    # Positions whose kernel is cut off at either end, one that is whole, and as many as overlap with it.
    use.axes.need(axis, -(-begin // stride) + -(-max(end - extra, 0) // stride) + 1 + -(-reach // stride))
    made = use.axes.new((size - 1) * stride + reach + extra - begin - end)
    use.axes.link(made, axis, stride)
    return made


_ELEMENTWISE = (
    *("Abs", "Add", "Cast", "Ceil", "Celu", "Clip", "Cos", "Div", "Elu", "Erf", "Exp", "Floor", "Gelu", "HardSigmoid"),
    *("HardSwish", "Identity", "LeakyRelu", "Log", "Max", "Mean", "Min", "Mish", "Mul", "Neg", "PRelu", "Pow", "Reciprocal"),
    *("Relu", "Selu", "Sigmoid", "Sign", "Sin", "Softplus", "Softsign", "Sqrt", "Sub", "Sum", "Tanh", "ThresholdedRelu"),
    "Where",
)
_REDUCTIONS = ("ReduceL1", "ReduceL2", "ReduceMax", "ReduceMean", "ReduceMin", "ReduceProd", "ReduceSum", "ReduceSumSquare")

AXIS_RULES: dict[str, Callable[[Use], Tensor]] = {
    **dict.fromkeys(_ELEMENTWISE, elementwise),
    **dict.fromkeys(_REDUCTIONS, reduced),
    "AveragePool": pooling,
    "BatchNormalization": over_channels,
    "Conv": convolution,
    "Concat": concatenated,
    "ConvTranspose": transposed_convolution,
    "Flatten": flattened,
    "Gather": gathered,
    "Gemm": gemm,
    "GlobalAveragePool": over_plane,
    "GroupNormalization": over_positions,
    "InstanceNormalization": over_positions,
    "LRN": among_channels,
    "LayerNormalization": from_axis,
    "LogSoftmax": along_axis,
    "LpNormalization": along_axis,
    "MatMul": product,
    "MaxPool": pooling,
    "MeanVarianceNormalization": over_listed_axes,
    "RMSNormalization": from_axis,
    "SimplifiedLayerNormalization": from_axis,
    "Reshape": reshaped,
    "Slice": sliced,
    "Softmax": along_axis,
    "Squeeze": squeezed,
    "Transpose": transposed,
    "Unsqueeze": unsqueezed,
}

# Those with several outputs.
AXES_OF_EACH: dict[str, Callable[[Use], list[Tensor]]] = {"Split": split}
