"""A model in a low type, converted with a plan that a test writes."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import onnx
import onnxruntime

from tests.models import parse
from trtnorm_cli.onnx_model.infer import checker_objection
from trtnorm_cli.onnx_model.shapes import declared_types
from trtnorm_cli.onnx_model.surgery import open_model
from trtnorm_cli.precision.convert import Typed, convert
from trtnorm_cli.precision.low_types import FP16, LowType
from trtnorm_cli.precision.plan import InputsAndOutputs, TypePlan, kept, key_of
from trtnorm_cli.precision.units import units
from trtnorm_cli.rewrite.norms.record import composite_norms


def typed(
    graph: str,
    weights: Mapping[str, np.ndarray] | None = None,
    keep: tuple[str, ...] = (),
    *,
    low: LowType = FP16,
    io: InputsAndOutputs = "keep",
    opset: int = 18,
) -> Typed:
    """The model of ``graph`` in ``low``; the nodes with the outputs ``keep`` stay float32. It must be valid."""
    return typed_model(parse(graph, dict(weights or {}), opset=opset), keep, low=low, io=io)


def typed_model(
    model: onnx.ModelProto, keep: tuple[str, ...] = (), *, low: LowType = FP16, io: InputsAndOutputs = "keep"
) -> Typed:
    model = onnx.shape_inference.infer_shapes(model)
    types = declared_types(model)
    parts = units(model, types, composite_norms(open_model(model, None), types))
    asked = {key_of(node): kept(node, "asked", "a test asks for it") for node in model.graph.node if key_of(node) in keep}
    assert len(asked) == len(keep)
    before = model.SerializeToString(deterministic=True)
    done = convert(model, None, TypePlan(low, asked, io), parts, types)
    assert model.SerializeToString(deterministic=True) == before
    assert checker_objection(done.model, full_check=True) is None, onnx.printer.to_text(done.model)
    return done


def run(model: onnx.ModelProto, feeds: Mapping[str, np.ndarray]) -> list[np.ndarray]:
    """The outputs by ONNX Runtime, without graph optimisation."""
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    return [np.asarray(value) for value in session.run(None, dict(feeds))]
