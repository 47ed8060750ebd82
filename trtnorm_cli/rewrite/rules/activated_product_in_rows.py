"""Compute a product with weights, its bias and an activation on rows, where the data has four axes or more.

    f(x·W + b) = R⁻¹(f(R(x)·W + b))      R(x): [N, H, W, C] as [N, H·W, C]

TensorRT-RTX computes product, bias and activation of a tensor with three axes in one kernel. With four, the product is one
and the rest another that reads and writes all of it again. Channels-last vision models have four: ConvNeXt, Swin, MaxViT.
It depends on the activation and on what follows, so it is tried under `optimize: kernels`, which keeps what saves launches.
Source: "Matrix multiplication" in the ONNX operator specification; Hendrycks & Gimpel 2016, "Gaussian Error Linear Units".
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from trtnorm_cli.light_dataclass import dataclass
from trtnorm_cli.onnx_model.domains import DEFAULT_DOMAINS
from trtnorm_cli.rewrite.pattern import Const, Var, describe, either, op
from trtnorm_cli.rewrite.rule import Extent, Match, NewConstant, NewNode, Rule

if TYPE_CHECKING:
    from trtnorm_cli.onnx_model.surgery import Surgery
    from trtnorm_cli.rewrite.rule import Node, Tensor

# Functions of each element, which end a kernel of their own unless they are computed with the product before them.
_CURVES = frozenset(
    (
        *("Celu", "Elu", "Erf", "Gelu", "HardSigmoid", "HardSwish", "LeakyRelu", "Mish", "Relu", "Selu", "Sigmoid"),
        *("Softplus", "Tanh"),
    )
)
_ARITHMETIC = frozenset(("Add", "Div", "Mul", "Pow", "Sub"))
# The nodes of the longest spelling of an activation: GELU with tanh has eight.
_MOST_NODES = 12


@dataclass(frozen=True)
class Activation:
    """The nodes of an activation in the order in which they run, and the tensor that it makes of the biased product."""

    nodes: tuple[Node, ...]
    result: Tensor


def concerns(node: Node, surgery: Surgery) -> bool:
    """One operand is a product, and the sum goes into a function of each element."""
    products = [tensor for tensor in node.inputs if any(producer.op == "MatMul" for producer in tensor.inputs)]
    return len(products) == 1 and any(_is_elementwise(reader) for reader in node.outputs[0].outputs)


def data_of_four_axes(m: Match) -> tuple[int | str | None, ...] | None:
    """The shape of the data, where it has four axes or more."""
    shape = m.shape("x")
    return shape if shape is not None and len(shape) > 3 else None


def sizes_are_known_but_for_one(m: Match) -> str | None:
    """the sizes between the first axis and the last are known but for one, so that they can be given again."""
    shape = m.shape("x") or ()
    if sum(not isinstance(size, int) for size in shape[1:-1]) > 1 or not isinstance(shape[-1], int) or 0 in shape:
        return f"of the sizes of {m.given('x').name} too few are known: {list(shape)}"
    return None


def weights_are_a_matrix(m: Match) -> str | None:
    """the weights are one matrix for all rows, and the bias has one value per column."""
    weight, bias = m.value("weight"), m.value("bias")
    if weight.ndim != 2:
        return f"{m.given('weight').name} has {weight.ndim} axes"
    if bias.size != weight.shape[1] or bias.shape[-1:] != (bias.size,) or bias.ndim > len(m.shape("x") or ()):
        return f"{m.given('bias').name} has shape {list(bias.shape)} for {weight.shape[1]} columns"
    return None


def builds_are_to_decide(m: Match) -> str | None:
    """the build profile says optimize: kernels, so that builds find out whether it takes fewer."""
    if m.settings.counted:
        return None
    return "it may take fewer kernels in rows; with optimize: kernels in the build profile, builds find out"


def extent(m: Match) -> Extent | str | None:
    """an activation follows, of which nothing else reads a part."""
    activation = _activation(m)
    if activation is None:
        return None
    nodes = (m.node("product"), m.site, *activation.nodes)
    if not all(m.borders.are_together(node, m.site) for node in nodes):
        return f"{describe(m.node('product'))} belongs to an outer graph"
    ordered = tuple(sorted(nodes, key=lambda node: m.borders.positions[id(node)], reverse=True))
    return Extent(ordered[0], ordered, (), activation)


def _activation(m: Match) -> Activation | None:
    """The nodes behind the sum up to the last tensor that alone goes on, with a curve among it."""
    start: Tensor = m.site.outputs[0]
    inside: dict[str, Tensor] = {start.name: start}
    nodes: list[Node] = []
    found: Activation | None = None
    while len(nodes) < _MOST_NODES and (ahead := _next(m, inside, nodes)) is not None:
        nodes.append(ahead)
        inside[ahead.outputs[0].name] = ahead.outputs[0]
        left = [tensor for tensor in inside.values() if _is_read_outside(m, tensor, nodes)]
        if len(left) == 1 and left[0] is ahead.outputs[0] and any(node.op in _CURVES for node in nodes):
            found = Activation(tuple(nodes), left[0])
    return found


def _next(m: Match, inside: dict[str, Tensor], nodes: list[Node]) -> Node | None:
    """A reader of ``inside`` that needs nothing else but single numbers."""
    for tensor in inside.values():
        for reader in tensor.outputs:
            if all(reader is not node for node in nodes) and _is_elementwise(reader) and _is_fed(m, reader, inside):
                return reader
    return None


def _is_elementwise(node: Node) -> bool:
    return node.domain in DEFAULT_DOMAINS and node.op in _CURVES | _ARITHMETIC and len(node.outputs) == 1


def _is_fed(m: Match, node: Node, inside: dict[str, Tensor]) -> bool:
    others = [tensor for tensor in node.inputs if tensor.name not in inside]
    values = [m.surgery.constant(tensor) for tensor in others]
    return all(value is not None and value.size == 1 and value.ndim <= 3 for value in values)


def _is_read_outside(m: Match, tensor: Tensor, nodes: list[Node]) -> bool:
    return m.borders.leaves(tensor) or any(all(reader is not node for node in nodes) for reader in tensor.outputs)


def in_rows(m: Match) -> NewNode:
    assert m.extent is not None, "the rule has an extent"
    activation: Activation = m.extent.plan
    shape = m.shape("x") or ()
    columns = int(m.value("weight").shape[1])
    rows = NewNode("Reshape", (m.given("x"), _shape("rows", (_rows(shape[1:-1]), shape[-1]))), role="rows")
    product = NewNode("MatMul", (rows, m.given("weight")), name=m.node("product").name, role="product")
    made = {m.site.outputs[0].name: NewNode("Add", (product, _bias(m)), name=m.site.name, role="bias")}
    for node in activation.nodes:
        inputs = tuple(made.get(tensor.name, tensor) for tensor in node.inputs)
        made[node.outputs[0].name] = NewNode(node.op, inputs, dict(node.attrs), name=node.name, role=node.op.lower())
    sizes = tuple(size if isinstance(size, int) else -1 for size in shape[1:-1])
    return NewNode("Reshape", (made[activation.result.name], _shape("sizes", (*sizes, columns))), role="restored")


def _rows(sizes: tuple[int | str | None, ...]) -> int:
    known = [size for size in sizes if isinstance(size, int)]
    return math.prod(known) if len(known) == len(sizes) else -1


def _shape(role: str, sizes: tuple[int | str | None, ...]) -> NewConstant:
    """The target of a Reshape that keeps the first axis as it is."""
    return NewConstant(role, np.array((0, *sizes), np.int64))


def _bias(m: Match) -> Tensor | NewConstant:
    bias = m.value("bias")
    return m.given("bias") if bias.ndim == 1 else NewConstant("bias", bias.reshape(-1))


RULE = Rule(
    name="activated-product-in-rows",
    pattern=op(
        "Add",
        either(op("MatMul", Var("x"), Const("weight"), name="product"), Const("bias")),
        either(op("MatMul", Var("x"), Const("weight"), name="product"), Const("bias")),
        name="sum",
    ),
    preconditions=(sizes_are_known_but_for_one, weights_are_a_matrix, builds_are_to_decide),
    concerns=concerns,
    subject=data_of_four_axes,
    extent=extent,
    replacement=in_rows,
    optional=lambda m: data_of_four_axes(m) is not None,
    because="of rows TensorRT computes the product, its bias and the activation in one kernel",
)
