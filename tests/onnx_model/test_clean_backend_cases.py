"""Cleaning on the test models of the ONNX package: as they are, and with their inputs turned into constants."""

from __future__ import annotations

import functools
import warnings
from typing import Any

import numpy as np
import onnx
import onnx.helper
import pytest
from onnx import numpy_helper

from tests.onnx_model.running import Values, run
from trtnorm_cli.onnx_model.clean import clean

_RANDOM = {"Bernoulli", "Dropout", "Multinomial", "RandomNormalLike", "RandomUniformLike"}
_EVERY = 25


@functools.cache
def cases() -> list[Any]:
    """The node tests whose inputs and outputs are tensors."""
    from onnx.backend.test.case.node import collect_testcases

    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        found = collect_testcases(None)
    return [case for case in found if case.model is not None and case.data_sets and _has_only_tensors(case)]


def _has_only_tensors(case: Any) -> bool:
    values = (*case.model.graph.input, *case.model.graph.output)
    return all(value.type.HasField("tensor_type") for value in values) and len(case.data_sets[0][0]) == len(
        case.model.graph.input
    )


def feeds(case: Any) -> Values:
    names = [value.name for value in case.model.graph.input]
    return {name: _array(value) for name, value in zip(names, case.data_sets[0][0], strict=True)}


def _array(value: Any) -> np.ndarray:
    return np.asarray(numpy_helper.to_array(value) if isinstance(value, onnx.TensorProto) else value)


def outputs(model: onnx.ModelProto, values: Values) -> Values | None:
    """None when ONNX Runtime cannot run the model: it is behind the newest opset."""
    try:
        return run(model, values)
    except Exception:  # onnxruntime has an exception type for each status
        return None


def with_constants(case: Any) -> onnx.ModelProto:
    """The case's inputs as initializers, and an Identity before each output so that the operator is an inner one."""
    model = onnx.ModelProto()
    model.CopyFrom(case.model)
    graph = model.graph
    graph.initializer.extend(numpy_helper.from_array(value, name) for name, value in feeds(case).items())
    del graph.input[:]
    for output in graph.output:
        for node in graph.node:
            for names in (node.input, node.output):
                names[:] = [f"{name}_inner" if name == output.name else name for name in names]
        graph.node.append(onnx.helper.make_node("Identity", [f"{output.name}_inner"], [output.name]))
    return model


def is_close(got: Values, wanted: Values) -> bool:
    return all(got[name].dtype == value.dtype and _is_close(got[name], value) for name, value in wanted.items())


def _is_close(got: np.ndarray, wanted: np.ndarray) -> bool:
    if wanted.dtype.kind not in "fc":
        return np.array_equal(got, wanted)
    tolerance = 2e-3 if wanted.dtype == np.float16 else 2e-5
    largest = np.abs(wanted[np.isfinite(wanted)]).max(initial=1)
    return got.shape == wanted.shape and np.allclose(got, wanted, rtol=tolerance, atol=tolerance * largest, equal_nan=True)


def specified(case: Any) -> Values:
    """What the ONNX package expects; ONNX Runtime differs from it in a few cases."""
    names = [value.name for value in case.model.graph.output]
    return {name: _array(value) for name, value in zip(names, case.data_sets[0][1], strict=True)}


def check(case: Any, model: onnx.ModelProto, values: Values) -> bool:
    """Clean ``model`` twice and compare; True when ONNX Runtime could judge the result."""
    result = clean(model)
    again = clean(result.model)
    assert again.model == result.model, case.name
    assert again.counts == {}, case.name
    assert list(result.model.graph.input) == list(model.graph.input)
    assert list(result.model.graph.output) == list(model.graph.output)
    wanted = outputs(model, values)
    if wanted is None or any(node.op_type in _RANDOM for node in model.graph.node):
        return False
    got = run(result.model, values)
    assert is_close(got, wanted) or is_close(got, specified(case)), case.name
    return True


@pytest.mark.parametrize("constants", [False, True], ids=["as-they-are", "constants"])
@pytest.mark.parametrize("step", [_EVERY, pytest.param(1, marks=pytest.mark.slow)], ids=["some", "all"])
def test_backend_cases(step, constants):
    chosen = cases()[::step]
    judged = sum(
        check(case, with_constants(case), {}) if constants else check(case, case.model, feeds(case)) for case in chosen
    )
    assert judged > len(chosen) // 2
