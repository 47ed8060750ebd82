"""Merge a convolution with a convolution, or with a BatchNormalization, of the same tensor when they are added or subtracted.

    (W·x + b) ± (V·x + c) = (W ± V)·x + (b ± c)      (W·x + b) ± (s·x + t) = (W ± diag(s))·x + (b ± t)

V is put where its kernel elements read what those of W read, so W has to cover them; a scale and shift is a kernel of one
element. Zero padding changes nothing: both read the same zeros. Computed in float64, stored in the type of W.
Source: Ding et al. 2021, "RepVGG: Making VGG-style ConvNets Great Again", §3.3; Ioffe & Szegedy 2015.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from trtnorm_cli.light_dataclass import dataclass
from trtnorm_cli.onnx_model.domains import DEFAULT_DOMAINS
from trtnorm_cli.rewrite.pattern import Var, describe, op
from trtnorm_cli.rewrite.rule import Extent, Match, NewConstant, NewNode, Rule
from trtnorm_cli.rewrite.scale_shift.affine import CannotMove
from trtnorm_cli.rewrite.scale_shift.chain import is_link, links_before
from trtnorm_cli.rewrite.scale_shift.operation import Operation
from trtnorm_cli.rewrite.scale_shift.weights import float_weight, require_representable
from trtnorm_cli.rewrite.scale_shift.window import Window, one_element, window_of

if TYPE_CHECKING:
    from trtnorm_cli.onnx_model.surgery import Surgery
    from trtnorm_cli.rewrite.rule import Node, Tensor


@dataclass(frozen=True)
class Convolution:
    """A Conv with constant weights."""

    operation: Operation
    weight: np.ndarray
    bias: np.ndarray | None
    window: Window

    @property
    def groups(self) -> int:
        return int(self.operation.attr("group", 1))

    @property
    def data(self) -> Tensor:
        return self.operation.node.inputs[0]


@dataclass(frozen=True)
class Merge:
    """``main`` takes the other branch: its weight as it falls on the main kernel, and its bias. One may be subtracted."""

    main: Convolution
    weight: np.ndarray
    bias: np.ndarray | None
    main_sign: float
    sign: float

    def merged_weight(self) -> np.ndarray:
        return self.main_sign * self.main.weight.astype(np.float64) + self.sign * self.weight

    def merged_bias(self) -> np.ndarray | None:
        """[C_out] in float64, or None when neither branch has one."""
        given = [(self.main_sign, self.main.bias), (self.sign, self.bias)]
        parts = [sign * bias.astype(np.float64) for sign, bias in given if bias is not None]
        return np.asarray(sum(parts)) if parts else None


def concerns(node: Node, surgery: Surgery) -> bool:
    """One operand comes from a convolution, the other from a convolution or a scale and shift of the same tensor."""
    feeders = [tensor.inputs[0] for tensor in node.inputs if tensor.inputs]
    if len(node.inputs) != 2 or len(feeders) != 2 or not any(_is_convolution(f, surgery) for f in feeders):
        return False
    return all(_is_convolution(f, surgery) or is_link(f, surgery) for f in feeders)


def _is_convolution(node: Node, surgery: Surgery) -> bool:
    return node.op == "Conv" and node.domain in DEFAULT_DOMAINS and surgery.is_constant(node.inputs[1])


def both_operands_are_used_here_alone(m: Match) -> str | None:
    """both operands are used by this addition or subtraction alone."""
    for tensor in m.site.inputs:
        if len(tensor.outputs) != 1 or m.borders.leaves(tensor):
            return f"{tensor.name} is also used elsewhere"
    return None


def extent(m: Match) -> Extent | str | None:
    """both read one tensor, and the kernel of one convolution covers the other branch."""
    first, second = (tensor.inputs[0] for tensor in m.site.inputs)
    if not _is_convolution(first, m.surgery):
        first, second = second, first
    try:
        if _is_convolution(second, m.surgery):
            return _with_convolution(m, _convolution(m, first), _convolution(m, second))
        return _with_scale_shift(m, _convolution(m, first), second)
    except CannotMove as reason:
        return str(reason)


def _convolution(m: Match, node: Node) -> Convolution:
    operation = Operation(node, m)
    weight, bias = float_weight(operation, 1), operation.constant(2)
    if bias is not None and bias.shape != weight.shape[:1]:
        raise CannotMove(f"the bias of {operation.name} has shape {list(bias.shape)}")
    return Convolution(operation, weight, bias, window_of(operation, tuple(int(size) for size in weight.shape[2:])))


def _with_convolution(m: Match, one: Convolution, other: Convolution) -> Extent | None:
    if one.data is not other.data:
        return None
    for main, side in ((one, other), (other, one)):
        places = main.window.places_of(side.window)
        alike = main.groups == side.groups and main.weight.shape[:2] == side.weight.shape[:2]
        if places is not None and alike and main.weight.dtype == side.weight.dtype:
            weight = np.zeros(main.weight.shape)
            covered: Any = (slice(None), slice(None), *np.ix_(*places))
            weight[covered] = side.weight.astype(np.float64)
            return _extent(m, Merge(main, weight, side.bias, *_signs(m, main)), (side.operation.node,))
    raise CannotMove(f"the kernels of {one.operation.name} and {other.operation.name} do not cover each other")


def _with_scale_shift(m: Match, main: Convolution, last: Node) -> Extent | None:
    links, data, meaning = links_before(m, last)
    if data is not main.data:
        return None
    scale, shift = meaning.vector(1, main.weight.shape[0], main.operation.name)
    weight = _diagonal(main, scale)
    return _extent(m, Merge(main, weight, shift if meaning.shifts else None, *_signs(m, main)), links)


def _signs(m: Match, main: Convolution) -> tuple[float, float]:
    """The signs of ``main`` and of the other branch."""
    if m.site.op != "Sub":
        return 1.0, 1.0
    return (1.0, -1.0) if m.site.inputs[0].inputs[0] is main.operation.node else (-1.0, 1.0)


def _diagonal(main: Convolution, scale: np.ndarray) -> np.ndarray:
    """The weight of a scale per channel as it falls on the kernel of ``main``."""
    name, shape = main.operation.name, main.weight.shape
    if shape[1] * main.groups != shape[0]:
        raise CannotMove(f"{name} has {shape[1] * main.groups} input and {shape[0]} output channels")
    places = main.window.places_of(one_element(len(shape) - 2))
    if places is None:
        raise CannotMove(f"no element of the kernel of {name} reads the element that it writes")
    weight = np.zeros(shape)
    outputs = np.arange(shape[0])
    centre = (outputs, outputs % shape[1], *(place[0] for place in places))
    weight[centre] = scale
    return weight


def _extent(m: Match, merge: Merge, others: tuple[Node, ...]) -> Extent:
    operation, dtype, bias = merge.main.operation, merge.main.weight.dtype, merge.merged_bias()
    require_representable(operation, merge.merged_weight(), dtype, "the merged weight")
    if bias is not None:
        require_representable(operation, bias, dtype, "the merged bias")
    nodes = [m.site, operation.node, *others]
    if not all(m.borders.are_together(node, m.site) for node in nodes):
        raise CannotMove(f"{describe(operation.node)} belongs to an outer graph")
    ordered = sorted(nodes, key=lambda node: m.borders.positions[id(node)], reverse=True)
    return Extent(m.site, tuple(ordered), (), merge)


def merged(m: Match) -> NewNode:
    assert m.extent is not None, "the rule has an extent"
    merge: Merge = m.extent.plan
    conv, dtype, bias = merge.main.operation.node, merge.main.weight.dtype, merge.merged_bias()
    weight = NewConstant("weight", merge.merged_weight().astype(dtype))
    tail = () if bias is None else (NewConstant("bias", bias.astype(dtype)),)
    return NewNode("Conv", (conv.inputs[0], weight, *tail), dict(conv.attrs), "conv", conv.name)


RULE = Rule(
    name="merge-parallel-convolutions",
    pattern=op(("Add", "Sub", "Sum"), Var("a"), Var("b"), name="sum"),
    preconditions=(both_operands_are_used_here_alone,),
    concerns=concerns,
    extent=extent,
    replacement=merged,
    optional=lambda m: True,
    because="both branches are linear in one tensor, so their weights add up",
)
