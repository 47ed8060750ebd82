"""Put constants in the place of the nodes of an onnx-ir graph that compute them."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import onnx_ir as ir

from trtnorm_cli.light_dataclass import dataclass
from trtnorm_cli.onnx_model.ir_model import WithheldTensor
from trtnorm_cli.onnx_model.shelf import Shelf


@dataclass(frozen=True)
class ConstantMaker:
    """Makes constants of a model. The large ones of its ``main`` graph are on the ``shelf``, and not in memory."""

    main: ir.Graph
    shelf: Shelf

    def replace(self, node: ir.Node, results: Sequence[np.ndarray]) -> None:
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
            if graph is self.main:
                self._put_away(constant)
        graph.remove(node, safe=True)

    def put_away(self) -> None:
        """Put on the shelf what others made."""
        for constant in self.main.initializers.values():
            self._put_away(constant)

    def _put_away(self, constant: ir.Value) -> None:
        tensor = constant.const_value
        if isinstance(tensor, ir.Tensor) and tensor.dtype != ir.DataType.STRING:
            kept = self.shelf.put(tensor.numpy(), constant.name or "")
            if kept is not None:
                constant.const_value = WithheldTensor(kept.tensor, None)
