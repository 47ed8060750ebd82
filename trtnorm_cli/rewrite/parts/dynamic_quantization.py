"""Dynamic quantization: activations that ``DynamicQuantizeLinear`` rounds to 8 bits while the model runs, by the range of each.

    s = (max(x, 0) − min(x, 0)) / 255      z = round(−min(x, 0) / s)      q = round(x / s) + z

So s · (q − z) is x but for rounding: the float form of an operator on q takes x.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import onnx

from trtnorm_cli.light_dataclass import dataclass
from trtnorm_cli.onnx_model.domains import DEFAULT_DOMAINS
from trtnorm_cli.rewrite.parts.moves import Moved, moved
from trtnorm_cli.rewrite.pattern import describe
from trtnorm_cli.rewrite.rule import Match, NewConstant, NewNode, NewOutput

if TYPE_CHECKING:
    import onnx_graphsurgeon as gs

    from trtnorm_cli.onnx_model.surgery import Surgery

BECAUSE = "floats were asked for in place of dynamic quantization (dynamic_quantization: float)"
_DYNAMIC = "DynamicQuantizeLinear"
_QUANTISED, _SCALE, _ZERO = range(3)


def the_profile_asks_for_floats(m: Match) -> str | None:
    """the build profile says ``dynamic_quantization: float``."""
    policy = m.settings.dynamic_quantization
    return None if policy == "float" else f"the build profile says dynamic_quantization: {policy}"


def warning(m: Match) -> str:
    return (
        "computes with floats, because dynamic_quantization: float was asked for; the file rounds its activations to "
        "8 bits by the range that they have at run time"
    )


@dataclass(frozen=True)
class Activation:
    """A tensor of integers that ``quantiser`` made of floats, and that was moved since."""

    quantiser: gs.Node
    moves: Moved

    def floats(self, surgery: Surgery) -> gs.Tensor | NewNode:
        """The floats that the integers stand for."""
        result = self.moves.after(self.quantiser.inputs[0], surgery)
        assert not isinstance(result, NewConstant), "the source is a tensor"
        return result


def activation(quantised: gs.Tensor, zero: gs.Tensor | None) -> Activation | str:
    """``quantised`` with the zero point ``zero`` as a dynamically quantised activation, or why it is none."""
    moves = moved(quantised)
    quantiser = producer(moves.source, _DYNAMIC)
    if quantiser is None or moves.source is not quantiser.outputs[_QUANTISED]:
        return f"{quantised.name} is not made by {_DYNAMIC}"
    if zero is not quantiser.outputs[_ZERO]:
        named = "none" if zero is None or not zero.name else zero.name
        return f"the zero point of {quantised.name} is {named}, not the one of {describe(quantiser)}"
    return Activation(quantiser, moves)


def scale_of(tensor: gs.Tensor) -> gs.Node | None:
    """The quantiser whose scale ``tensor`` is."""
    quantiser = producer(tensor, _DYNAMIC)
    return quantiser if quantiser is not None and tensor is quantiser.outputs[_SCALE] else None


@dataclass(frozen=True)
class Unrounded:
    """The results of a quantiser if it did not round: the meaning that float forms are compared with."""

    floats: gs.Tensor
    quantiser: NewNode

    @staticmethod
    def of(quantiser: gs.Node) -> Unrounded:
        x = quantiser.inputs[0]
        return Unrounded(x, NewNode(_DYNAMIC, (x,), role="quantise", outputs=3))

    @property
    def scale(self) -> NewOutput:
        """The scale that the quantiser gives."""
        return NewOutput(self.quantiser, _SCALE)

    @property
    def centred(self) -> NewNode:
        """q − z without rounding: x / s."""
        return NewNode("Div", (self.floats, self.scale), role="centred")


def centred_weights(weights: np.ndarray, zero: np.ndarray | None) -> NewNode:
    """Weights less their zero point, by operators on what the file stores; ``zero`` broadcasts over them."""
    raised = NewNode("Cast", (NewConstant("weight", weights),), {"to": onnx.TensorProto.FLOAT}, role="raise_weight")
    if zero is None:
        return raised
    zeros = NewNode("Cast", (NewConstant("zero", zero),), {"to": onnx.TensorProto.FLOAT}, role="raise_zero")
    return NewNode("Sub", (raised, zeros), role="centre_weight")


def dequantised(weights: np.ndarray, scale: np.ndarray | float, zero: np.ndarray | None) -> np.ndarray:
    """scale · (weights − zero), computed in float64 and rounded to float32 once. All of them broadcast."""
    centred = weights.astype(np.float64) - (0.0 if zero is None else zero.astype(np.float64))
    return (centred * np.asarray(scale, np.float64)).astype(np.float32)


def producer(tensor: gs.Tensor, *operators: str) -> gs.Node | None:
    """The node that makes ``tensor``, where it is one of ONNX's ``operators``."""
    node = tensor.inputs[0] if tensor.inputs else None
    return node if node is not None and node.op in operators and node.domain in DEFAULT_DOMAINS else None


def given(node: gs.Node, index: int) -> gs.Tensor | None:
    """The input ``index`` of ``node``; None where it is left out."""
    tensor = node.inputs[index] if index < len(node.inputs) else None
    return None if tensor is None or not tensor.name else tensor
