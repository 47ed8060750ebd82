"""One operator of a model, as the rewriting of scales and shifts sees it."""

from __future__ import annotations

import numpy as np
import onnx

from tests.models import parse
from trtnorm_cli.onnx_model.shapes import declared_types
from trtnorm_cli.onnx_model.surgery import open_model
from trtnorm_cli.rewrite.borders import Borders
from trtnorm_cli.rewrite.pattern import Bindings
from trtnorm_cli.rewrite.rule import Match
from trtnorm_cli.rewrite.rules.fold_batchnorm_upstream import RULE
from trtnorm_cli.rewrite.scale_shift.affine import Affine
from trtnorm_cli.rewrite.scale_shift.operation import Operation


def operation(graph: str, weights: dict[str, np.ndarray] | None = None, *, opset: int = 17, node: int = -1) -> Operation:
    """A node of a model in text form, the last one unless ``node`` says otherwise."""
    model = onnx.shape_inference.infer_shapes(parse(graph, weights, opset=opset), data_prop=True)
    surgery = open_model(model, None)
    found = surgery.graph.nodes[node]
    borders = Borders(surgery.graphs())
    match = Match(RULE, found, Bindings(nodes={"site": found}), surgery, declared_types(model), borders=borders)
    return Operation(found, match)


def apply(given: Affine, values: np.ndarray) -> np.ndarray:
    """scale·values + shift; fails when this makes ``values`` larger."""
    result = given.scale * values + given.shift
    assert result.shape == values.shape, (given.shape, values.shape)
    return result
