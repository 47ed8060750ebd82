"""The cases of the ONNX backend test: expected outputs, and every function operator against its own expansion."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, numpy_helper, version_converter
from onnx.backend.test.loader import load_model_tests

from tests.evaluate.float64.nodes import assert_close
from trtnorm_cli.evaluate.float64 import UnsupportedOperator, evaluate_float64

PARTS = 24
"""Tests that share the cases among them: to have onnx make the cases takes ten seconds, which collecting tests should not."""
REFUSED = {
    *("Adagrad", "Adam", "Gradient", "Momentum"),
    *("ArrayFeatureExtractor", "Binarizer", "LabelEncoder", "TreeEnsemble"),
    *("Bernoulli", "RandomUniformLike", "Multinomial", "RandomNormalLike", "RandomUniform", "RandomNormal"),
    *("BitCast", "ImageDecoder"),
}
"""Training, classical machine learning, chance, the bits of a float32, and image files: no float64 truth to be had."""
DIFFERENT = {
    "test_resize_downsample_scales_linear_align_corners": "a size that is no integer; ONNX Runtime agrees with us",
    "test_resize_downsample_scales_cubic_align_corners": "a size that is no integer; ONNX Runtime agrees with us",
    **{f"test_PReLU_{n}d_multiparam": "a slope per channel without its axes, as until opset 6" for n in (1, 2, 3)},
    "test_dynamicquantizelinear": "a tie in float32 is none in float64",
    "test_dynamicquantizelinear_expanded": "a tie in float32 is none in float64",
}
FLOATS = ("float16", "float32", "float64", "bfloat16")


@cache
def cases() -> dict[str, Any]:
    kinds = ("node", "simple", "pytorch-converted", "pytorch-operator")
    return {case.name: case for kind in kinds for case in load_model_tests(kind=kind)}


def failures(names: list[str], check: Callable[[str], None]) -> dict[str, str]:
    """What ``check`` raised for a name, so that one failure does not hide the next."""
    found = {}
    for name in names:
        try:
            check(name)
        except Exception as problem:
            found[name] = f"{type(problem).__name__}: {problem}"
    return found


def data_of(case: Any) -> tuple[onnx.ModelProto, list[tuple[list[Any], list[Any]]]]:
    if case.model is not None:
        return case.model, [(list(map(array_of, inputs)), list(map(array_of, outputs))) for inputs, outputs in case.data_sets]
    folder = Path(case.model_dir)
    model = onnx.load(folder / "model.onnx")
    sets = []
    for data in sorted(folder.glob("test_data_set_*")):
        inputs = [
            read(data / f"input_{i}.pb", value) for i, value in enumerate(model.graph.input[: len(list(data.glob("input_*")))])
        ]
        sets.append((inputs, [read(data / f"output_{i}.pb", value) for i, value in enumerate(model.graph.output)]))
    return model, sets


def read(file: Path, value: onnx.ValueInfoProto) -> Any:
    if value.type.HasField("sequence_type"):
        return numpy_helper.to_list(onnx.SequenceProto.FromString(file.read_bytes()))
    if value.type.HasField("optional_type"):
        return numpy_helper.to_optional(onnx.OptionalProto.FromString(file.read_bytes()))
    return numpy_helper.to_array(TensorProto.FromString(file.read_bytes()))


def array_of(value: Any) -> Any:
    if isinstance(value, list):
        return [array_of(item) for item in value]
    return numpy_helper.to_array(value) if isinstance(value, TensorProto) else value


def compare(actual: Any, expected: Any, rtol: float, atol: float) -> None:
    if isinstance(expected, list):
        assert len(actual) == len(expected)
        for pair in zip(actual, expected, strict=True):
            compare(*pair, rtol, atol)
        return
    if expected is None:
        assert actual is None
        return
    expected = np.asarray(expected)
    if expected.dtype.kind in "OUS":
        assert actual.astype(str).tolist() == expected.astype(str).tolist()
        return
    assert actual.dtype == (np.float64 if expected.dtype.name in FLOATS else expected.dtype)
    assert actual.shape == expected.shape
    np.testing.assert_allclose(actual.astype(np.float64), expected.astype(np.float64), rtol=rtol, atol=atol)


def is_half(model: onnx.ModelProto) -> bool:
    values = (*model.graph.input, *model.graph.output)
    return any(v.type.tensor_type.elem_type in (TensorProto.FLOAT16, TensorProto.BFLOAT16) for v in values)


def modern(model: onnx.ModelProto) -> onnx.ModelProto:
    """Opset 6 as opset 9, without which most of PyTorch's cases would say nothing."""
    old = any(opset.domain == "" and opset.version == 6 for opset in model.opset_import)
    return version_converter.convert_version(model, 9) if old else model


def refusal(model: onnx.ModelProto, problem: UnsupportedOperator) -> bool:
    if any(opset.domain == "" and opset.version < 7 for opset in model.opset_import):
        return "older" in problem.summary
    operator = (problem.where or "").split(" ")[0].split("::")[-1]
    named = operator in REFUSED or "e8m0" in problem.summary or "random" in problem.summary
    return named or (operator == "Scan" and "opset 8" in problem.summary)


def test_all_cases_are_there():
    assert len(cases()) > 1800
    assert len(twins()) > 300
    assert DIFFERENT.keys() <= cases().keys()


@pytest.mark.parametrize("part", range(PARTS))
def test_expected_outputs(part):
    names = sorted(cases().keys() - DIFFERENT.keys())[part::PARTS]
    assert names
    assert failures(names, check_expected_outputs) == {}


def check_expected_outputs(name: str) -> None:
    case = cases()[name]
    model, sets = data_of(case)
    half = is_half(model)
    for inputs, outputs in sets:
        feeds = {value.name: array for value, array in zip(model.graph.input, inputs, strict=False)}
        try:
            results = evaluate_float64(modern(model), feeds).outputs
        except UnsupportedOperator as problem:
            if not refusal(model, problem):
                raise
            return
        for value, expected in zip(model.graph.output, outputs, strict=True):
            compare(results[value.name], expected, 2e-2 if half else case.rtol, 1e-2 if half else max(case.atol, 1e-6))


@cache
def twins() -> dict[str, str]:
    """An operator's case by the name of its expansion."""
    names = cases().keys()
    return {name: name.partition("_expanded")[0] for name in names if name.partition("_expanded")[0] in names - {name}}


CONSTANTS_IN_FLOAT32 = ("test_gelu_tanh", "test_hardswish")
"""The expansion rounds √(2/π), 0.044715 or 1/6 to float32 and the operator does not."""


def below_float32(array: Any, generator: np.random.Generator) -> Any:
    """The array with digits that float32 does not have, so that a rounding to float32 shows."""
    if isinstance(array, (np.ndarray, np.generic)) and np.asarray(array).dtype.name in ("float32", "float64"):
        array = np.asarray(array, np.float64)
        return array * (1 + 1e-9 * generator.normal(size=array.shape)) if np.abs(array).max(initial=0) < 1e6 else array
    return array


@pytest.mark.parametrize("part", range(PARTS))
def test_operator_agrees_with_its_expansion_to_float64(part):
    names = sorted(twins())[part::PARTS]
    assert names
    assert failures(names, check_twin) == {}


def check_twin(twin: str) -> None:
    name = twins()[twin]
    model, sets = data_of(cases()[name])
    generator = np.random.default_rng(0)
    feeds = {v.name: below_float32(a, generator) for v, a in zip(model.graph.input, sets[0][0], strict=True)}
    expanded, _ = data_of(cases()[twin])
    used = {value.name for value in expanded.graph.input}
    try:
        actual = evaluate_float64(model, feeds).outputs
        expected = evaluate_float64(expanded, {k: v for k, v in feeds.items() if k in used}).outputs
    except UnsupportedOperator as problem:
        if not refusal(model, problem):
            raise
        return
    for one, other in zip(actual.values(), expected.values(), strict=True):
        if one is not None and not isinstance(one, list):
            assert_close(one, other, 3e-8 if name.startswith(CONSTANTS_IN_FLOAT32) else 1e-12)
