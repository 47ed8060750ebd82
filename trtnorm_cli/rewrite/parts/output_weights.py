"""Weights of an operator that computes W·x + b, so that its output channels come out scaled and shifted.

    s·(W·x + b) + t = (s·W)·x + (s·b + t)

with one value of s and t per output channel (Jacob et al. 2018, §3.2). The rules that fold a BatchNormalization into the
operator before it, and ``scale_shift``, which carries a scale and shift further, share the factors of W.
"""

from __future__ import annotations

from collections.abc import Callable

import ml_dtypes
import numpy as np

from trtnorm_cli.rewrite.parts import batchnorm
from trtnorm_cli.rewrite.pattern import describe
from trtnorm_cli.rewrite.rule import Match, NewConstant, NewNode


def convolution_factors(rank: int, scale: np.ndarray) -> np.ndarray:
    """The factors of a Conv's W: output channels are its first axis, with any number of groups."""
    return scale.reshape(-1, *[1] * (rank - 1))


def transposed_convolution_factors(shape: tuple[int, ...], groups: int, scale: np.ndarray) -> np.ndarray:
    """The factors of a ConvTranspose's W [C_in, C_out/G, …]: the rows of group g hold its C_out/G output channels."""
    rows = np.repeat(scale.reshape(groups, -1), shape[0] // groups, axis=0)
    return rows.reshape(*rows.shape, *[1] * (len(shape) - 2))


def gemm_factors(transposed: bool, scale: np.ndarray) -> np.ndarray:
    """The factors of a Gemm's B: output channels are its columns, or its rows when transB is set."""
    return scale[:, None] if transposed else scale[None, :]


def scaled(weight: np.ndarray, factors: np.ndarray) -> np.ndarray:
    """``weight`` times ``factors``, computed in float64, in the type of ``weight``.

    NumPy raises, multiplies and rounds piece by piece: a copy in float64 would cost more than the product.
    """
    result = np.empty(np.broadcast_shapes(weight.shape, factors.shape), weight.dtype)
    return np.multiply(weight, factors, out=result, dtype=np.float64, casting="unsafe")


def with_bias(m: Match, factors: np.ndarray, beta: float = 1.0) -> tuple[np.ndarray, np.ndarray]:
    """The ``factors`` of the weight, and the bias that takes the scale and shift of the BatchNormalization; float64."""
    scale, shift = batchnorm.scale_and_shift(m)
    bias = beta * m.value("bias").astype(np.float64) if m.has("bias") else np.float64(0.0)
    return factors, bias * scale + shift


def not_representable(m: Match, fold: Callable[[Match], tuple[np.ndarray, np.ndarray]], beta: float = 1.0) -> str | None:
    """None when the weight and the bias stay finite in the type of the weight; else the one that does not.

    ``fold`` gives the factors of the weight, and the bias.
    """
    dtype = m.kind("weight").dtype
    if _largest_folded(m, beta) <= float(ml_dtypes.finfo(dtype).max):
        return None
    factors, bias = fold(m)
    weight = np.multiply(m.value("weight"), factors, dtype=np.float64)
    return batchnorm.not_representable(weight, dtype, "the folded weight") or batchnorm.not_representable(
        bias, dtype, "the folded bias"
    )


def _largest_folded(m: Match, beta: float) -> float:
    """No folded value is larger; NaN where one of those that go in is."""
    scale, shift = (_largest(values) for values in batchnorm.scale_and_shift(m))
    bias = abs(beta) * _largest(m.value("bias")) if m.has("bias") else 0.0
    # Twice as much covers the rounding of this bound.
    return 2 * (_largest(m.value("weight")) * scale + bias * scale + shift)


def _largest(values: np.ndarray) -> float:
    """The largest size of any of ``values``; NaN where one is."""
    with np.errstate(invalid="ignore"):
        return max(float(values.max(initial=0)), -float(values.min(initial=0)))


def not_floating(m: Match, name: str) -> str | None:
    """None when the weight of the node ``name`` is of a floating type."""
    dtype = m.kind("weight").dtype
    return None if batchnorm.is_float(dtype) else f"the weight of {describe(m.node(name))} is {dtype.name}, not a floating type"


def lacks_kernel_axes(m: Match, name: str) -> str | None:
    """None when the weight of the convolution ``name`` has two axes of channels and at least one of the kernel."""
    shape = m.kind("weight").shape
    return None if len(shape) >= 3 else f"the weight of {describe(m.node(name))} has shape {list(shape)}"


def with_weights(m: Match, name: str, factors: np.ndarray, bias: np.ndarray, **changed: float) -> NewNode:
    """The node ``name`` again with its weight times ``factors`` and another bias, both in the type of the weight.

    ``changed`` are attributes.
    """
    node, weight = m.node(name), m.value("weight")
    constants = NewConstant("weight", scaled(weight, factors)), NewConstant("bias", bias.astype(weight.dtype))
    return NewNode(node.op, (m.tensor("x"), *constants), {**node.attrs, **changed}, name=node.name, role=name)
