"""A budget raises what is harmful and no more, as whole units, in few runs, or says that it cannot be held."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import onnx
import pytest

from tests.models import parse, random
from trtnorm_cli.errors import ProfileError
from trtnorm_cli.evaluate.ort_runner import OrtRunner
from trtnorm_cli.onnx_model.shapes import declared_types
from trtnorm_cli.precision.budget import Settled, settle
from trtnorm_cli.precision.emulate import Emulator
from trtnorm_cli.precision.low_types import BF16, FP16, LowType
from trtnorm_cli.precision.plan import InputsAndOutputs
from trtnorm_cli.precision.units import Unit, units


@pytest.fixture(scope="module")
def runner() -> Iterator[OrtRunner]:
    with OrtRunner() as one:
        yield one


def chain(length: int, culprit: int) -> onnx.ModelProto:
    """A chain of layers, one of which takes a small difference of large numbers."""
    lines, weights = [], {"large": np.array(1000, np.float32)}
    tensor = "x"
    for index in range(length):
        weights[f"w{index}"] = (random(16, 16, seed=index) / 4).astype(np.float32)
        lines.append(f"m{index} = MatMul ({tensor}, w{index})  t{index} = Tanh (m{index})")
        tensor = f"t{index}"
        if index == culprit:
            lines.append(f"up = Add ({tensor}, large)  down = Sub (up, large)")
            tensor = "down"
    return parse(f"g (float[N,16] x) => (float[N,16] y) {{ {' '.join(lines)} y = Neg ({tensor}) }}", weights)


def settled(
    runner: OrtRunner,
    model: onnx.ModelProto,
    *feeds: dict[str, np.ndarray],
    max_error: float = 1e-2,
    low: LowType = FP16,
    kept: frozenset[str] = frozenset(),
    more: list[Unit] | None = None,
    io: InputsAndOutputs = "keep",
) -> Settled:
    inferred = onnx.shape_inference.infer_shapes(model, data_prop=True)
    types = declared_types(inferred)
    with Emulator(inferred, None, types, low, feeds, runner, io) as emulator:
        return settle(emulator, inferred, [*units(inferred, types), *(more or [])], max_error, kept)


def test_what_holds_is_left_alone(runner: OrtRunner) -> None:
    found = settled(runner, chain(4, -1), {"x": random(4, 16)})

    assert found.kept == {}
    assert found.errors.largest < 5e-3
    assert found.evaluations == 1


def test_the_harmful_nodes_are_found_among_many(runner: OrtRunner) -> None:
    feeds = [{"x": random(size, 16)} for size in (1, 4, 16)]

    found = settled(runner, chain(60, 20), *feeds)

    assert {"up", "down"} <= set(found.kept) <= {"t20", "up", "down", "m21"}
    assert found.before.largest > 5e-2
    assert found.errors.largest <= 1e-2
    assert found.evaluations < 70
    assert {one.cause for one in found.kept.values()} == {"budget"}
    assert found.kept["up"].error is not None
    assert found.kept["up"].error > 1e-2
    assert "0.01 is allowed in all" in found.kept["up"].reason


def test_it_is_the_same_each_time(runner: OrtRunner) -> None:
    one, other = (settled(runner, chain(20, 7), {"x": random(4, 16)}) for _ in range(2))

    assert one.kept == other.kept


def test_a_unit_is_raised_as_a_whole(runner: OrtRunner) -> None:
    unit = Unit("LayerNorm", frozenset({"t6", "m7", "t7", "up", "down"}), "m6", "down", native=False)

    found = settled(runner, chain(20, 7), {"x": random(4, 16)}, more=[unit])

    assert unit.keys <= set(found.kept)


def test_what_is_float32_already_is_not_raised_again(runner: OrtRunner) -> None:
    found = settled(runner, chain(20, 7), {"x": random(4, 16)}, kept=frozenset({"up", "down"}))

    assert found.kept == {}


def test_noise_of_all_nodes_is_lowered_by_as_many_as_it_takes(runner: OrtRunner) -> None:
    model = chain(40, -1)
    free = settled(runner, model, {"x": random(8, 16)}, low=BF16, max_error=1.0).errors.largest

    found = settled(runner, model, {"x": random(8, 16)}, low=BF16, max_error=free * 0.8)

    assert 0 < len(found.kept) < 60
    assert found.errors.largest <= free * 0.8


def test_overflow_is_the_most_harmful(runner: OrtRunner) -> None:
    model = parse("""
        g (float[N,8] x) => (float[N,8] y) {
            a = Mul (x, x)  b = Mul (a, a)  c = Sqrt (b)  d = Sqrt (c)  e = Neg (d)  y = Neg (e)
        }""")  # fmt: skip

    found = settled(runner, model, {"x": random(4, 8) * 30 + 1})

    assert {"b", "c"} <= set(found.kept) <= {"a", "b", "c"}
    assert found.kept["b"].error is None
    assert "infinite or NaN" in found.kept["b"].reason


def test_a_budget_that_takes_every_node_is_refused_with_what_was_reached(runner: OrtRunner) -> None:
    with pytest.raises(ProfileError, match="1e-08 cannot be held in fp16") as caught:
        settled(runner, chain(4, -1), {"x": random(4, 16)}, max_error=1e-8)

    assert "output y" in (caught.value.where or "")
    assert "precision: fp32" in (caught.value.hint or "")


def test_a_quantised_model_may_be_float32_between_its_integers(runner: OrtRunner) -> None:
    model = parse("""
        g (float[N,16] x) => (float[N,16] y) {
            t = Tanh (x)  q = QuantizeLinear (t, s, z)  d = DequantizeLinear (q, s, z)  y = Sigmoid (d) }
        """, {"s": np.float32(0.01), "z": np.int8(0)})  # fmt: skip

    found = settled(runner, model, {"x": random(4, 16)}, max_error=1e-8)

    assert found.kept.keys() >= {"t", "y"}
    assert found.errors.largest == 0


def test_a_budget_that_inputs_and_outputs_break_alone_is_refused(runner: OrtRunner) -> None:
    with pytest.raises(ProfileError, match="rounding the inputs and outputs to fp16 alone costs") as caught:
        settled(runner, chain(4, -1), {"x": random(4, 16)}, max_error=1e-5, io="low")

    assert "io: keep" in (caught.value.hint or "")


def test_choices_are_reported_and_not_part_of_the_budget(runner: OrtRunner) -> None:
    model = parse("""
        g (float[N,8] x) => (float[N,8] y, int64[N,1] best) { y = Tanh (x)  best = ArgMax <axis = 1> (y) }
        """)  # fmt: skip
    x = np.full((4, 8), 0.5, np.float32)
    x[:, 3] = 0.50001

    found = settled(runner, model, {"x": x})

    assert found.kept == {}
    assert found.errors.differing == {"best": 1.0}
