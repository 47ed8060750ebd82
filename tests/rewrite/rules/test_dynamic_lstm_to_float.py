"""dynamic-lstm-to-float: ONNX Runtime's dynamically quantised LSTM, with floats."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from tests.models import operators, random
from tests.numerics import relative_error
from tests.rewrite.rules.contract import assert_refuses
from tests.rewrite.rules.quantised import AS_WRITTEN, FLOATS, cost_of_rounding, model
from tests.rewrite.rules.refusals import Refusal
from trtnorm_cli.evaluate.float64 import evaluate_float64
from trtnorm_cli.rewrite.parts import dynamic_quantization as dynamic
from trtnorm_cli.rewrite.rule import NewConstant, NewNode
from trtnorm_cli.rewrite.rules import dynamic_lstm_to_float as rule

NAME = rule.RULE.name
STEPS, BATCH, INPUTS, HIDDEN = 3, 2, 6, 5


def weights(directions: int, by_column: bool = False, zero: int = 0, dtype: type = np.int8) -> dict[str, np.ndarray]:
    """Weights as the operator has them, with a scale for each direction, or for each of its columns."""
    rng, columns = np.random.default_rng([directions, zero]), 4 * HIDDEN
    shape = (directions, columns) if by_column else (directions,)
    held = {"b": random(directions, 2 * columns, seed=3) * np.float32(0.1)}
    for name, inputs in (("w", INPUTS), ("r", HIDDEN)):
        low, high = (-64, 64) if dtype == np.int8 else (60, 190)
        held[name] = rng.integers(low, high, (directions, inputs, columns)).astype(dtype)
        held[f"{name}s"] = rng.uniform(0.004, 0.008, shape).astype(np.float32)
        held[f"{name}z"] = np.full(shape, zero, dtype)
    return held


def lstm(held: dict[str, np.ndarray], outputs: str = "y", states: str = 'b, "", "", "", ""', more: str = "", opset: int = 17):
    directions = held["w"].shape[0]
    direction = "bidirectional" if directions == 2 else "forward"
    node = f'{outputs} = com.microsoft.DynamicQuantizeLSTM <direction="{direction}", hidden_size={HIDDEN}>'
    declared = ", ".join(f"float[] {name}" for name in outputs.split(", "))
    body = f"{node}(x, w, r, {states}, ws, wz, rs, rz)"
    return model(f"(float[{STEPS}, {BATCH}, {INPUTS}] x{more}) => ({declared}) {{ {body} }}", held, opset)


def by_torch(x: np.ndarray, held: dict[str, np.ndarray]) -> np.ndarray:
    """The operator without rounding; PyTorch has the gates in another order: input, forget, cell, output."""
    import torch

    directions, columns = held["w"].shape[0], 4 * HIDDEN
    module = torch.nn.LSTM(INPUTS, HIDDEN, bidirectional=directions == 2, dtype=torch.float64)

    def rows(value: np.ndarray):
        i, o, f, c = np.split(value.astype(np.float64), 4)
        return torch.from_numpy(np.concatenate([i, f, c, o]))

    def dequantised(name: str, direction: int) -> np.ndarray:
        scale, zero = held[f"{name}s"][direction].astype(np.float64), held[f"{name}z"][direction].astype(np.float64)
        return ((held[name][direction] - zero) * scale).T

    state = {}
    for direction in range(directions):
        suffix = "_l0_reverse" if direction else "_l0"
        state[f"weight_ih{suffix}"] = rows(dequantised("w", direction))
        state[f"weight_hh{suffix}"] = rows(dequantised("r", direction))
        state[f"bias_ih{suffix}"] = rows(held["b"][direction][:columns])
        state[f"bias_hh{suffix}"] = rows(held["b"][direction][columns:])
    module.load_state_dict(state)
    with torch.no_grad():
        y, _ = module(torch.from_numpy(x.astype(np.float64)))
    return y.numpy().reshape(STEPS, BATCH, directions, HIDDEN).transpose(0, 2, 1, 3)


@pytest.mark.torch
@pytest.mark.parametrize("opset", [12, 17])
@pytest.mark.parametrize(("dtype", "zero"), [(np.int8, 0), (np.int8, 5), (np.uint8, 128)])
@pytest.mark.parametrize("by_column", [False, True])
@pytest.mark.parametrize("directions", [1, 2])
def test_every_form(rewrite, directions, by_column, dtype, zero, opset):
    held = weights(directions, by_column, zero, dtype)
    before = lstm(held, opset=opset)
    result = rewrite(before, rules=(rule.RULE,), settings=FLOATS)
    assert result.rules == [NAME]
    assert "LSTM" in operators(result.model)
    assert ("DequantizeLinear" in operators(result.model)) == (opset >= 13)
    x = random(STEPS, BATCH, INPUTS)
    assert relative_error(by_torch(x, held), evaluate_float64(result.model, {"x": x}).outputs["y"]) < 1e-6
    if zero != 5 or not by_column:  # which ONNX Runtime does not run
        assert 0 < cost_of_rounding(before, result.model, {"x": x}) < 0.02


def test_all_outputs_and_states_of_run_time(rewrite):
    states = ", ".join(f"float[1, {BATCH}, {HIDDEN}] {name}" for name in ("h", "c"))
    before = lstm(weights(1), "y, k, e", 'b, "", h, c, ""', f", {states}")
    result = rewrite(before, rules=(rule.RULE,), settings=FLOATS)
    assert result.rules == [NAME]
    feeds = {"x": random(STEPS, BATCH, INPUTS), "h": random(1, BATCH, HIDDEN), "c": random(1, BATCH, HIDDEN, seed=1)}
    assert 0 < cost_of_rounding(before, result.model, feeds) < 0.02


@pytest.mark.parametrize("role", ["weight", "recurrence"])
def test_a_wrong_dequantisation_is_caught(rewrite, role):
    """One scale of one gate is off by a thousandth."""

    def damaged(value: NewNode | NewConstant) -> NewNode | NewConstant:
        if isinstance(value, NewConstant) and value.role == f"{role}_scale":
            return NewConstant(
                value.role, value.value * np.where(np.arange(value.value.size) == 7, 1.001, 1).astype(np.float32)
            )
        return replace(value, inputs=tuple(map(damaged, value.inputs))) if isinstance(value, NewNode) else value

    def wrong(m):
        made = rule.with_floats(m)
        node = made.tensors[0][1].node
        bad = replace(node, inputs=tuple(v if v is None else damaged(v) for v in node.inputs))
        return replace(made, tensors=tuple((tensor, replace(source, node=bad)) for tensor, source in made.tensors))

    result = rewrite(lstm(weights(2)), rules=(replace(rule.RULE, replacement=wrong),), settings=FLOATS)
    assert result.outcome.changes == []
    assert "the outputs differ" in result.outcome.failed[0].check.reason


REFUSALS = [
    Refusal(dynamic.the_profile_asks_for_floats, lstm(weights(1)), AS_WRITTEN),
    Refusal(rule.weights_are_of_one_layer, lstm({**weights(1), "ws": np.ones(3, np.float32)}), "ws has shape [3]", FLOATS),
    Refusal(rule.weights_are_of_one_layer, lstm({**weights(1), "r": np.ones((5, 20), np.int8)}), "r, a weight of", FLOATS),
]


@pytest.mark.parametrize("case", REFUSALS, ids=lambda case: case.name)
def test_refuses(rewrite, case):
    assert_refuses(rewrite, case, rule.RULE)


def test_a_second_pass_changes_nothing(rewrite):
    twice = rewrite(rewrite(lstm(weights(2)), settings=FLOATS).model, settings=FLOATS)
    assert twice.outcome.changes == []
