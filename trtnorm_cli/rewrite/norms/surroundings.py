"""What stands next to a normalization: whether it decides how the data are laid out in memory."""

from __future__ import annotations

from typing import TYPE_CHECKING

from trtnorm_cli.rewrite.borders import Borders
from trtnorm_cli.rewrite.norms.composition import Composition

if TYPE_CHECKING:
    import onnx_graphsurgeon as gs

_ELEMENTWISE = frozenset((
    "Abs", "Add", "Cast", "Clip", "Div", "Elu", "Erf", "Exp", "Gelu", "HardSigmoid", "HardSwish", "Identity", "LeakyRelu",
    "Log", "Max", "Min", "Mul", "Neg", "PRelu", "Pow", "Reciprocal", "Relu", "Selu", "Sigmoid", "Softplus", "Sqrt", "Sub",
    "Sum", "Tanh",
))  # fmt: skip
_PLANE = frozenset(("GlobalAveragePool", "GlobalMaxPool"))
_FARTHEST = 6


def is_between_elementwise_operators(composition: Composition, borders: Borders) -> bool:
    """True when elementwise operators make the data, and only they and reductions of the plane read the result.

    An input of the graph, and what leaves it unchanged, do not count as elementwise: their layout is settled.
    """
    producer = _producer(composition.data)
    while producer is not None and producer.op == "Cast":
        producer = _producer(producer.inputs[0])
    if producer is None or producer.op not in _ELEMENTWISE:
        return False
    return _is_read_elementwise(composition.output, borders, _FARTHEST)


def _producer(tensor: gs.Tensor) -> gs.Node | None:
    return tensor.inputs[0] if tensor.inputs else None


def _is_read_elementwise(tensor: gs.Tensor, borders: Borders, depth: int) -> bool:
    if depth == 0:
        return False
    for node in tensor.outputs:
        if node.op in _PLANE or node.op.startswith("Reduce"):
            continue
        if node.op not in _ELEMENTWISE or not _is_read_elementwise(node.outputs[0], borders, depth - 1):
            return False
    return bool(tensor.outputs) or borders.leaves(tensor)
