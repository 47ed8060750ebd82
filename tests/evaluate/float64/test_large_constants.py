"""Constants that are large stay in float32, and those that the program has saved for itself where they lie."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto

from tests.models import parse, random, saved
from trtnorm_cli.evaluate.float64 import Float64Model, Known, Perturbation, Place, evaluate_float64, float64_model, known
from trtnorm_cli.evaluate.float64.kernels import KERNELS
from trtnorm_cli.evaluate.float64.perturbation import Moves
from trtnorm_cli.evaluate.float64.raising import Stored
from trtnorm_cli.onnx_model.save import save_model
from trtnorm_cli.onnx_model.stored import external_tensors

SIDE = 16
WEIGHTS = {"w": random(SIDE, SIDE, seed=1), "v": random(SIDE, SIDE, seed=2)}
X = {"x": random(2, 5, SIDE)}


@pytest.fixture(autouse=True)
def small_ones_are_large(monkeypatch):
    for module in (known, float64_model):
        monkeypatch.setattr(module, "STORED_FROM", SIDE * SIDE)


def model(body: str = "p = MatMul(x, w) r = Relu(p) y = MatMul(r, v)", **weights: np.ndarray) -> onnx.ModelProto:
    return parse(f"g (float[2, N, {SIDE}] x) => (float[2, N, {SIDE}] y) {{ {body} }}", {**WEIGHTS, **weights})


def on_disk(proto: onnx.ModelProto, path: Path) -> Path:
    """``proto`` with its weights in a file beside it."""
    onnx.save(proto, path, save_as_external_data=True, location=f"{path.name}.data", size_threshold=256)
    return path


def places(path: Path) -> list[Place]:
    return [Place.of(tensor, path.parent) for tensor in external_tensors(onnx.load(path, load_external_data=False))]


def outputs(path: Path, known: Known | None, feeds=X, **options) -> np.ndarray:
    return evaluate_float64(path, feeds, known=known, **options).outputs["y"]


@pytest.fixture
def products(monkeypatch) -> list[np.dtype]:
    """The types of the weights of all products."""
    kinds, real = [], KERNELS["MatMul"]
    monkeypatch.setitem(KERNELS, "MatMul", lambda call: (kinds.append(call.inputs[1].dtype), real(call))[1])
    return kinds


@pytest.mark.parametrize("kind", [TensorProto.FLOAT, TensorProto.FLOAT16])
def test_a_product_gets_a_large_constant_in_float32(tmp_path, products, kind):
    proto = model() if kind == TensorProto.FLOAT else model(**{n: w.astype(np.float16) for n, w in WEIGHTS.items()})
    path = on_disk(proto, tmp_path / "model.onnx")
    np.testing.assert_allclose(outputs(path, Known()), outputs(path, None), rtol=1e-12)
    assert products == [np.float32] * 2 + [np.float64] * 2


@pytest.mark.parametrize(
    "body",
    [
        "u = Unsqueeze(w, zero) p = MatMul(x, u) r = Relu(p) y = MatMul(r, v)",
        "t = Transpose<perm = [1, 0]>(w) u = Transpose<perm = [1, 0]>(t) p = MatMul(x, u) r = Relu(p) y = MatMul(r, v)",
        "u = Reshape(w, s) p = MatMul(x, u) r = Relu(p) y = MatMul(r, v)",
    ],
)
def test_another_way_to_write_the_same_is_not_computed_again(tmp_path, products, body):
    one = on_disk(model(), tmp_path / "one.onnx")
    sizes = {"zero": np.array([0]), "s": np.array([1, SIDE, SIDE])}
    other = on_disk(model(body, **sizes), tmp_path / "other.onnx")
    shared = Known()
    first = outputs(one, shared)
    np.testing.assert_array_equal(outputs(other, shared), first)
    assert len(products) == 2


@pytest.mark.parametrize("body", ["y = Add(x, w)", "g = Neg(w) y = MatMul(x, g)", "y = Where(b, w, x)"])
def test_other_operators_get_it_raised_once(tmp_path, body):
    path = on_disk(model(body, b=np.array([True, False] * 8)), tmp_path / "model.onnx")
    shared, feeds = Known(), {"x": random(2, SIDE, SIDE)}
    np.testing.assert_array_equal(outputs(path, shared, feeds), outputs(path, None, feeds))
    stored = Stored(shared.constant(np.array(WEIGHTS["w"])))
    assert shared.raised(stored) is not stored.array
    assert np.shares_memory(shared.raised(stored), shared.raised(Stored(stored.array.reshape(-1))))


@pytest.mark.parametrize("most_bytes", [0, 1 << 20])
def test_the_type_of_a_constant_does_not_count(most_bytes):
    weight, shared = WEIGHTS["w"], Known(most_bytes)
    stored = Stored(shared.constant(weight))
    raised = shared.constant(weight.astype(np.float64))
    finer = shared.constant(weight.astype(np.float64) * (1 + 1e-12))
    assert shared.identity(raised) == shared.identity(stored) == shared.identity(raised.reshape(-1))
    assert shared.identity(finer) != shared.identity(stored)
    assert Known(most_bytes).identity(weight.astype(np.float64)) != shared.identity(finer)


@pytest.mark.parametrize("moves", [Moves.CONSTANTS, Moves.ARITHMETIC, Moves.FUNCTIONS])
def test_noise_is_the_same_in_either_type(tmp_path, moves):
    path = on_disk(model(), tmp_path / "model.onnx")
    perturbed = [outputs(path, one, perturbation=Perturbation(1e-7, 3, moves)) for one in (Known(), None)]
    np.testing.assert_allclose(*perturbed, rtol=1e-12)


def test_constants_of_our_own_files_are_used_where_they_lie(tmp_path, products):
    ours = save_model(model(), tmp_path / "ours.onnx", external_from=0)[-1]
    theirs = on_disk(model(v=WEIGHTS["v"] * np.float32(2)), tmp_path / "theirs.onnx")
    shared = Known()
    shared.lend(places(ours))
    expected = outputs(theirs, None)
    products.clear()
    np.testing.assert_allclose(outputs(theirs, shared), expected, rtol=1e-12)
    assert all(isinstance(shared.read(place).base, np.memmap) for place in places(ours))
    found = [shared.read(place) for place in places(theirs)]
    assert np.shares_memory(found[0], shared.read(places(ours)[0])), "the same bytes"
    assert found[1] is None, "what only they have is not kept"
    np.testing.assert_allclose(outputs(ours, shared), outputs(ours, None), rtol=1e-12)


@pytest.mark.parametrize("side", [4, SIDE])
def test_a_file_that_takes_the_place_of_another_is_read(tmp_path, side):
    """As that of a variant of a rewriting, when another one is built."""
    shared, path = Known(), tmp_path / "fixed.onnx"
    for factor in (1, 2, 3):
        weights = {"w": WEIGHTS["w"] * np.float32(factor), "g": random(side, side, seed=factor)}
        proto = model("p = MatMul(x, w) n = ReduceSum(g) y = Add(p, n)", **weights)
        save_model(proto, path, external_from=0)
        np.testing.assert_allclose(outputs(path, shared), outputs(path, None), rtol=1e-12)
        shared.lend(places(path))


def test_two_constants_with_the_same_bytes_are_one(tmp_path):
    path = save_model(model(v=WEIGHTS["w"]), tmp_path / "ours.onnx", external_from=0)[-1]
    shared = Known()
    shared.lend(places(path))
    one, other = (shared.read(place) for place in places(path))
    assert shared.identity(Stored(one)) == shared.identity(Stored(other))


def test_a_file_that_is_cut_short_is_an_error(tmp_path):
    path = on_disk(model(), tmp_path / "model.onnx")
    prepared, shared = Float64Model(path), Known()
    shared.constant(WEIGHTS["w"])
    data = path.with_name("model.onnx.data")
    data.write_bytes(data.read_bytes()[: SIDE * SIDE * 4 + 20])
    with pytest.raises(Exception, match="became shorter while it was read"):
        evaluate_float64(prepared, X, known=shared)


def test_a_small_model_holds_its_weights_itself(tmp_path):
    path = saved(model(), tmp_path / "model.onnx")
    np.testing.assert_allclose(outputs(path, Known()), outputs(path, None), rtol=1e-12)
