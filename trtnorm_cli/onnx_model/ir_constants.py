"""Put constants in the place of the nodes of an onnx-ir graph that compute them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import field

import numpy as np
import onnx_ir as ir

from trtnorm_cli.light_dataclass import dataclass
from trtnorm_cli.onnx_model.ir_model import WithheldTensor
from trtnorm_cli.onnx_model.shelf import SHELVED_FROM_BYTES, Shelf

# So much stays in memory until it is known whether anybody reads it: most values on the way are folded a few nodes later.
_MOST_WAITING_BYTES = 1 << 25


@dataclass
class ConstantMaker:
    """Makes constants of a model. The large ones of its ``main`` graph that stay are on the ``shelf``, and not in memory."""

    main: ir.Graph
    shelf: Shelf
    _waiting: list[ir.Value] = field(default_factory=list)

    def replace(self, node: ir.Node, results: Sequence[np.ndarray]) -> None:
        """Remove ``node``; ``results`` are the values of its outputs that have a name, and become initializers of that name."""
        graph = node.graph
        assert graph is not None
        outputs, large = [value for value in node.outputs if value.name], list[ir.Value]()
        for value, result in zip(outputs, results, strict=True):
            # Not ``ir.tensor``, which before Python 3.12 takes longer to see that an array is one than all else here.
            tensor = ir.Tensor(result, name=value.name)
            constant = ir.Value(name=value.name, type=ir.TensorType(tensor.dtype), shape=tensor.shape, const_value=tensor)
            value.replace_all_uses_with(constant, replace_graph_outputs=True)
            graph.register_initializer(constant)
            if graph is self.main and result.nbytes >= SHELVED_FROM_BYTES:
                large.append(constant)
        graph.remove(node, safe=True)
        for constant in large:
            self._wait_with(constant)

    def put_away(self) -> None:
        """Put on the shelf all that is large, whoever made it. What nobody reads has to be gone."""
        for constant in self.main.initializers.values():
            self._put_away(constant)

    def _wait_with(self, constant: ir.Value) -> None:
        """Keep ``constant`` in memory, and put away what has waited longest where that is too much."""
        self._waiting = [one for one in self._waiting if one.uses()] + [constant]
        sizes = [one.const_value.nbytes for one in self._waiting if one.const_value is not None]
        while len(self._waiting) > 1 and sum(sizes) > _MOST_WAITING_BYTES:
            sizes.pop(0)
            self._put_away(self._waiting.pop(0))

    def _put_away(self, constant: ir.Value) -> None:
        tensor = constant.const_value
        if isinstance(tensor, ir.Tensor) and tensor.dtype != ir.DataType.STRING:
            kept = self.shelf.put(tensor.numpy(), constant.name or "")
            if kept is not None:
                constant.const_value = WithheldTensor(kept.tensor, None)
