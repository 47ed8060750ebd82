"""The network that TensorRT makes of exported PyTorch models computes what ONNX Runtime computes of the model."""

from __future__ import annotations

import io
from typing import Any

import numpy as np
import onnx
import pytest

from tests.numerics import relative_error
from tests.tensorrt.network.harness import Bench, run_onnx

torch = pytest.importorskip("torch")
pytestmark = [pytest.mark.rtx, pytest.mark.torch, pytest.mark.slow]

from tests.tensorrt.network.models import CASES, Case, varied  # noqa: E402


def exported(case: Case, exporter: str, opset: int, dtype: Any = None) -> onnx.ModelProto:
    model, example = varied(case.build).to(dtype), inputs(case, case.example)
    tensor = torch.from_numpy(example) if case.tokens else torch.from_numpy(example).to(dtype)
    if exporter == "dynamo":
        program = torch.onnx.export(
            model, (tensor,), dynamo=True, opset_version=opset, dynamic_shapes=(case.axes,), verbose=False
        )
        return program.model_proto
    stream = io.BytesIO()
    names = {"input_names": ["x"], "dynamic_axes": {"x": case.axes}}
    torch.onnx.export(model, (tensor,), stream, dynamo=False, opset_version=opset, **names)
    return onnx.load_from_string(stream.getvalue())


def inputs(case: Case, shape: tuple[int, ...]) -> np.ndarray:
    rng = np.random.default_rng(0)
    return rng.integers(0, case.tokens, shape) if case.tokens else rng.normal(size=shape).astype(np.float32)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(("exporter", "opset"), [("torchscript", 17), ("dynamo", 18), ("dynamo", 21)])
@pytest.mark.parametrize("name", list(CASES))
def test_exported_models(name: str, exporter: str, opset: int) -> None:
    case = CASES[name]
    if name == "llama" and exporter == "torchscript":
        pytest.skip("TorchScript cannot export rms_norm")
    model = exported(case, exporter, opset)
    network = Bench().parse(model)
    (source,), (target,) = ([value.name for value in m.graph.input] for m in (model, network))
    for shape in (case.example, *case.shapes):
        data = inputs(case, shape)
        (expected,), (actual,) = run_onnx(model, {source: data}).values(), run_onnx(network, {target: data}).values()
        assert np.isfinite(expected).all()
        assert np.ptp(expected) > 0.01
        assert relative_error(expected, actual) < 1e-5


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", ["resnet", "resnet_group_norm", "generator_affine", "convnext", "bert"])
def test_float16_models_stay_within_float16(name: str) -> None:
    """ONNX Runtime skips roundings between float16 nodes; the network rounds after each layer, as its types say."""
    case = CASES[name]
    exact, half = exported(case, "torchscript", 17), exported(case, "torchscript", 17, torch.float16)
    network = Bench().parse(half)
    data = inputs(case, case.example)
    low = data if case.tokens else data.astype(np.float16)
    (expected,) = run_onnx(exact, {"x": low if case.tokens else low.astype(np.float32)}).values()
    (actual,) = run_onnx(network, {"x": low}).values()
    assert actual.dtype == np.float16
    assert 1e-6 < relative_error(expected, actual) < 2e-2
