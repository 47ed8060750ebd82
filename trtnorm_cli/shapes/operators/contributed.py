"""Operators on integers that ONNX Runtime contributes in the domain com.microsoft: those of ONNX on the same tensors."""

from __future__ import annotations

from collections.abc import Callable

import onnx

from trtnorm_cli.shapes.node import Node, like
from trtnorm_cli.shapes.operators import elementwise, matrix, movement, windows
from trtnorm_cli.shapes.tensor import SymbolicTensor

DOMAIN = "com.microsoft"
Rule = Callable[[Node], list[SymbolicTensor]]


def _as(rule: Rule, *numbers: int) -> Rule:
    """``rule`` on the inputs ``numbers``, without their scales and zero points."""

    def made(node: Node) -> list[SymbolicTensor]:
        if node.attributes.get("channels_last", 0):
            return []
        return _typed(node, rule(_only(node, numbers)), numbers[-1])

    return made


def _only(node: Node, numbers: tuple[int, ...]) -> Node:
    return node.with_inputs([node.input(number) for number in numbers], [node.name_of(number) for number in numbers])


def _typed(node: Node, made: list[SymbolicTensor], number: int) -> list[SymbolicTensor]:
    return [like(tensor, dtype=node.input(number).dtype) for tensor in made]


def _concat(node: Node) -> list[SymbolicTensor]:
    numbers = tuple(range(2, len(node.proto.input), 3))
    return _typed(node, movement.RULES["Concat"](_only(node, numbers)), 2)


def _product(node: Node) -> list[SymbolicTensor]:
    made = matrix.RULES["MatMul"](_only(node, (0, 1)))
    return [like(tensor, dtype=onnx.TensorProto.FLOAT) for tensor in made]


def _gemm(node: Node) -> list[SymbolicTensor]:
    kind = node.input(0).dtype if node.has(7) else onnx.TensorProto.FLOAT
    return [like(tensor, dtype=kind) for tensor in matrix.RULES["Gemm"](_only(node, (0, 3)))]


def _block_product(node: Node) -> list[SymbolicTensor]:
    x = node.input(0)
    return [] if x.shape is None else [like(x, (*x.shape[:-1], int(node.attributes["N"])))]


def _block_gather(node: Node) -> list[SymbolicTensor]:
    table, indices = node.input(0), node.input(1)
    if table.shape is None or indices.shape is None or not table.shape:
        return []
    per_byte = 8 // int(node.attributes.get("bits", 4)) if table.dtype == onnx.TensorProto.UINT8 else 1
    last = table.shape[-1]
    shape = (*table.shape[:-1], last * per_byte if isinstance(last, int) else None)
    axis = int(node.attributes.get("gather_axis", 0)) % len(shape)
    return [like(node.input(2), (*shape[:axis], *indices.shape, *shape[axis + 1 :]))]


CONTRIBUTED: dict[str, Rule] = {
    "DequantizeLinear": elementwise.RULES["DequantizeLinear"],
    "DynamicQuantizeMatMul": _product,
    "GatherBlockQuantized": _block_gather,
    "MatMulIntegerToFloat": _product,
    "MatMulNBits": _block_product,
    "QGemm": _gemm,
    "QLinearAdd": _as(elementwise.RULES["Add"], 0, 3),
    "QLinearConcat": _concat,
    "QLinearGlobalAveragePool": _as(windows.RULES["GlobalAveragePool"], 0),
    "QLinearAveragePool": _as(windows.RULES["AveragePool"], 0),
    "QLinearLeakyRelu": _as(elementwise.RULES["LeakyRelu"], 0),
    "QLinearMul": _as(elementwise.RULES["Mul"], 0, 3),
    "QLinearSigmoid": _as(elementwise.RULES["Sigmoid"], 0),
    "QLinearWhere": _as(elementwise.RULES["Where"], 0, 1, 4),
    "QuantizeLinear": elementwise.RULES["QuantizeLinear"],
}
