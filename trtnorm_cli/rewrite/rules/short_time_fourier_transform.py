"""Write an STFT as a convolution.

    y_{f,k} = Σ_n w_n · x_{f·s+n} · exp(−2πi·kn/L)      for each frame f of L values, s values after the one before

Older releases of TensorRT have no layer for the operator. That of TensorRT for RTX 1.7 takes no complex data and no window
without a length. It computes the angles in float32: with frames of 400 values its network is 4e-5 of the largest value off,
with 2,048 values 1.5e-4. The table is computed in float64 here and rounded once.
Source: STFT-17 in the ONNX operator specification; Allen & Rabiner 1977.
"""

from __future__ import annotations

import numpy as np

from trtnorm_cli.rewrite.parts import fourier_tables
from trtnorm_cli.rewrite.parts.arithmetic import arithmetic_for, data_type
from trtnorm_cli.rewrite.parts.fourier_tables import REAL, data_are_floats, table
from trtnorm_cli.rewrite.pattern import Const, Var, describe, op, optional
from trtnorm_cli.rewrite.rule import Match, NewNode, Rule

# Batch and time. A third axis may hold one number for each real value or two for each complex one.
_RANKS = (2, 3)


def data_are_signals(m: Match) -> str | None:
    """the data have two axes, for batch and time, or a third one, which holds real or complex numbers."""
    if m.rank("x") not in _RANKS:
        return f"{describe(m.root)} has data of {m.rank('x')} axes"
    return fourier_tables.data_are_real_or_complex(m) if m.rank("x") == max(_RANKS) else None


def frames_are_known(m: Match) -> str | None:
    """the length of a frame and the step to the next one are constants above zero, and a window is as long as a frame."""
    length, step = _length(m), _number(m, "step")
    if not isinstance(length, int) or length < 1:
        return f"the length of a frame of {describe(m.root)} is not known"
    if step is None or step < 1:
        return f"{describe(m.root)} has a step of {step}"
    if m.has("window") and m.value("window").shape != (length,):
        return f"the window of {describe(m.root)} has shape {list(m.value('window').shape)}, and its frames {length} values"
    return None


def half_is_of_real_data(m: Match) -> str | None:
    """half of a spectrum is that of real data."""
    if _is_onesided(m) and _components(m) != REAL:
        return f"{describe(m.root)} is one-sided, and its data are complex"
    return None


def table_is_small(m: Match) -> str | None:
    """its table has at most 33 million numbers."""
    length = _length(m)
    assert isinstance(length, int), "frames_are_known looked"
    return fourier_tables.is_too_large(length, _components(m), length, onesided=_is_onesided(m))


def _components(m: Match) -> int:
    return fourier_tables.components(m) if m.rank("x") == max(_RANKS) else REAL


def _number(m: Match, name: str) -> int | None:
    return int(np.ravel(m.value(name))[0]) if m.has(name) else None


def _length(m: Match) -> int | str | None:
    """Of a frame, as it is stated; else that of the window, or of the whole signal."""
    if m.has("length"):
        return _number(m, "length")
    return m.value("window").size if m.has("window") else (m.shape("x") or (None, None))[1]


def _is_onesided(m: Match) -> bool:
    return bool(m.root.attrs.get("onesided", 1))


def as_convolution(m: Match) -> NewNode:
    a, length, parts = arithmetic_for(m), _length(m), _components(m)
    assert isinstance(length, int), "frames_are_known looked"
    numbers = table(length, parts, length, onesided=_is_onesided(m))  # [length, parts, bins, 2]
    if m.has("window"):
        numbers = numbers * m.value("window").astype(np.float64)[:, None, None, None]
    bins = numbers.shape[2]
    weight = a.operand(numbers.transpose(2, 3, 1, 0).reshape(2 * bins, parts, length), "table")
    x = a.operand(a.raised(m.given("x"), "to_float32"), "data")
    if m.rank("x") == max(_RANKS):
        times = NewNode("Transpose", (x,), {"perm": [0, 2, 1]}, role="times_last")
    else:
        times = NewNode("Reshape", (x, a.integers("times_shape", [0, 1, -1])), role="times_last")
    attributes = {"kernel_shape": [length], "strides": [_number(m, "step")]}
    convolved = NewNode("Conv", (times, weight), attributes, role="transformed")
    frames = NewNode("Transpose", (convolved,), {"perm": [0, 2, 1]}, role="frames")
    # A zero keeps the length of an axis, which may be known at run time only.
    pairs = NewNode("Reshape", (frames, a.integers("pairs_shape", [0, 0, bins, 2])), role="pairs")
    return a.lowered(pairs, data_type(m))


RULE = Rule(
    name="short-time-fourier-transform",
    pattern=op("STFT", Var("x"), Const("step"), optional(Const("window")), optional(Const("length")), name="transform"),
    preconditions=(data_are_floats, data_are_signals, frames_are_known, half_is_of_real_data, table_is_small),
    replacement=as_convolution,
    because="an STFT has no layer in TensorRT, or one that computes its angles in float32",
    since_opset=17,
)
