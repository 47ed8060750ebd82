"""Every family of messages is provoked from the real parser and builder, where that is possible."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import onnx
import pytest

from tests.build.builds import Profiles, built
from tests.models import parse, random
from trtnorm_cli.build.catalogue import CATALOGUE, is_missing_driver_noise
from trtnorm_cli.build.explain import explain, refusal

BN = "[bn0] y = BatchNormalization(x, gamma, beta, mu, var)"
IN = "[in0] y = InstanceNormalization(x, s, b)"
HALF, HALVES = "float16", {"s": random(4), "b": random(4)}


@dataclass(frozen=True)
class Case:
    """A model that TensorRT refuses, part of the meaning that must be shown, and the node that must be named."""

    model: onnx.ModelProto | bytes
    meaning: str
    node: str = ""
    profiles: Profiles = ()


def four(*shape: int) -> dict[str, np.ndarray]:
    return {name: np.ones(shape, np.float32) for name in ("gamma", "beta", "mu", "var")}


def model(graph: str, weights: dict[str, np.ndarray] | None = None, opset: int = 17) -> onnx.ModelProto:
    return parse(f"g {graph}", weights, opset=opset)


def edited(made: onnx.ModelProto, edit: Callable[[onnx.ModelProto], None]) -> onnx.ModelProto:
    edit(made)
    return made


def with_missing_file(made: onnx.ModelProto) -> None:
    tensor = made.graph.initializer[0]
    tensor.ClearField("raw_data")
    tensor.data_location = onnx.TensorProto.EXTERNAL
    tensor.external_data.add(key="location", value="nope.bin")


def add(dtype: str = "float") -> str:
    return f"({dtype}[2, 4] x) => ({dtype}[] y) {{ y = Add(x, w) }}"


TWO = "(float[{a}, 4] x, float[{b}, 4] z) => (float[] y) {{ {rest} }}"
POINT = ((2, 4), (2, 4), (2, 4))
CASES = {
    "training mode": Case(
        model("(float[2, 4, 7, 7] x) => (float[] y) { [bn0] y, m, v = BatchNormalization <training_mode=1>"
              "(x, gamma, beta, mu, var) }", four(4)),
        "the BatchNormalization is in training mode", "node bn0 (BatchNormalization)"),
    "further outputs": Case(
        model("(float[2, 4] x) => (float[] y, float[] m, float[] d) { [ln0] y, m, d = LayerNormalization(x, s, b) }", HALVES),
        "the node has more than one output", "node ln0 (LayerNormalization)"),
    "one parameter of another length": Case(
        model(f"(float[2, 64, 7, 7] x) => (float[] y) {{ {BN} }}", {**four(64), "mu": random(16)}),
        "scale, bias, mean and variance of the BatchNormalization differ in length", "node bn0 (BatchNormalization)"),
    "all parameters of another length": Case(
        model(f"(float[2, 64, 7, 7] x) => (float[] y) {{ {BN} }}", four(16)),
        "have another length than its input has channels", "node bn0 (BatchNormalization)"),
    "the same with dynamic channels": Case(
        model(f"(float[2, C, 7, 7] x) => (float[] y) {{ {BN} }}", four(16)),
        "have another length than its input has channels", "node bn0 (BatchNormalization)",
        ({"x": ((2, 64, 7, 7),) * 3},)),
    "parameters that are no vectors": Case(
        model(f"(float[2, 4, 7, 7] x) => (float[] y) {{ {BN} }}", four(1, 4)),
        "the parameters of the BatchNormalization are not vectors", "node bn0 (BatchNormalization)"),
    "an InstanceNormalization with too few parameters": Case(
        model(f"(float[2, 64, 7, 7] x) => (float[] y) {{ {IN} }}", HALVES),
        "scale and bias of the normalization have another length", "node in0 (InstanceNormalization)"),
    "a single element": Case(
        model(f"(float[2, 4, 1, 1] x) => (float[] y) {{ {IN} }}", HALVES),
        "a single element to normalize over", "node in0 (InstanceNormalization)"),
    "mixed types, InstanceNormalization": Case(
        model(f"(float16[2, 4, 7, 7] x) => (float16[] y) {{ {IN} }}", HALVES),
        "tensors of different floating types", "node in0 (InstanceNormalization)"),
    "mixed types, LayerNormalization": Case(
        model("(float16[2, 4] x) => (float16[] y) { [ln0] y = LayerNormalization(x, s, b) }", HALVES),
        "tensors of different floating types", "node ln0 (LayerNormalization)"),
    "mixed types, inside an operator": Case(
        model("(float16[2, 4, 7, 7] x) => (float16[] y) { [mvn0] y = MeanVarianceNormalization(x) }"),
        "tensors of different floating types", "node mvn0 (MeanVarianceNormalization)"),
    "mixed types, convolution": Case(
        model("(float16[2, 2, 7, 7] x) => (float16[] y) { [c0] y = Conv(x, w) }", {"w": random(4, 2, 3, 3)}),
        "tensors of different floating types", "node c0 (Conv)"),
    "rank 2": Case(
        model("(float[2, 4] x) => (float[] y) { [gn0] y = GroupNormalization <num_groups=2>(x, s, b) }", HALVES, 21),
        "at least one further axis", "node gn0 (GroupNormalization)"),
    "axes of run time": Case(
        model("(float[2, 4] x, int64[1] a) => (float[] y) { [red] y = ReduceMean(x, a) }", opset=18),
        "computed at run time where TensorRT needs constants", "node red (ReduceMean)"),
    "an unknown operator": Case(
        model("(float[2, 4] x) => (float[] y) { [odd] y = Odd(x) }"),
        "knows no operator and no plugin of this name", "node odd (Odd)"),
    "a missing weight file": Case(
        edited(model(add(), {"w": random(4)}), with_missing_file), "a weight could not be read"),
    "a weight type": Case(
        model("(float[2, 4] x) => (float[] y) { z = Cast <to=1>(w) y = Add(x, z) }", {"w": np.ones(4, np.int16)}),
        "a weight could not be read"),
    "a weight with too few bytes": Case(
        edited(model(add(), {"w": random(4)}), lambda m: setattr(m.graph.initializer[0], "raw_data", bytes(12))),
        "a weight holds fewer or more bytes"),
    "a cycle": Case(
        model("(float[2, 4] x) => (float[] y) { a = Add(x, b) b = Neg(a) y = Abs(b) }"), "the graph has a cycle"),
    "nine axes": Case(
        model("(float[1, 1, 1, 1, 1, 1, 1, 1, 2] x) => (float[] y) { y = Abs(x) }"), "more than eight axes"),
    "no profile": Case(
        model("(float[N, 4] x) => (float[N, 4] y) { y = Abs(x) }"), "no valid optimization profile"),
    "min above opt": Case(
        model("(float[?, 4] x) => (float[?, 4] y) { y = Abs(x) }"), "no valid optimization profile", "",
        ({"x": ((4, 4), (3, 4), (8, 4))},)),
    "an input without profile": Case(
        model(TWO.format(a="N", b="N", rest="y = Add(x, z)")), "a dynamic input has no shapes", "", ({"x": POINT},)),
    "one name, two sizes": Case(
        model(TWO.format(a="N", b="N", rest="y = Concat <axis=0>(x, z)")),
        "dimensions with one symbolic name must be equal", "",
        ({"x": POINT, "z": ((3, 4), (3, 4), (3, 4))},)),
    "shapes that do not fit": Case(
        model(TWO.format(a="?", b="?", rest="y = Add(x, z)")), "do not fit together inside the network", "node -> y (Add)",
        ({"x": ((2, 4), (2, 4), (8, 4)), "z": ((2, 4), (3, 4), (8, 4))},)),
    "another p": Case(
        model("(float[2, 4] x) => (float[] y) { [lp] y = LpNormalization <p=3>(x) }"), "another p than 1 or 2",
        "node lp (LpNormalization)"),
    "an unproduced output": Case(
        model("(float[2, 4] x) => (float[2, 4] y) { z = Abs(x) }"), "a graph output is not produced"),
    "an empty file": Case(b"", "without reading a model from it"),
    "a web page": Case(b"<!DOCTYPE html>\n", "without reading a model from it"),
    "zeros": Case(bytes(4096), "without reading a model from it"),
}  # fmt: skip
NOT_PROVOKED = {
    r"HW-specific datatypes: b16": "the build profile has no setting for compute capabilities",
    r"imports IPluginV3": "needs a plugin, and trtnorm registers none",
    r"CUDA initialization failure": "needs the full TensorRT on a machine without a GPU",
}


@pytest.mark.rtx
@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_a_refusal_is_explained(tmp_path, case):
    result = built(case.model, tmp_path, case.profiles)
    assert not result.ok
    given = onnx.ModelProto() if isinstance(case.model, bytes) else case.model
    error = refusal(result, given, tmp_path)
    assert error.exit_code == 5
    lines = error.where.splitlines()
    means = [line for line in lines if line.startswith("that means: ")]
    assert any(case.meaning in line for line in means), error.where
    assert len(means) == len(set(means)), "each family is explained once"
    assert any(line.startswith("TensorRT says: ") for line in lines)
    assert case.node in lines or not case.node
    assert lines[-1] == f"log: {tmp_path / 'build.log'}"
    assert set(error.hint.splitlines()) <= {entry.advice for entry in CATALOGUE}
    assert not is_missing_driver_noise(error.where)
    assert "/_src/" not in error.where
    assert not (tmp_path / "out.engine").exists()


def test_every_family_is_provoked_or_says_why_not():
    provoked = {entry.pattern for entry in CATALOGUE if any(case.meaning in entry.meaning for case in CASES.values())}
    assert provoked | NOT_PROVOKED.keys() == {entry.pattern for entry in CATALOGUE}
    assert not provoked & NOT_PROVOKED.keys()


def test_entries_are_usable():
    for entry in CATALOGUE:
        re.compile(entry.pattern)
        for text in (entry.meaning, entry.advice):
            assert text
            assert not text.endswith(".")
    assert len({entry.pattern for entry in CATALOGUE}) == len(CATALOGUE)


@pytest.mark.parametrize(("message", "meaning"), [
    ("Cannot compile for target(s) sm75, because the model contains HW-specific datatypes: b16.", "bfloat16 does not exist"),
    ("TensorRT-RTX imports IPluginV3 plugins registered with an IPluginCreatorV3One creator only.", "of a generation"),
    ("CUDA initialization failure with error: 35", "this backend needs an NVIDIA GPU"),
    ("doesn't support mode than 1 outputs for BatchNormalization nodes!", "more than one output"),
])  # fmt: skip
def test_messages_that_are_not_provoked_here(message, meaning):
    assert meaning in explain(message).meaning


def test_an_unknown_message_is_not_explained():
    assert explain("Something nobody has seen before") is None
