"""RNN, GRU and LSTM: both directions, peepholes, clipping, sequence lengths, every activation of the specification."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from trtnorm_cli.evaluate.float64.kernels.call import Call, Kernel, NotImplementedHere
from trtnorm_cli.evaluate.float64.kernels.elementwise import sigmoid, softplus
from trtnorm_cli.light_dataclass import dataclass

Activation = Callable[[np.ndarray], np.ndarray]
Step = Callable[[np.ndarray, np.ndarray, np.ndarray], "tuple[np.ndarray, np.ndarray]"]
"""(x·Wᵀ of one moment, hidden state, cell state) → (hidden state, cell state)."""

ACTIVATIONS: dict[str, Callable[[np.ndarray, float, float], np.ndarray]] = {
    "affine": lambda x, a, b: a * x + b,
    "elu": lambda x, a, b: np.where(x >= 0, x, a * np.expm1(np.minimum(x, 0))),
    "hardsigmoid": lambda x, a, b: np.clip(a * x + b, 0, 1),
    "leakyrelu": lambda x, a, b: np.where(x >= 0, x, a * x),
    "relu": lambda x, a, b: np.maximum(x, 0),
    "scaledtanh": lambda x, a, b: a * np.tanh(b * x),
    "sigmoid": lambda x, a, b: sigmoid(x),
    "softplus": lambda x, a, b: softplus(x),
    "softsign": lambda x, a, b: x / (1 + np.abs(x)),
    "tanh": lambda x, a, b: np.tanh(x),
    "thresholdedrelu": lambda x, a, b: np.where(x > a, x, 0),
}
ALPHA = {"affine": None, "elu": 1.0, "hardsigmoid": 0.2, "leakyrelu": 0.01, "scaledtanh": None, "thresholdedrelu": 1.0}
BETA = {"affine": None, "hardsigmoid": 0.5, "scaledtanh": None}
"""Defaults; None where the specification has none."""
DEFAULT_ACTIVATIONS = {"RNN": ["Tanh"], "GRU": ["Sigmoid", "Tanh"], "LSTM": ["Sigmoid", "Tanh", "Tanh"]}
GATES = {"RNN": 1, "GRU": 3, "LSTM": 4}


@dataclass(frozen=True)
class Direction:
    """The parameters of one direction; ``bias`` [2, gates·hidden] for the input and for the recurrence."""

    w: np.ndarray
    r: np.ndarray
    bias: np.ndarray
    peephole: np.ndarray | None
    hidden: np.ndarray
    cell: np.ndarray
    activations: list[Activation]
    call: Call

    def clipped(self, x: np.ndarray) -> np.ndarray:
        limit = self.call["clip"]
        return x if limit is None else np.clip(x, -limit, limit)


def recurrent(call: Call) -> tuple[Any, ...]:
    """Outputs Y [T, D, N, H], the last hidden state [D, N, H] and, for LSTM, the last cell state."""
    x = np.swapaxes(call.x, 0, 1) if call["layout"] else call.x
    names = {"forward": [False], "reverse": [True], "bidirectional": [False, True]}[call["direction"]]
    lengths = call.input(4) if call.input(4) is not None else np.full(x.shape[1], x.shape[0])
    runs = [_run(x, lengths, _direction(call, i, x), reverse) for i, reverse in enumerate(names)]
    y, hidden, cell = (np.stack(parts) for parts in zip(*runs, strict=True))
    y = np.swapaxes(y, 0, 1)
    if call["layout"]:
        y, hidden, cell = y.transpose(2, 0, 1, 3), np.swapaxes(hidden, 0, 1), np.swapaxes(cell, 0, 1)
    return (y, hidden, cell) if call.op_type == "LSTM" else (y, hidden)


def _run(x: np.ndarray, lengths: np.ndarray, direction: Direction, reverse: bool) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """A sequence that has ended keeps its state and its outputs are zero; reversed, each starts at its own end."""
    step = {"RNN": _rnn_step, "GRU": _gru_step, "LSTM": _lstm_step}[direction.call.op_type](direction)
    projected = x @ direction.w.T + direction.bias[0]
    hidden, cell = direction.hidden, direction.cell
    y = np.zeros((*x.shape[:2], hidden.shape[1]), x.dtype)
    samples = np.arange(x.shape[1])
    for t in range(x.shape[0]):
        active = t < lengths
        moment = np.where(active, lengths - 1 - t, t) if reverse else np.full(x.shape[1], t)
        new_hidden, new_cell = step(projected[moment, samples], hidden, cell)
        hidden, cell = (np.where(active[:, None], n, o) for n, o in ((new_hidden, hidden), (new_cell, cell)))
        y[moment, samples] = np.where(active[:, None], hidden, 0.0)
    return y, hidden, cell


def _rnn_step(d: Direction) -> Step:
    (f,) = d.activations

    def step(x: np.ndarray, hidden: np.ndarray, cell: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        return f(d.clipped(x + hidden @ d.r.T + d.bias[1])), cell

    return step


def _gru_step(d: Direction) -> Step:
    """Gates in the order z, r, h; Cho et al. 2014."""
    f, g = d.activations
    rz, rr, rh = np.split(d.r, 3)
    bz, br, bh = np.split(d.bias[1], 3)

    def step(x: np.ndarray, hidden: np.ndarray, cell: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        xz, xr, xh = np.split(x, 3, axis=1)
        z = f(d.clipped(xz + hidden @ rz.T + bz))
        r = f(d.clipped(xr + hidden @ rr.T + br))
        recurrence = r * (hidden @ rh.T + bh) if d.call["linear_before_reset"] else (r * hidden) @ rh.T + bh
        return (1 - z) * g(d.clipped(xh + recurrence)) + z * hidden, cell

    return step


def _lstm_step(d: Direction) -> Step:
    """Gates in the order i, o, f, c; Hochreiter & Schmidhuber 1997, peepholes Gers & Schmidhuber 2000."""
    f, g, h = d.activations
    peepholes = np.zeros((3, d.hidden.shape[1])) if d.peephole is None else np.stack(np.split(d.peephole, 3))
    pi, po, pf = peepholes

    def step(x: np.ndarray, hidden: np.ndarray, cell: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        gi, go, gf, gc = np.split(x + hidden @ d.r.T + d.bias[1], 4, axis=1)
        i = f(d.clipped(gi + pi * cell))
        forget = 1 - i if d.call["input_forget"] else f(d.clipped(gf + pf * cell))
        new_cell = forget * cell + i * g(d.clipped(gc))
        return f(d.clipped(go + po * new_cell)) * h(new_cell), new_cell

    return step


def _direction(call: Call, index: int, x: np.ndarray) -> Direction:
    w, r, bias = call.inputs[1], call.inputs[2], call.input(3)
    hidden = r.shape[2]
    lstm = call.op_type == "LSTM"
    return Direction(
        w[index],
        r[index],
        np.zeros((2, w.shape[1])) if bias is None else bias[index].reshape(2, -1),
        call.input(7)[index] if lstm and call.input(7) is not None else None,
        _initial(call, 5, index, x.shape[1], hidden),
        _initial(call, 6, index, x.shape[1], hidden) if lstm else np.zeros((x.shape[1], hidden)),
        _activations(call, index),
        call,
    )


def _initial(call: Call, number: int, index: int, batch: int, hidden: int) -> np.ndarray:
    state = call.input(number)
    if state is None:
        return np.zeros((batch, hidden))
    return state[:, index] if call["layout"] else state[index]


def _activations(call: Call, index: int) -> list[Activation]:
    """Of this direction; ``activation_alpha`` and ``_beta`` hold values only for the functions that take one."""
    default = DEFAULT_ACTIVATIONS[call.op_type]
    count = len(default)
    names = [n.lower() for n in (call["activations"] or default * (index + 1))]
    alphas, betas = list(call["activation_alpha"] or ()), list(call["activation_beta"] or ())
    functions = []
    for name in names:
        if name not in ACTIVATIONS:
            raise NotImplementedHere(f"activation {name}")
        functions.append(_bound(name, _next(alphas, ALPHA, name), _next(betas, BETA, name)))
    return functions[index * count : (index + 1) * count]


def _next(given: list[float], defaults: dict[str, float | None], name: str) -> float:
    """The next given value, if the function takes one at all."""
    if name not in defaults:
        return 0.0
    value = given.pop(0) if given else defaults[name]
    if value is None:
        raise NotImplementedHere(f"activation {name} without its parameters, which have no default")
    return value


def _bound(name: str, alpha: float, beta: float) -> Activation:
    return lambda x: ACTIVATIONS[name](x, alpha, beta)


KERNELS: dict[str, Kernel] = dict.fromkeys(GATES, recurrent)
