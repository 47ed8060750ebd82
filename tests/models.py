"""Models for tests, written in ONNX's text form so that a reader sees the graph."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import onnx.parser
from numpy.typing import DTypeLike
from onnx import numpy_helper

from trtnorm_cli.onnx_model.load import LoadedModel, load_model


def parse(graph: str, weights: dict[str, np.ndarray] | None = None, *, opset: int = 17, ir: int = 8) -> onnx.ModelProto:
    """The model of one graph in text form, with ``weights`` as initializers."""
    model = onnx.parser.parse_model(f'<ir_version: {ir}, opset_import: ["" : {opset}]> {graph}')
    model.graph.initializer.extend(numpy_helper.from_array(value, name) for name, value in (weights or {}).items())
    return model


def random(*shape: int, dtype: DTypeLike = np.float32, seed: int = 0) -> np.ndarray:
    """Standard normal values."""
    return np.asarray(np.random.default_rng([seed, *shape]).standard_normal(shape)).astype(dtype)


def batchnorm(channels: int, dtype: DTypeLike = np.float32, seed: int = 0, suffix: str = "") -> dict[str, np.ndarray]:
    """Non-trivial parameters of a BatchNormalization: ``gamma``, ``beta``, ``mu`` and ``var``, each with ``suffix``."""
    rng = np.random.default_rng([seed, channels])
    values = {
        "gamma": rng.uniform(0.5, 1.5, channels) * rng.choice([-1, 1], channels),
        "beta": rng.standard_normal(channels),
        "mu": rng.standard_normal(channels),
        "var": rng.uniform(0.1, 3, channels),
    }
    return {name + suffix: value.astype(dtype) for name, value in values.items()}


def saved(model: onnx.ModelProto, path: Path) -> Path:
    """Write ``model`` to ``path`` as it is."""
    path.write_bytes(model.SerializeToString())
    return path


def loaded(model: onnx.ModelProto, folder: Path) -> LoadedModel:
    """``model`` after a round trip through a file."""
    return load_model(saved(model, folder / "model.onnx"))


def operators(model: onnx.ModelProto) -> list[str]:
    """The operators of the top-level graph, in order."""
    return [node.op_type for node in model.graph.node]
