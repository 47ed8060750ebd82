"""Compute ONNX Runtime's dynamically quantised LSTM with floats, where the user asks for it.

    W = (s_w · (q_w − z_w))ᵀ      R = (s_r · (q_r − z_r))ᵀ      y = LSTM(x, W, R)

The operator has both weights transposed, and rounds x and the hidden state to 8 bits in front of each product. Nothing is
rounded any more, so that results change by what that did. It is applied only when the build profile says
`dynamic_quantization: float`: TensorRT does not know the operator.
Source: Hochreiter & Schmidhuber 1997; DynamicQuantizeLSTM in the contributed operators of ONNX Runtime, 2020.
"""

from __future__ import annotations

import numpy as np

from trtnorm_cli.rewrite.parts import dynamic_quantization as dynamic
from trtnorm_cli.rewrite.pattern import Const, Var, describe, op, optional
from trtnorm_cli.rewrite.rule import Match, NewConstant, NewNode, NewOutput, NewTensors, Rule

_WEIGHTS = {"weight": ("weight_scale", "weight_zero"), "recurrence": ("recurrence_scale", "recurrence_zero")}
_STATES = ("bias", "lengths", "hidden", "cell", "peepholes")
_TRANSPOSED = (0, 2, 1)
_SCALE_BY_ROW_SINCE = 13


def weights_are_of_one_layer(m: Match) -> str | None:
    """both weights are [directions, inputs, 4 · hidden], with a scale and a zero point for each direction or each column."""
    for name, (scale, zero) in _WEIGHTS.items():
        shape = m.value(name).shape
        if len(shape) != len(_TRANSPOSED):
            return f"{m.given(name).name}, a weight of {describe(m.root)}, has shape {list(shape)}"
        for parameter in (scale, zero):
            if m.value(parameter).shape not in ((), (1,), shape[:1], (shape[0], shape[2])):
                return f"{m.given(parameter).name} has shape {list(m.value(parameter).shape)}, for weights {list(shape)}"
    return None


def _spread(parameter: np.ndarray) -> np.ndarray:
    """A value for each direction, or for each of its columns, so that it broadcasts over [directions, inputs, columns]."""
    return parameter.reshape(*parameter.shape, *[1] * (2 - parameter.ndim)).reshape(
        -1, 1, parameter.shape[-1] if parameter.ndim > 1 else 1
    )


def _lstm(m: Match, weights: tuple[NewNode | NewConstant, ...], name: str = "") -> NewTensors:
    states = tuple(m.tensor(state) for state in _STATES)
    lstm = NewNode("LSTM", (m.given("x"), *weights, *states), dict(m.root.attrs), name=name, role="float", outputs=3)
    return NewTensors(tuple((m.root.outputs[number], NewOutput(lstm, number)) for number in m.used_outputs))


def with_floats(m: Match) -> NewTensors:
    weights = (_dequantised(m, name, *_WEIGHTS[name]) for name in _WEIGHTS)
    return _lstm(m, tuple(weights), m.root.name)


def _dequantised(m: Match, name: str, scale: str, zero: str) -> NewNode | NewConstant:
    """A weight as LSTM wants it: [directions, 4 · hidden, inputs], of which every row has a scale.

    It stays integer where ONNX can say so, because what an LSTM computes over many steps may depend on the last digit.
    """
    stored = m.value(name)
    if m.opset < _SCALE_BY_ROW_SINCE:
        value = dynamic.dequantised(stored, _spread(m.value(scale)), _spread(m.value(zero)))
        return NewConstant(name, np.ascontiguousarray(value.transpose(_TRANSPOSED)))
    directions, inputs, columns = stored.shape
    rows = np.ascontiguousarray(stored.transpose(_TRANSPOSED)).reshape(directions * columns, inputs)
    scales, zeros = (np.broadcast_to(_spread(m.value(of)), (directions, 1, columns)).reshape(-1) for of in (scale, zero))
    constants = [NewConstant(name, rows), NewConstant(scale, scales.copy())]
    if zeros.any():
        constants.append(NewConstant(zero, zeros.copy()))
    made = NewNode("DequantizeLinear", tuple(constants), {"axis": 0}, role=f"dequantise_{name}")
    shape = NewConstant(f"{name}_shape", np.array([directions, columns, inputs], np.int64))
    return NewNode("Reshape", (made, shape), role=f"{name}_of_directions")


def without_rounding(m: Match) -> NewTensors:
    """The operator's weights, dequantised by operators, in an LSTM of floats."""
    weights = []
    for name, (scale, zero) in _WEIGHTS.items():
        centred = dynamic.centred_weights(m.value(name), _spread(m.value(zero)))
        scaled = NewNode("Mul", (centred, NewConstant(scale, _spread(m.value(scale)))), role="scale_weight")
        weights.append(NewNode("Transpose", (scaled,), {"perm": list(_TRANSPOSED)}, role="transpose_weight"))
    return _lstm(m, tuple(weights))


RULE = Rule(
    name="dynamic-lstm-to-float",
    pattern=op(
        "DynamicQuantizeLSTM",
        Var("x"),
        Const("weight"),
        Const("recurrence"),
        *(optional(Var(state)) for state in _STATES),
        Const("weight_scale"),
        Const("weight_zero"),
        Const("recurrence_scale"),
        Const("recurrence_zero"),
        name="lstm",
        domain="com.microsoft",
    ),
    preconditions=(dynamic.the_profile_asks_for_floats, weights_are_of_one_layer),
    replacement=with_floats,
    because=dynamic.BECAUSE,
    warning=dynamic.warning,
    reference=without_rounding,
    changes_meaning=lambda m: True,
    replaces_further_outputs=True,
)
