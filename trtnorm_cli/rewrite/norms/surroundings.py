"""The neighbours of a normalization: whether one decides how the data are laid out in memory.

TensorRT's convolutions leave the channels last. Where none is near, its compiler fuses a normalization with the elementwise
operators around it as it is; docs/normalization_kernels.md has the measurements.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from trtnorm_cli.rewrite.norms.composition import Composition

if TYPE_CHECKING:
    import onnx_graphsurgeon as gs

_ELEMENTWISE = frozenset((
    "Abs", "Add", "Cast", "Clip", "Div", "Elu", "Erf", "Exp", "Gelu", "HardSigmoid", "HardSwish", "Identity", "LeakyRelu",
    "Log", "Max", "Min", "Mul", "Neg", "PRelu", "Pow", "Reciprocal", "Relu", "Selu", "Sigmoid", "Softplus", "Sqrt", "Sub",
    "Sum", "Tanh",
))  # fmt: skip
_AROUND_CONVOLUTIONS = frozenset(("Pad", "Dropout", "MaxPool", "AveragePool", "Resize"))
CONVOLUTIONS = frozenset(("Conv", "ConvTranspose"))
INPUT = "input"
# A Reshape behind a Transpose that brought the channels to axis 1 makes an image of positions in a row.
_KEEPING_CHANNELS = frozenset(("Cast", "Reshape"))
_FARTHEST = 6


def makers_of(tensor: gs.Tensor, depth: int = _FARTHEST) -> set[str]:
    """The operators that make ``tensor``, looked for through elementwise ones; ``INPUT`` for an input of the graph."""
    if not tensor.inputs:
        return {INPUT}
    node = tensor.inputs[0]
    if node.op not in _ELEMENTWISE | _AROUND_CONVOLUTIONS or depth == 0:
        return {str(node.op)}
    data = node.inputs if node.op in _ELEMENTWISE else node.inputs[:1]
    return set().union(*(makers_of(t, depth - 1) for t in data if t.inputs or (not t.is_empty() and not _is_constant(t))))


def readers_of(tensor: gs.Tensor, depth: int = _FARTHEST) -> set[str]:
    """The operators that read ``tensor``, looked for through elementwise ones."""
    found: set[str] = set()
    for node in tensor.outputs:
        through = node.op in _ELEMENTWISE | _AROUND_CONVOLUTIONS and depth > 0 and node.outputs
        found |= readers_of(node.outputs[0], depth - 1) if through else {str(node.op)}
    return found


def is_next_to_a_convolution(composition: Composition) -> bool:
    """True when a convolution makes the data or reads the result, elementwise operators and padding aside."""
    return bool(CONVOLUTIONS & (makers_of(composition.data) | readers_of(composition.output)))


def is_transposed_behind(composition: Composition) -> bool:
    """True when a transposition reads the result itself."""
    return any(node.op == "Transpose" for node in composition.output.outputs)


def is_convolved(composition: Composition) -> bool:
    """True when a convolution reads the result itself, or padded."""
    readers = list(composition.output.outputs)
    for node in readers:
        if node.op == "Pad" and node.outputs:
            readers += node.outputs[0].outputs
    return any(node.op in CONVOLUTIONS for node in readers)


def lies_with_channels_first(composition: Composition) -> bool:
    """True when the data surely lie in memory as they are said to, or have to be brought into that order for it.

    That is so for an input of the graph, and where a Transpose brought the last axis to axis 1, as behind a matrix product.
    """
    tensor = composition.data
    while tensor.inputs and tensor.inputs[0].op in _KEEPING_CHANNELS:
        tensor = tensor.inputs[0].inputs[0]
    if not tensor.inputs:
        return True
    order = tensor.inputs[0].attrs.get("perm") if tensor.inputs[0].op == "Transpose" else None
    return order is not None and list(order)[1:2] == [len(order) - 1]


def _is_constant(tensor: gs.Tensor) -> bool:
    return type(tensor).__name__ == "Constant"
