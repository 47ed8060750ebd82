"""Pass on what is quantised dynamically and dequantised again, where the user asks for floats.

    y = s · (q − z),  q, s, z = DynamicQuantizeLinear(x)    →    y = x

Elements of q may be moved in between. It is applied only when the build profile says `dynamic_quantization: float`: TensorRT
quantises nothing by a range that it finds at run time.
Source: DynamicQuantizeLinear-11 and DequantizeLinear-10 in the ONNX operator specification, onnx/onnx 2019.
"""

from __future__ import annotations

from trtnorm_cli.rewrite.parts import dynamic_quantization as dynamic
from trtnorm_cli.rewrite.parts.dynamic_quantization import Activation, Unrounded
from trtnorm_cli.rewrite.parts.moves import MOVES
from trtnorm_cli.rewrite.pattern import Var, describe, fed_by, op, optional
from trtnorm_cli.rewrite.rule import Match, NewNode, Rule


def it_takes_an_activation_back(m: Match) -> str | None:
    """its data, scale and zero point are those of one DynamicQuantizeLinear."""
    found = dynamic.activation(m.given("x"), m.tensor("zero"))
    if isinstance(found, str):
        return found
    if dynamic.scale_of(m.given("scale")) is not found.quantiser:
        return f"{m.given('scale').name} is not the scale of {describe(found.quantiser)}"
    return None


def _activation(m: Match) -> Activation:
    found = dynamic.activation(m.given("x"), m.tensor("zero"))
    assert isinstance(found, Activation), "the precondition holds"
    return found


def floats(m: Match) -> NewNode:
    made = _activation(m).floats(m.surgery)
    return made if isinstance(made, NewNode) else NewNode("Identity", (made,), role="float")


def without_rounding(m: Match) -> NewNode:
    found = _activation(m)
    unrounded = Unrounded.of(found.quantiser)
    return NewNode("Mul", (found.moves.after(unrounded.centred, m.surgery), unrounded.scale), role="dequantise")


RULE = Rule(
    name="dynamic-dequantize-to-float",
    pattern=op("DequantizeLinear", Var("x"), Var("scale"), optional(Var("zero")), name="dequantise"),
    preconditions=(dynamic.the_profile_asks_for_floats, it_takes_an_activation_back),
    replacement=floats,
    because=dynamic.BECAUSE,
    warning=dynamic.warning,
    reference=without_rounding,
    changes_meaning=lambda m: True,
    concerns=fed_by("DynamicQuantizeLinear", *MOVES),
    since_opset=10,
)
