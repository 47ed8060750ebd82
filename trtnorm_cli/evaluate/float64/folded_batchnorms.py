"""Finds a BatchNormalization in other nodes, by the constants that it became.

Where the constants of a candidate are its own but for their rounding to float32, what the candidate computes is taken to be the
result of the BatchNormalization, and what follows from it need not be evaluated again. Every weight is looked at, in place of
what the weights give for some inputs. The noise that a comparison allows has the same rounding in it (``perturbation.py``).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto

from trtnorm_cli.evaluate.float64.batchnorm_constants import FLOAT32, FoldedProduct, Normalized
from trtnorm_cli.evaluate.float64.kernels.call import Call
from trtnorm_cli.evaluate.float64.known import Known, Place
from trtnorm_cli.light_dataclass import dataclass
from trtnorm_cli.onnx_model.wire import FilePart


@dataclass(frozen=True)
class _Product:
    call: Call
    weight: np.ndarray | FilePart


class FoldedBatchNorms:
    """Finds in one evaluation what BatchNormalizations became, by what ``known`` has of earlier ones.

    ``nodes`` are those to be evaluated, and ``place`` tells where a weight is, None for one that is in no file.
    """

    def __init__(self, nodes: Iterable[onnx.NodeProto], place: Callable[[str], Place | None]) -> None:
        self._place = place
        self._normalized = {node.input[0] for node in nodes if node.op_type == "BatchNormalization"}
        # Convolutions by the name of what they give, until the BatchNormalization that reads it was evaluated.
        self._products: dict[str, _Product] = {}
        self._scaled: Any = None
        self._factors: Sequence[Any] = ()

    def learn(self, node: onnx.NodeProto, call: Call, results: Sequence[Any], known: Known) -> None:
        """Let ``known`` have the result of a BatchNormalization by what it comes to.

        A convolution is held until its BatchNormalization was evaluated, and a multiplication until the next node was.
        """
        self._scaled, self._factors = (results[0], call.inputs) if call.op_type == "Mul" else (None, ())
        if call.op_type == "Conv" and node.output[0] in self._normalized:
            self._products[node.output[0]] = _Product(call, self._kept(node.input[1], call.inputs[1]))
        elif call.op_type == "BatchNormalization":
            product = self._products.pop(node.input[0], None)
            if (made := Normalized.of(call, results[0])) is None:
                return
            known.learn_normalized(call.x, made)
            behind = None if product is None else made.behind(product.call)
            if product is not None and behind is not None:
                weight = product.call.inputs[1]
                known.learn_folded(product.call, FoldedProduct(product.weight, weight.shape, behind))

    def _kept(self, name: str, weight: np.ndarray) -> np.ndarray | FilePart:
        place = self._place(name) if weight.dtype == FLOAT32 else None
        return weight if place is None or place.kind != TensorProto.FLOAT else place.part

    def result(self, call: Call, known: Known) -> Any | None:
        """The result of the BatchNormalization that a node has, or completes; None where it has none."""
        if call.op_type == "Conv":
            return next((one.normalized.result for one in known.folded(call) if one.is_in(call)), None)
        if call.op_type != "Add" or self._scaled is None:
            return None
        for shift in _others(call.inputs, self._scaled):
            for data, scale in (self._factors, self._factors[::-1]):
                found = _completed(data, scale, shift, known)
                if found is not None:
                    return found
        return None


def _others(inputs: Sequence[Any], one: Any) -> Iterator[Any]:
    return (other for given, other in (inputs, inputs[::-1]) if given is one)


def _completed(data: Any, scale: Any, shift: Any, known: Known) -> Any | None:
    scale, shift = _of_channels(scale, data), _of_channels(shift, data)
    if scale is None or shift is None:
        return None
    found = (made for made in known.normalized(data) if made.is_scaled_by(scale) and made.is_shifted_by(shift))
    return next((made.result for made in found), None)


def _of_channels(values: Any, data: Any) -> np.ndarray | None:
    """``values`` as [C], if they are one for each channel of ``data`` [N, C, ...]."""
    if not isinstance(values, np.ndarray) or not isinstance(data, np.ndarray) or data.ndim < 2 or values.ndim > data.ndim:
        return None
    shape = (*(1,) * (data.ndim - values.ndim), *values.shape)
    return values.reshape(-1) if shape == (1, data.shape[1], *(1,) * (data.ndim - 2)) else None
