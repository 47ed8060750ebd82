"""If, Loop, Scan and SequenceMap: operators that evaluate graphs of their own."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from onnx.helper import tensor_dtype_to_np_dtype

from trtnorm_cli.evaluate.float64.kernels.call import NotImplementedHere

Attributes = Mapping[str, Any]
Body = Callable[[list[Any]], list[Any]]
"""Evaluates a body graph with these inputs, in its order."""


def if_(body: Callable[[str], Body], inputs: list[Any], attributes: Attributes) -> list[Any]:
    return body("then_branch" if bool(np.ravel(inputs[0])[0]) else "else_branch")([])


def loop(body: Callable[[str], Body], inputs: list[Any], attributes: Attributes) -> list[Any]:
    """Outputs: the carried values after the last iteration, then the scan outputs, stacked."""
    limit = None if inputs[0] is None else int(np.ravel(inputs[0])[0])
    running = inputs[1] is None or bool(np.ravel(inputs[1])[0])
    carried, scans, iteration = list(inputs[2:]), [], 0
    evaluate = body("body")
    while running and (limit is None or iteration < limit):
        outputs = evaluate([np.array(iteration, np.int64), np.array(True), *carried])
        running = bool(np.ravel(outputs[0])[0])
        carried = outputs[1 : 1 + len(carried)]
        scans.append(outputs[1 + len(carried) :])
        iteration += 1
    count = len(attributes["body"].output) - 1 - len(carried)
    return [*carried, *_stacked(scans, count, attributes["body"].output[1 + len(carried) :])]


def _stacked(scans: list[list[Any]], count: int, declared: Any) -> list[np.ndarray]:
    if scans:
        return [np.stack([scan[i] for scan in scans]) for i in range(count)]
    return [_nothing(declared[i].type.tensor_type) for i in range(count)]


def _nothing(declared: Any) -> np.ndarray:
    """The output of a loop without an iteration: zero rows of the declared type and shape."""
    dtype = tensor_dtype_to_np_dtype(declared.elem_type) if declared.elem_type else np.float64
    return np.zeros((0, *(dimension.dim_value for dimension in declared.shape.dim)), dtype)


def scan(body: Callable[[str], Body], inputs: list[Any], attributes: Attributes) -> list[Any]:
    """Since opset 9: states first, then sequences, each read and written along its axis and in its direction."""
    if len(inputs) != len(attributes["body"].input):
        raise NotImplementedHere("Scan of opset 8, which has a batch axis")
    count = attributes["num_scan_inputs"]
    states, sequences = list(inputs[: len(inputs) - count]), inputs[len(inputs) - count :]
    axes = attributes.get("scan_input_axes") or [0] * count
    backward = attributes.get("scan_input_directions") or [0] * count
    sequences = [
        np.flip(np.moveaxis(x, axis, 0), 0) if back else np.moveaxis(x, axis, 0)
        for x, axis, back in zip(sequences, axes, backward, strict=True)
    ]
    evaluate, rows = body("body"), []
    for moment in range(len(sequences[0])):
        outputs = evaluate([*states, *(x[moment] for x in sequences)])
        states = outputs[: len(states)]
        rows.append(outputs[len(states) :])
    declared = attributes["body"].output[len(states) :]
    results = _stacked(rows, len(declared), declared)
    out_axes = attributes.get("scan_output_axes") or [0] * len(results)
    out_backward = attributes.get("scan_output_directions") or [0] * len(results)
    flipped = [np.flip(y, 0) if back else y for y, back in zip(results, out_backward, strict=True)]
    return [*states, *(np.moveaxis(y, 0, axis) for y, axis in zip(flipped, out_axes, strict=True))]


def sequence_map(body: Callable[[str], Body], inputs: list[Any], attributes: Attributes) -> list[Any]:
    """The body for each element; inputs that are no sequence are the same for every one."""
    evaluate = body("body")
    rows = [evaluate([value[i] if isinstance(value, list) else value for value in inputs]) for i in range(len(inputs[0]))]
    return [[row[i] for row in rows] for i in range(len(attributes["body"].output))]


CONTROL_FLOW: dict[str, Callable[[Callable[[str], Body], list[Any], Attributes], list[Any]]] = {
    "If": if_,
    "Loop": loop,
    "Scan": scan,
    "SequenceMap": sequence_map,
}
