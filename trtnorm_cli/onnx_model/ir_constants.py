"""Put constants in the place of the nodes of an onnx-ir graph that compute them."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import onnx_ir as ir


def replace_by(node: ir.Node, results: Sequence[np.ndarray]) -> None:
    """Remove ``node``; ``results`` are the values of its outputs that have a name, and become initializers of that name."""
    graph = node.graph
    assert graph is not None
    outputs = [value for value in node.outputs if value.name]
    for value, result in zip(outputs, results, strict=True):
        # Not ``ir.tensor``, which before Python 3.12 takes longer to see that an array is one than all else here.
        tensor = ir.Tensor(result, name=value.name)
        constant = ir.Value(name=value.name, type=ir.TensorType(tensor.dtype), shape=tensor.shape, const_value=tensor)
        value.replace_all_uses_with(constant, replace_graph_outputs=True)
        graph.register_initializer(constant)
    graph.remove(node, safe=True)
