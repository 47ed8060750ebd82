"""Sequences, which are lists here, and optionals, which are their value or None."""

from __future__ import annotations

from typing import Any

import numpy as np

from trtnorm_cli.evaluate.float64.kernels.call import Call, Kernel, one


def split_to_sequence(call: Call) -> list[np.ndarray]:
    """Without ``split`` every part has length one, and loses the axis unless ``keepdims``."""
    x, axis, sizes = call.x, call["axis"], call.input(1)
    length = x.shape[axis]
    if sizes is None:
        parts = np.split(x, range(1, length), axis=axis) if length else []
        return parts if call["keepdims"] else [np.squeeze(part, axis=axis) for part in parts]
    if sizes.ndim == 0:
        return np.split(x, range(int(sizes), length, int(sizes)), axis=axis)
    return np.split(x, np.cumsum(sizes)[:-1], axis=axis)


def concat_from_sequence(call: Call) -> np.ndarray:
    join = np.stack if call["new_axis"] else np.concatenate
    return join(call.inputs[0], axis=call["axis"])


def insert(call: Call) -> list[Any]:
    sequence, value = list(call.inputs[0]), call.inputs[1]
    position = len(sequence) if call.input(2) is None else _position(call.inputs[2])
    sequence.insert(position, value)
    return sequence


def erase(call: Call) -> list[Any]:
    sequence = list(call.inputs[0])
    del sequence[-1 if call.input(1) is None else _position(call.inputs[1])]
    return sequence


def _position(value: np.ndarray) -> int:
    return int(np.ravel(value)[0])


KERNELS: dict[str, Kernel] = {
    "ConcatFromSequence": one(concat_from_sequence),
    "Optional": one(lambda call: call.input(0)),
    "OptionalGetElement": one(lambda call: call.inputs[0]),
    "OptionalHasElement": one(lambda call: np.array(call.input(0) is not None)),
    "SequenceAt": one(lambda call: call.inputs[0][_position(call.inputs[1])]),
    "SequenceConstruct": one(lambda call: list(call.inputs)),
    "SequenceEmpty": one(lambda call: []),
    "SequenceErase": one(erase),
    "SequenceInsert": one(insert),
    "SequenceLength": one(lambda call: np.array(len(call.inputs[0]), np.int64)),
    "SplitToSequence": one(split_to_sequence),
}
