"""Products of matrices."""

from __future__ import annotations

from collections.abc import Callable

from trtnorm_cli.shapes.condition import broadcast_size, either, equal
from trtnorm_cli.shapes.expression import Size
from trtnorm_cli.shapes.node import Node, like
from trtnorm_cli.shapes.tensor import Shape, SymbolicTensor

_INNER = "the inner dimensions of the product must be equal"


def matmul(node: Node) -> list[SymbolicTensor]:
    quantized = {"QLinearMatMul": (0, 3)}.get(node.proto.op_type, (0, 1))
    a, b = (node.input(i) for i in quantized)
    dtype = {"MatMulInteger": 6, "QLinearMatMul": node.input(7).dtype}.get(node.proto.op_type, a.dtype)
    if not a.shape or not b.shape:
        return [SymbolicTensor(dtype)]
    left = a.shape if len(a.shape) > 1 else (1, *a.shape)
    right = b.shape if len(b.shape) > 1 else (*b.shape, 1)
    names = [node.name_of(i) for i in quantized]
    node.require_equal(_INNER, (f"that of {names[0]}", left[-1]), (f"that of {names[1]}", right[-2]))
    batch = node.broadcast([(names[0], left[:-2]), (names[1], right[:-2])]) or ()
    rows: Shape = (left[-2],) if len(a.shape) > 1 else ()
    columns: Shape = (right[-1],) if len(b.shape) > 1 else ()
    return [SymbolicTensor(dtype, (*batch, *rows, *columns))]


def gemm(node: Node) -> list[SymbolicTensor]:
    a, b = node.input(0), node.input(1)
    left = _matrix(a, bool(int(node.attributes.get("transA", 0))))
    right = _matrix(b, bool(int(node.attributes.get("transB", 0))))
    node.require_equal(_INNER, (f"that of {node.name_of(0)}", left[1]), (f"that of {node.name_of(1)}", right[0]))
    result = (left[0], right[1])
    if node.has(2):
        node.broadcast([("the product", result), (node.name_of(2), node.input(2).shape)])
    return [like(a, result)]


def _matrix(tensor: SymbolicTensor, transposed: bool) -> Shape:
    """The two sizes of an operand, as it is multiplied."""
    shape = tensor.shape if tensor.shape is not None and len(tensor.shape) == 2 else (None, None)
    return shape[::-1] if transposed else shape


def einsum(node: Node) -> list[SymbolicTensor]:
    equation = bytes(node.attributes["equation"]).decode().replace(" ", "")
    inputs = node.inputs()
    left, arrow, right = equation.partition("->")
    terms = left.split(",")
    if "..." in equation or len(terms) != len(inputs):
        return [like(inputs[0], None) if inputs[0].shape is None else SymbolicTensor(inputs[0].dtype)]
    sizes: dict[str, tuple[str, Size | None]] = {}
    for index, (term, tensor) in enumerate(zip(terms, inputs, strict=True)):
        if tensor.shape is None or len(term) != len(tensor.shape):
            return [SymbolicTensor(inputs[0].dtype)]
        for label, size in zip(term, tensor.shape, strict=True):
            _label(node, sizes, label, (f"{label} of {node.name_of(index)}", size))
    labels = right if arrow else "".join(sorted(label for label in sizes if left.count(label) == 1))
    return [SymbolicTensor(inputs[0].dtype, tuple(sizes[label][1] for label in labels))]


def _label(node: Node, sizes: dict[str, tuple[str, Size | None]], label: str, found: tuple[str, Size | None]) -> None:
    before = sizes.get(label)
    if before is None or before[1] is None or before[1] == 1:
        sizes[label] = found if before is None or found[1] is not None else before
    elif found[1] is not None and found[1] != 1:
        condition = either(equal(before[1], found[1]), equal(before[1], 1), equal(found[1], 1))
        node.require(condition, f"the dimensions called {label} must be equal", before, found)
        sizes[label] = (before[0], broadcast_size(before[1], found[1]))


RULES: dict[str, Callable[[Node], list[SymbolicTensor]]] = {
    "MatMul": matmul,
    "MatMulInteger": matmul,
    "QLinearMatMul": matmul,
    "Gemm": gemm,
    "Einsum": einsum,
}
