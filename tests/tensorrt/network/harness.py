"""Run what TensorRT holds: networks built layer by layer, or parsed from a model, translated and run in ONNX Runtime."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import onnxruntime
from onnx import ModelProto

from trtnorm_cli.onnx_model.infer import checker_objection
from trtnorm_cli.tensorrt.network.translate import translate

Arrays = Mapping[str, np.ndarray]


def load_trt() -> Any:
    """TensorRT's module; tests that use it carry the marker rtx."""
    import tensorrt_rtx

    return tensorrt_rtx


def run_onnx(model: ModelProto, feeds: Arrays) -> dict[str, np.ndarray]:
    """The model's outputs with graph optimisation off."""
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.intra_op_num_threads = 1
    options.log_severity_level = 4
    session = onnxruntime.InferenceSession(model.SerializeToString(), options)
    wanted = {value.name for value in session.get_inputs()}
    outputs = [value.name for value in session.get_outputs()]
    return dict(zip(outputs, session.run(None, {k: v for k, v in feeds.items() if k in wanted}), strict=True))


@dataclass
class Bench:
    """A TensorRT network under construction. ``keep`` holds arrays that TensorRT only points to."""

    trt: Any = field(default_factory=load_trt)
    keep: list[Any] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.builder = self.trt.Builder(self.trt.Logger(self.trt.Logger.INTERNAL_ERROR))
        self.network = self.builder.create_network(0)

    def input(self, name: str, shape: tuple[int, ...], dtype: str = "FLOAT") -> Any:
        """A network input; -1 is a run-time dimension."""
        return self.network.add_input(name, getattr(self.trt.DataType, dtype), shape)

    def weights(self, array: Any, dtype: Any = np.float32) -> Any:
        """Weights that live as long as the bench."""
        self.keep.append(np.ascontiguousarray(np.asarray(array, dtype=dtype)).reshape(np.shape(array)))
        return self.trt.Weights(self.keep[-1])

    def constant(self, array: Any, dtype: Any = np.float32) -> Any:
        """The output of a constant layer."""
        return self.network.add_constant(np.shape(array), self.weights(array, dtype)).get_output(0)

    def model(self, *outputs: Any) -> ModelProto:
        """The translation of the network with these outputs named y0, y1, …; checked in full by onnx's checker."""
        for i, tensor in enumerate(outputs):
            tensor.name = f"y{i}"
            self.network.mark_output(tensor)
        return self.translated()

    def translated(self) -> ModelProto:
        """The translation of the network as it is; checked in full by onnx's checker."""
        model = translate(self.network, self.trt)
        assert checker_objection(model, full_check=True) is None
        return model

    def run(self, *outputs: Any, **feeds: Any) -> list[np.ndarray]:
        """The outputs for these inputs."""
        results = run_onnx(self.model(*outputs), feeds)
        return [results[f"y{i}"] for i in range(len(outputs))]

    def parse(self, model: ModelProto) -> ModelProto:
        """The translation of what TensorRT's parser makes of ``model``; fails with the parser's words."""
        parser = self.trt.OnnxParser(self.network, self.builder.logger)
        self.keep.append(parser)
        accepted = parser.parse(model.SerializeToString())
        assert accepted, [parser.get_error(i).desc() for i in range(parser.num_errors)]
        return self.translated()


def numpy_windows(
    x: np.ndarray, kernel: int, stride: int, before: int, after: int, count: int, reduce: Callable[[np.ndarray], float]
) -> np.ndarray:
    """Pool the last axis of a vector by definition: each window sees NaN for padding and nothing beyond it."""
    padded = np.concatenate([np.full(before, np.nan), x, np.full(after, np.nan)])
    return np.array([reduce(padded[i * stride : i * stride + kernel]) for i in range(count)])
