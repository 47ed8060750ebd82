"""Quantised models: the side of a tie on which a value falls is no defect, and a wrong scale, zero point or axis is one."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import ml_dtypes
import numpy as np
import onnx
import pytest
from onnx import numpy_helper

from tests.compare.test_verdict import compared
from tests.models import parse
from trtnorm_cli.compare.result import FAILED, PASSED
from trtnorm_cli.evaluate.float64 import Perturbation, Ties, evaluate_float64, nearness
from trtnorm_cli.evaluate.float64.perturbation import Moves

LAYERS, WIDTH = 6, 8
ULP = 2.0**-23


def network(seed: int, factors: bool = False) -> onnx.ModelProto:
    """Convolutions of quantised data, each before a multiplication of its channels, which ``factors`` folds into the scales."""
    rng = np.random.default_rng(seed)
    weights: dict[str, np.ndarray] = {"s0": np.float32(0.1)}
    body = "a0 = Identity(x) "
    for i in range(LAYERS):
        factor = rng.uniform(0.5, 2, (WIDTH, 1, 1)).astype(np.float32)
        scale = rng.uniform(0.002, 0.004, WIDTH).astype(np.float32)
        weights |= {
            f"q{i}": rng.integers(-127, 128, (WIDTH, WIDTH, 3, 3)).astype(np.int8),
            f"w{i}": (scale.astype(np.float64) * factor.reshape(-1)).astype(np.float32) if factors else scale,
            f"f{i}": factor,
            f"s{i + 1}": np.float32(0.11 + 0.01 * i),
            f"z{i}": np.zeros((), np.int8),
            f"o{i}": np.zeros((), np.int8),
        }
        body += (
            f"d{i} = QuantizeLinear(a{i}, s{i}, z{i}) e{i} = DequantizeLinear(d{i}, s{i}, o{i}) "
            f"k{i} = DequantizeLinear<axis=0>(q{i}, w{i}) c{i} = Conv<pads=[1, 1, 1, 1]>(e{i}, k{i}) "
            + (f"m{i} = Identity(c{i}) " if factors else f"m{i} = Mul(c{i}, f{i}) ")
            + f"a{i + 1} = Relu(m{i}) "
        )
    body += f"y = Sigmoid(a{LAYERS})"
    return parse(f"g (float[1, {WIDTH}, 12, 12] x) => (float[] y) {{ {body} }}", weights, opset=17)


def changed(model: onnx.ModelProto, name: str, change: Callable[[np.ndarray], np.ndarray]) -> onnx.ModelProto:
    (tensor,) = [tensor for tensor in model.graph.initializer if tensor.name == name]
    tensor.CopyFrom(numpy_helper.from_array(change(numpy_helper.to_array(tensor).copy()), name))
    return model


def feeds(seed: int) -> dict[str, np.ndarray]:
    return {"x": np.random.default_rng(seed).normal(size=(1, WIDTH, 12, 12)).astype(np.float32)}


# On this seed's data the two spellings fall to different sides of a tie.
UNLUCKY = 13


def in_float64(seed: int, follows: bool) -> float:
    """The largest difference between the two spellings."""
    reference, candidate = network(seed), network(seed, factors=True)
    ties = Ties(nearness(ULP))
    wanted = evaluate_float64(reference, feeds(seed), ties=ties).outputs["y"]
    got = evaluate_float64(candidate, feeds(seed), watch=ties.follow if follows else None).outputs["y"]
    return float(np.max(np.abs(got - wanted)))


def test_one_value_next_to_a_tie_moves_the_outputs_by_a_step_unless_it_is_decided_alike():
    assert in_float64(UNLUCKY, follows=False) > 1e-3
    assert in_float64(UNLUCKY, follows=True) < 1e-7


@pytest.mark.parametrize("seed", [*range(3), UNLUCKY])
def test_scales_that_took_a_factor_are_no_defect(tmp_path: Path, seed: int):
    found = compared(tmp_path, network(seed), network(seed, factors=True), feeds(seed), shares_tensors=True)
    assert found.state == PASSED, found.candidates[0]
    (verdict,) = found.candidates[0].verdicts
    assert verdict.exact is not None
    assert verdict.exact < 1e-6
    assert verdict.passed is True


def with_another_axis(model: onnx.ModelProto) -> onnx.ModelProto:
    (node,) = [node for node in model.graph.node if list(node.output) == ["k2"]]
    node.attribute[0].i = 1
    return model


def scaled_channel(by: float) -> Callable[[np.ndarray], np.ndarray]:
    return lambda scale: scale * np.where(np.arange(WIDTH) == 3, by, 1).astype(np.float32)


DEFECTS: dict[str, Callable[[onnx.ModelProto], onnx.ModelProto]] = {
    "the scale of one channel is 1 % off": lambda model: changed(model, "w2", scaled_channel(1.01)),
    "the scale of one channel is 0.01 % off": lambda model: changed(model, "w2", scaled_channel(1.0001)),
    "the scale of the data is 1 % off": lambda model: changed(model, "s3", lambda scale: scale * np.float32(1.01)),
    "a zero point is 1": lambda model: changed(model, "o3", lambda zero: zero + np.int8(1)),
    "scales lie along another axis": with_another_axis,
    "one weight is one step off": lambda model: changed(model, "q4", one_step_off),
}


def one_step_off(weight: np.ndarray) -> np.ndarray:
    weight[3, 2, 1, 1] -= 1 if weight[3, 2, 1, 1] > 0 else -1
    return weight


@pytest.mark.parametrize("seed", [0, 1, UNLUCKY])
@pytest.mark.parametrize("defect", DEFECTS)
def test_a_defect_is_found(tmp_path: Path, defect: str, seed: int):
    candidate = DEFECTS[defect](network(seed, factors=True))
    found = compared(tmp_path, network(seed), candidate, feeds(seed), shares_tensors=True)
    assert found.state == FAILED, found.candidates[0]


def test_noise_decides_ties_otherwise():
    """What rounding may do to a quantised model in its own types: a step, at every value that is near a tie."""
    model = parse("g (float[3] x) => (float[3] y) { y = Round(x) }")
    fed = {"x": np.array([0.5 + 1e-7, 2.3, 7.5 - 5e-6], np.float32)}
    found = [
        evaluate_float64(model, fed, perturbation=Perturbation(ULP / 2, s, Moves.ARITHMETIC)).outputs["y"] for s in (0, 1, 2)
    ]
    assert found[0].tolist() == [0, 2, 8]
    assert {tuple(values) for values in found} <= {(a, 2, b) for a in (0.0, 1.0) for b in (7.0, 8.0)}


@pytest.mark.parametrize("kind", ["int8", "uint8", "int4", "float8_e4m3fn"])
def test_only_values_next_to_a_tie_follow(kind: str):
    zero = np.zeros((), getattr(ml_dtypes, kind, None) or kind)
    model = parse(
        "g (float[4] x) => (float[4] y) { q = QuantizeLinear(x, s, z) y = DequantizeLinear(q, s, z) }",
        {"s": np.float32(0.5), "z": zero},
        opset=21,
        ir=10,
    )
    ties = Ties(nearness(ULP))
    near = np.array([1.25, 0.75, 2.4, 1e9], np.float32) + np.array([1e-7, -1e-7, 0, 0], np.float32)
    wanted = evaluate_float64(model, {"x": near}, ties=ties).outputs["y"]
    moved = evaluate_float64(model, {"x": near * np.array([0.9999999, 1.0000002, 1.3, 1])}, watch=ties.follow).outputs["y"]
    assert moved[:2].tolist() == wanted[:2].tolist()
    assert moved[2] != wanted[2]
    assert moved[3] == wanted[3]


def test_without_float64_a_step_is_no_defect_and_a_gross_one_is(tmp_path: Path):
    """Where float64 takes too long, few of the runs that tell the noise fall on the other side of a tie by themselves."""
    fed = [feeds(UNLUCKY)]
    found = compared(tmp_path, network(UNLUCKY), network(UNLUCKY, factors=True), *fed, budget_s=1e-9)
    assert found.candidates[0].verdicts[0].exact is None
    assert found.state != FAILED, found.candidates[0]
    other = parse(
        f"g (float[1, {WIDTH}, 12, 12] x) => (float[] y) {{ n = Neg(x) q = QuantizeLinear(n, s, z)"
        " d = DequantizeLinear(q, s, z) m = Mul(d, s) y = Sigmoid(m) }",
        {"s": np.float32(0.1), "z": np.int8(0)},
    )
    assert compared(tmp_path, other, without_the_sign(other), *fed, budget_s=1e-9).state == FAILED


def without_the_sign(model: onnx.ModelProto) -> onnx.ModelProto:
    other = onnx.ModelProto()
    other.CopyFrom(model)
    other.graph.node[0].op_type = "Identity"
    return other


def test_steps_under_other_names_are_no_defect(tmp_path: Path):
    """Rounding spelled out, with its scale moved away: nobody can tell on which side of its ties the candidate falls."""
    reference, candidate = network(UNLUCKY), network(UNLUCKY, factors=True)
    for index, node in enumerate(candidate.graph.node):
        node.input[:] = [f"{name}.other" if name[0] in "demca" and name != "x" else name for name in node.input]
        node.output[:] = [f"{name}.other" if name[0] in "demca" else name for name in node.output]
        node.name = f"node{index}"
    found = compared(tmp_path, reference, candidate, feeds(UNLUCKY), shares_tensors=True)
    assert found.state != FAILED, found.candidates[0]
