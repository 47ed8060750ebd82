"""Products of integers that stand for floats, as quantisers write them, with what turns them into floats again.

    y = (s_a · s_b) · float(MatMulInteger(q_a, q_b, z_a, z_b) + bias)

and ConvInteger alike.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, TypeAlias

import numpy as np
import onnx

from trtnorm_cli.light_dataclass import dataclass
from trtnorm_cli.rewrite.parts import dynamic_quantization as dynamic
from trtnorm_cli.rewrite.parts.dynamic_quantization import Activation, producer
from trtnorm_cli.rewrite.parts.moves import Moved, moved
from trtnorm_cli.rewrite.pattern import describe

if TYPE_CHECKING:
    import onnx_graphsurgeon as gs

    from trtnorm_cli.onnx_model.surgery import Surgery

FLOAT_FORM = {"MatMulInteger": "MatMul", "ConvInteger": "Conv"}
_CONVOLUTION = "ConvInteger"
_ROUNDINGS = ("Floor", "Round", "Ceil")


@dataclass(frozen=True)
class Weights:
    """Weights of 8 bits as the file stores them. ``zero`` broadcasts over them."""

    stored: np.ndarray
    zero: np.ndarray | None


@dataclass(frozen=True)
class Bias:
    """A bias that is divided by ``step`` and rounded to integers, and moved since: ``quotient`` is what is rounded."""

    value: gs.Tensor
    step: gs.Tensor
    moves: Moved


Factor: TypeAlias = "Activation | Weights"


@dataclass(frozen=True)
class Product:
    """An integer product of ``factors``.

    ``result`` is what it comes to in floats with its ``bias``. The file multiplies that with ``constants`` and the scales of
    the activations.
    """

    node: gs.Node
    result: gs.Tensor
    factors: tuple[Factor, Factor]
    constants: tuple[np.ndarray, ...]
    bias: Bias | None = None

    @property
    def activations(self) -> list[Activation]:
        return [factor for factor in self.factors if isinstance(factor, Activation)]

    @property
    def float_form(self) -> str:
        """The operator on floats."""
        return FLOAT_FORM[self.node.op]

    @property
    def is_convolution(self) -> bool:
        return self.node.op == _CONVOLUTION


def product(root: gs.Node, surgery: Surgery) -> Product | str:
    """The product that ``root`` rescales, or why that is not known."""
    operands = list(operands_of_product(root))
    results = [tensor for tensor in operands if integer_product(tensor) is not None]
    if len(results) != 1:
        return f"{describe(root)} multiplies {len(results)} integer products"
    total = integer_product(results[0])
    assert total is not None, "it was looked for above"
    node, bias = total
    if isinstance(bias, str):
        return bias
    factors = (_factor(node, 0, surgery), _factor(node, 1, surgery))
    for factor in factors:
        if isinstance(factor, str):
            return factor
    rescaling = _rescaling((tensor for tensor in operands if tensor is not results[0]), surgery)
    if isinstance(rescaling, str):
        return rescaling
    constants, scales = rescaling
    wanted = [id(factor.quantiser) for factor in factors if isinstance(factor, Activation)]
    if not wanted:
        return f"neither operand of {describe(node)} is quantised dynamically"
    if sorted(scales) != sorted(wanted):
        return f"{describe(root)} does not multiply {describe(node)} by the scales of its own operands"
    if bias is not None:
        step = _rescaling(_operands_of(bias.step), surgery)
        if isinstance(step, str) or sorted(step[1]) != sorted(scales) or not _equal_products(step[0], constants):
            return f"the bias {bias.value.name} is divided by {bias.step.name}, not by what {describe(root)} multiplies with"
    return Product(node, results[0], factors, tuple(constants), bias)  # type: ignore[arg-type]  # no reason is among them


def _rescaling(tensors: Iterable[gs.Tensor], surgery: Surgery) -> tuple[list[np.ndarray], list[int]] | str:
    """The constants among ``tensors``, and the identities of the quantisers whose scales the others are."""
    constants, scales = [], []
    for tensor in tensors:
        value, quantiser = surgery.constant(tensor), dynamic.scale_of(tensor)
        if value is not None:
            constants.append(value)
        elif quantiser is not None:
            scales.append(id(quantiser))
        else:
            return f"{tensor.name}, with which the product is multiplied, is neither a constant nor a scale of the activations"
    return constants, scales


def _equal_products(a: Iterable[np.ndarray], b: Iterable[np.ndarray]) -> bool:
    ours, theirs = (math.prod((value.astype(np.float64) for value in values), start=np.float64(1)) for values in (a, b))
    return bool(np.allclose(ours.reshape(-1), theirs.reshape(-1), rtol=1e-6, atol=0)) if ours.size == theirs.size else False


def operands_of_product(node: gs.Node) -> Iterator[gs.Tensor]:
    """The factors of a product of products."""
    for tensor in node.inputs:
        yield from _operands_of(tensor)


def _operands_of(tensor: gs.Tensor) -> Iterator[gs.Tensor]:
    inner = producer(tensor, "Mul")
    if inner is None:
        yield tensor
    else:
        yield from operands_of_product(inner)


def integer_product(tensor: gs.Tensor) -> tuple[gs.Node, Bias | str | None] | None:
    """The integer product whose result is ``tensor`` in float32, and the bias that is added to it."""
    cast = producer(tensor, "Cast")
    if cast is None or cast.attrs.get("to") != onnx.TensorProto.FLOAT:
        return None
    total = cast.inputs[0]
    if (node := producer(total, *FLOAT_FORM)) is not None:
        return node, None
    add = producer(total, "Add")
    for index in (0, 1) if add is not None else ():
        if (node := producer(add.inputs[index], *FLOAT_FORM)) is not None:  # type: ignore[union-attr]
            return node, _bias(add.inputs[1 - index])  # type: ignore[union-attr]
    return None


def _bias(tensor: gs.Tensor) -> Bias | str:
    moves = moved(tensor)
    cast = producer(moves.source, "Cast")
    rounded = None if cast is None else producer(cast.inputs[0], *_ROUNDINGS)
    quotient = None if rounded is None else producer(rounded.inputs[0], "Div")
    if quotient is None:
        return f"{tensor.name} is added to an integer product, and is not a bias that was divided and rounded"
    return Bias(quotient.inputs[0], quotient.inputs[1], moves)


def _factor(node: gs.Node, index: int, surgery: Surgery) -> Factor | str:
    tensor, zero = node.inputs[index], dynamic.given(node, index + 2)
    stored = surgery.constant(tensor)
    if stored is None:
        return dynamic.activation(tensor, zero)
    if zero is None:
        return Weights(stored, None)
    zeros = surgery.constant(zero)
    if zeros is None:
        return f"{zero.name}, the zero point of constants, is computed at run time"
    if zeros.size == 1:
        return Weights(stored, zeros.reshape(()))
    if node.op == _CONVOLUTION:
        return Weights(stored, zeros.reshape(-1, *[1] * (stored.ndim - 1)))
    if index == 0 and zeros.ndim == 1:
        return Weights(stored, zeros.reshape(-1, 1))
    return Weights(stored, zeros)
