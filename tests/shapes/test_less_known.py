"""Operators of which an input is less known: the rest must stay known, and nothing may be claimed that is not so.

Everything is known at first. Then each input of each node hides its rank, its sizes or its elements, one after the other. What
the rule of the operator still says must be so, and must be as much as ONNX's own inference says of the same.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import onnx
import pytest

from tests.shapes.operator_models import ALL, model_of, opset_of
from trtnorm_cli.shapes.node import Node
from trtnorm_cli.shapes.operators import OPERATORS, contributed
from trtnorm_cli.shapes.propagate import propagate
from trtnorm_cli.shapes.tensor import UNKNOWN, SymbolicTensor

RULES = {"": OPERATORS, contributed.DOMAIN: contributed.CONTRIBUTED}
MOST_HIDDEN_ELEMENTS = 8
# ONNX takes an unknown argument of a Slice for one that is left out, and counts a window that begins in the padding.
ONNX_IS_WRONG = ("Slice", "AveragePool")


def hidings(tensor: SymbolicTensor) -> Iterator[tuple[str, SymbolicTensor]]:
    kind, shape, elements = tensor.dtype, tensor.shape or (), tensor.elements
    yield "all but the type", SymbolicTensor(kind)
    if tensor.items is not None:
        return
    yield "its sizes", SymbolicTensor(kind, (None,) * len(shape))
    for axis in range(len(shape)):
        yield f"axis {axis}", SymbolicTensor(kind, (*shape[:axis], None, *shape[axis + 1 :]))
    if elements is not None:
        yield "its elements", SymbolicTensor(kind, shape)
        for index in range(min(elements.size, MOST_HIDDEN_ELEMENTS)):
            fewer = elements.copy()
            fewer.reshape(-1)[index] = None
            yield f"element {index}", SymbolicTensor(kind, shape, fewer)


def of_onnx(node: onnx.NodeProto, given: Sequence[SymbolicTensor | None], opset: int) -> dict[str, SymbolicTensor]:
    """What ONNX infers of the outputs."""
    types, data = {}, {}
    for name, tensor in zip(node.input, given, strict=True):
        if not name:
            continue
        if tensor is None or tensor.items is not None:
            return {}
        types[name] = onnx.helper.make_tensor_type_proto(tensor.dtype, tensor.shape)
        values = tensor.vector()
        if values is not None and all(isinstance(value, (int, float)) for value in values):
            array = np.array(values).astype(onnx.helper.tensor_dtype_to_np_dtype(tensor.dtype))
            data[name] = onnx.numpy_helper.from_array(array.reshape(tensor.shape), name)
    schema = onnx.defs.get_schema(node.op_type, opset, "")
    try:
        found = onnx.shape_inference.infer_node_outputs(
            schema, node, types, data, opset_imports=[onnx.helper.make_opsetid("", opset)], ir_version=8
        )
    except (onnx.shape_inference.InferenceError, onnx.checker.ValidationError):
        return {}
    known = {name: kind.tensor_type for name, kind in found.items() if kind.HasField("tensor_type")}
    return {
        name: SymbolicTensor(
            kind.elem_type,
            tuple(dim.dim_value if dim.HasField("dim_value") else None for dim in kind.shape.dim)
            if kind.HasField("shape")
            else None,
        )
        for name, kind in known.items()
    }


def is_part_of(less: SymbolicTensor, more: SymbolicTensor) -> bool:
    """True where ``more`` says all that ``less`` says."""
    if less.dtype not in (0, more.dtype):
        return False
    if less.shape is not None and (
        more.shape is None
        or len(less.shape) != len(more.shape)
        or any(a not in (None, b) for a, b in zip(less.shape, more.shape, strict=True))
    ):
        return False
    return less.elements is None or (
        more.elements is not None
        and all(a is None or a == b for a, b in zip(less.elements.flat, more.elements.flat, strict=True))
    )


@pytest.mark.parametrize("name", ALL)
def test_what_is_still_said_is_so_and_is_no_less_than_onnx_says(name):
    model, opset = model_of(name, "float[3, 4, 12, 7] x"), opset_of(name)
    all_known = propagate(model).tensors
    tried = 0
    for node in model.graph.node:
        inputs = [all_known[key] if key else None for key in node.input]
        for place, tensor in enumerate(inputs):
            if tensor is None or node.op_type not in RULES[node.domain]:
                continue
            for what, less in hidings(tensor):
                given = [*inputs[:place], less, *inputs[place + 1 :]]
                reported: list[object] = []
                made = RULES[node.domain][node.op_type](Node(node, given, opset, reported.append))
                # ONNX gets types by name, so that one tensor cannot be two.
                theirs = {} if node.domain or len(set(node.input)) < len(inputs) else of_onnx(node, given, opset)
                said = f"{node.op_type}, where input {place} hides {what}"
                assert reported == [], said
                for output, mine in zip(node.output, [*made, *[UNKNOWN] * len(node.output)], strict=False):
                    truth = all_known[output]
                    assert is_part_of(mine, truth), (said, output, mine)
                    inferred = theirs.get(output)
                    if inferred is not None and node.op_type not in ONNX_IS_WRONG:
                        assert is_part_of(inferred, SymbolicTensor(mine.dtype, mine.shape)), (said, output, mine, inferred)
                tried += 1
    assert tried
