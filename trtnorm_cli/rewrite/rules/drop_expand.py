"""Let an elementwise operator broadcast instead of expanding its operand first.

    x ∘ Expand(s, shape(x)) = x ∘ s      for ∘ in +, −, ·, ÷

TensorRT computes the expanded tensor in a kernel of its own. PyTorch's exporters write it in F.normalize, for example.
Source: "Broadcasting in ONNX" in the ONNX operator specification; torch.nn.functional.normalize (Paszke et al. 2019).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from trtnorm_cli.rewrite.parts.shape_elements import AxisSize, shape_elements
from trtnorm_cli.rewrite.pattern import Var, describe, either, op
from trtnorm_cli.rewrite.rule import Match, NewNode, Rule

if TYPE_CHECKING:
    from trtnorm_cli.onnx_model.surgery import Surgery
    from trtnorm_cli.rewrite.rule import Node, Tensor


def concerns(node: Node, surgery: Surgery) -> bool:
    """One operand at least is expanded."""
    return any(tensor.inputs and tensor.inputs[0].op == "Expand" for tensor in node.inputs)


_EXPANDED = op("Expand", Var("small"), Var("shape"), name="expand")


def other_operand_has_the_shape(m: Match) -> str | None:
    """the other operand has the shape that is expanded to, so that broadcasting gives the same shape."""
    other = _other(m)
    kind = m.type_of(other)
    if kind is None or kind.shape is None:
        return f"the rank of {other.name} is not known"
    expanded = m.type_of(m.node("expand").outputs[0])
    elements = shape_elements(m, m.given("shape"))
    for axis, size in enumerate(kind.shape):
        stated = None if elements is None or len(elements) != len(kind.shape) else elements[axis]
        found = None
        if expanded is not None and expanded.shape is not None and len(expanded.shape) == len(kind.shape):
            found = expanded.shape[axis]
        if stated == AxisSize(other.name, axis) or (size is not None and size in (stated, found)):
            continue
        return f"{describe(m.node('expand'))} is not known to expand to the shape of {other.name}"
    return None


def _other(m: Match) -> Tensor:
    expanded = m.node("expand").outputs[0]
    return next((tensor for tensor in m.root.inputs if tensor is not expanded), expanded)


def broadcast(m: Match) -> NewNode:
    expanded, small = m.node("expand").outputs[0], m.given("small")
    inputs = tuple(small if tensor is expanded else tensor for tensor in m.root.inputs)
    return NewNode(m.root.op, inputs, name=m.root.name, role="broadcast")


RULE = Rule(
    name="drop-expand",
    pattern=op(
        ("Add", "Sub", "Mul", "Div"),
        either(_EXPANDED, Var("left")),
        either(_EXPANDED, Var("right")),
        name="elementwise",
    ),
    preconditions=(other_operand_has_the_shape,),
    replacement=broadcast,
    concerns=concerns,
    optional=lambda m: True,
    because="elementwise operators broadcast, and TensorRT computes the expanded tensor in a kernel of its own",
)
