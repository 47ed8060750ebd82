"""Write weights of 8 bits that TensorRT does not dequantise as ones that it does, or as floats.

    y = s · (moved(q) − z)    →    y = moved(s · (q − z))

TensorRT's DequantizeLinear takes signed integers without a zero point, straight from the file. Weights that fit stay integers,
q − z; others become floats. Moved are rows of a table, say, that a Gather picks.
Source: DequantizeLinear-10 to -23 in the ONNX operator specification; Jacob et al. 2018, §2.
"""

from __future__ import annotations

import numpy as np

from trtnorm_cli.rewrite.parts.dynamic_quantization import dequantised
from trtnorm_cli.rewrite.parts.moves import Moved, moved
from trtnorm_cli.rewrite.parts.quantised import misfit
from trtnorm_cli.rewrite.pattern import Const, Var, describe, op, optional
from trtnorm_cli.rewrite.rule import Match, NewConstant, NewNode, Rule

_BYTES = (np.dtype(np.int8), np.dtype(np.uint8))
_MOST = np.iinfo(np.int8).max


def weights_are_bytes_of_the_file(m: Match) -> str | None:
    """its data are integers of 8 bits that stand in the file, or are picked from such."""
    source = _weights(m).source
    value = m.surgery.constant(source)
    if value is None:
        return f"{source.name} is computed at run time"
    return None if value.dtype in _BYTES else f"{source.name} is of type {value.dtype}"


def tensorrt_does_not_take_them(m: Match) -> str | None:
    """they are unsigned, or moved, or have a zero point that is not 0."""
    weights = _weights(m)
    is_signed = _stored(m).dtype == np.int8
    return f"TensorRT takes {weights.source.name} as it is" if is_signed and not weights.nodes and not _zero(m).any() else None


def moved_weights_have_one_scale(m: Match) -> str | None:
    """scale and zero point are single numbers, where the weights are moved in front of it, and not in blocks."""
    if m.root.attrs.get("block_size", 0):
        return f"{describe(m.root)} has a scale for each block"
    single = m.value("scale").size == 1 and _zero(m).size == 1
    return (
        None if single or not _weights(m).nodes else f"{describe(m.root)} has {m.value('scale').size} scales for what is moved"
    )


def scales_fit_the_weights(m: Match) -> str | None:
    """there is one scale and one zero point, or one for each index along an axis of the weights."""
    shape = _stored(m).shape
    return misfit(m.root, m.value("scale"), shape) or misfit(m.root, _zero(m), shape)


def the_result_is_float32(m: Match) -> str | None:
    """scales, and so the results, are float32."""
    kind = m.value("scale").dtype
    return None if kind == np.float32 else f"the scale of {describe(m.root)} is of type {kind}"


def _weights(m: Match) -> Moved:
    return moved(m.given("x"))


def _stored(m: Match) -> np.ndarray:
    value = m.surgery.constant(_weights(m).source)
    assert value is not None, "the precondition holds"
    return value


def _zero(m: Match) -> np.ndarray:
    return m.value("zero") if m.has("zero") else np.zeros((), np.int8)


def _along_axis(m: Match, parameter: np.ndarray) -> np.ndarray:
    """A parameter of DequantizeLinear so that it broadcasts over the weights."""
    if parameter.size == 1:
        return parameter.reshape(())
    rank = _stored(m).ndim
    axis = int(m.root.attrs.get("axis", 1)) % rank
    return parameter.reshape(-1, *[1] * (rank - axis - 1))


def in_another_type(m: Match) -> NewNode:
    weights, stored = _weights(m), _stored(m)
    scale, zero = m.value("scale"), _along_axis(m, _zero(m))
    centred = stored.astype(np.int32) - zero.astype(np.int32)
    if centred.min(initial=0) >= -_MOST - 1 and centred.max(initial=0) <= _MOST:
        inputs = (NewConstant("weight", centred.astype(np.int8)), NewConstant("scale", scale))
        name = "" if weights.nodes else m.root.name
        attributes = {key: value for key, value in m.root.attrs.items() if key == "axis"}
        made: NewNode | NewConstant = NewNode("DequantizeLinear", inputs, attributes, name=name, role="dequantised")
    else:
        made = NewConstant("weight", dequantised(stored, _along_axis(m, scale), zero))
    result = weights.after(made, m.surgery)
    return result if isinstance(result, NewNode) else NewNode("Identity", (made,), name=m.root.name, role="weight")


def as_the_file_has_it(m: Match) -> NewNode:
    weights = _weights(m)
    inputs = [weights.after(NewConstant("weight", _stored(m)), m.surgery), NewConstant("scale", m.value("scale"))]
    if m.has("zero"):
        inputs.append(NewConstant("zero", m.value("zero")))
    return NewNode("DequantizeLinear", tuple(inputs), dict(m.root.attrs), role="dequantise")


RULE = Rule(
    name="dequantize-weights",
    pattern=op("DequantizeLinear", Var("x"), Const("scale"), optional(Const("zero")), name="dequantise"),
    preconditions=(
        weights_are_bytes_of_the_file,
        tensorrt_does_not_take_them,
        moved_weights_have_one_scale,
        scales_fit_the_weights,
        the_result_is_float32,
    ),
    replacement=in_another_type,
    because="only signed weights without a zero point, straight from the file, are dequantised by TensorRT",
    reference=as_the_file_has_it,
    restates=True,
    subject=lambda m: m.surgery.constant(_weights(m).source),
    since_opset=10,
)
