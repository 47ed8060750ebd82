"""Products that a model adds a bias of zeros to, and that its rewriting gives under the sum's name."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import onnx

from trtnorm_cli.evaluate.float64.kernels.call import Call
from trtnorm_cli.evaluate.float64.known import Known

_PRODUCTS = ("Conv", "ConvTranspose", "Gemm", "MatMul")


class UnnamedProducts:
    """Products whose own names nobody asks for, each held until the sum with a constant that reads it was evaluated.

    ``nodes`` are those to be evaluated, and ``is_stored`` tells the names of constants.
    """

    def __init__(self, nodes: Iterable[onnx.NodeProto], is_stored: Callable[[str], bool]) -> None:
        sums = (node.input for node in nodes if node.op_type == "Add" and any(map(is_stored, node.input)))
        self._read_by_sums = {name for names in sums for name in names}
        self._held: dict[str, Call] = {}

    def __len__(self) -> int:
        return len(self._held)

    def hold(self, node: onnx.NodeProto, call: Call) -> None:
        """Hold what was evaluated, if it is a product that such a sum reads."""
        if node.op_type in _PRODUCTS and node.output[0] in self._read_by_sums:
            self._held[node.output[0]] = call

    def learn(self, node: onnx.NodeProto, inputs: Sequence[Any], result: Any, known: Known) -> None:
        """Let ``known`` have the product that a sum gives on as it is, its ``result``; None where that is not kept."""
        for name, value in zip(node.input, inputs, strict=True):
            call = self._held.pop(name, None)
            if call is not None and value is result:
                known.learn_late(call, (result,))
