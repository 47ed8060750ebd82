"""Compositions as a rule sees them: at the node that makes their output."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

import numpy as np
import onnx

from trtnorm_cli.onnx_model.normalization_nodes import DEFAULT_EPSILON
from trtnorm_cli.rewrite.borders import reads_shape_only
from trtnorm_cli.rewrite.norms.composition import Composition, compositions
from trtnorm_cli.rewrite.norms.core import Core
from trtnorm_cli.rewrite.norms.formula import Formula
from trtnorm_cli.rewrite.norms.known import Shape
from trtnorm_cli.rewrite.norms.polynomial import Parameter, Polynomial
from trtnorm_cli.rewrite.pattern import Var, describe, op, optional
from trtnorm_cli.rewrite.rule import Cache, Extent, Match, NewNode, NewTensors, Replacement

if TYPE_CHECKING:
    from trtnorm_cli.rewrite.rule import Tensor

# What the last node of a normalization written in pieces can be.
LAST_NODE = op(
    ("Add", "Sub", "Mul", "Div", "Sum", "Identity", "Cast", "Reshape", "Transpose"), Var("a"), optional(Var("b")), name="last"
)
_COMPOSITIONS = "compositions"
TAKEN_TYPES = (onnx.TensorProto.FLOAT, onnx.TensorProto.FLOAT16, onnx.TensorProto.BFLOAT16)


def composition_at(m: Match) -> Composition | None:
    """The normalization in pieces whose output the site of ``m`` makes.

    They are looked for once for each state of the graph.
    """
    if _COMPOSITIONS not in m.cache.of_graph:
        remember(compositions(m.surgery, m.types, m.borders), m.cache)
    composition: Composition | None = m.cache.of_graph[_COMPOSITIONS].get(id(m.site.outputs[0]))
    return composition


def remember(every: Iterable[Composition], cache: Cache) -> None:
    """Let rules find ``every``, all normalizations in pieces of a graph, in ``cache``, until the graph changes."""
    cache.of_graph[_COMPOSITIONS] = {id(composition.output): composition for composition in every}


def composition_of_node(m: Match, kind: str, groups: int) -> Composition:
    """The node at the site of ``m``, which normalizes ``groups`` blocks of each sample, as if it were written in pieces."""
    node, kinds = m.site, m.type_of(m.site.inputs[0])
    assert kinds is not None, "type and rank are known"
    epsilon = float(node.attrs.get("epsilon", DEFAULT_EPSILON))
    formula = Formula(True, "variance", 1.0, epsilon, 1.0, (), Polynomial())
    core = Core(node.inputs[0], node.outputs[0], (), formula, (node,), native=True)
    data, output, dtype = node.inputs[0], node.outputs[0], kinds.dtype
    return Composition(kind, data, output, (), groups, (node,), core, None, None, kinds.shape, dtype, dtype)


def extent_of(m: Match, composition: Composition, plan: object) -> Extent | str:
    """All nodes of ``composition``, to be replaced by what makes its output; or why that cannot be."""
    for tensor in shapes_read_elsewhere(composition):
        if not _has_shape_of_data(m, composition, tensor):
            return f"the shape of {tensor.name} is used elsewhere"
    return Extent(m.site, tuple(reversed(composition.nodes)), (), plan)


def shapes_read_elsewhere(composition: Composition) -> list[Tensor]:
    """The inner tensors whose shapes other nodes ask for."""
    inside = {id(node) for node in composition.nodes}
    inner = [tensor for node in composition.nodes for tensor in node.outputs if tensor is not composition.output]
    return [t for t in inner if any(id(r) not in inside and reads_shape_only(r) for r in t.outputs)]


def _has_shape_of_data(m: Match, composition: Composition, tensor: Tensor) -> bool:
    kind = m.type_of(tensor)
    return kind is not None and kind.shape is not None and kind.shape == composition.shape and None not in kind.shape


def in_place_of(m: Match, composition: Composition, node: NewNode) -> Replacement:
    """``node`` as what makes the output; who asks for the shape of an inner tensor gets that of the data."""
    elsewhere = shapes_read_elsewhere(composition)
    if not elsewhere:
        return node
    return NewTensors(((m.output, node),), {tensor.name: composition.data for tensor in elsewhere})


def runtime_parameters(m: Match, composition: Composition) -> list[str]:
    """The tensors with which the result is scaled or shifted and whose values do not stand in the file."""
    polynomials = [*_core_part(composition)]
    if composition.affine is not None:
        polynomials += [composition.affine.scale, composition.affine.shift]
    names = {atom.tensor for polynomial in polynomials for atom in polynomial.atoms() if isinstance(atom, Parameter)}
    if composition.core.native:
        names |= {tensor.name for tensor in composition.core.nodes[0].inputs[1:3] if tensor.name}
    return sorted(name for name in names if constant_named(m, composition, name) is None)


def constant_named(m: Match, composition: Composition, name: str) -> np.ndarray | None:
    """The value of the constant ``name`` that a node of ``composition`` reads."""
    for node in composition.nodes:
        for tensor in node.inputs:
            if tensor.name == name:
                return m.surgery.constant(tensor)
    return None


def _core_part(composition: Composition) -> tuple[Polynomial, Polynomial]:
    """The scale and shift of the core. Parameters of a node are not in it."""
    formula = composition.formula
    if composition.core.native:
        return Polynomial.constant(1.0), Polynomial()
    scale = Polynomial.of({frozenset((Parameter(name), exponent) for name, exponent in formula.scale): formula.factor})
    return scale, formula.shift


def inner_parameters(m: Match, composition: Composition) -> tuple[np.ndarray, np.ndarray]:
    """Scale and shift of the core, constants, in float64, as they broadcast to the core's data.

    Parameters of a node count only where they are along the channels.
    """
    if composition.core.native and _parameters_are_channels(composition):
        along = (-1, *[1] * (len(_inner_shape(m, composition)) - 2))
        values = [m.surgery.constant(tensor) for tensor in composition.core.nodes[0].inputs[1:3]]
        scale, shift = (value.astype(np.float64).reshape(along) for value in values if value is not None)
        return scale, shift
    scale, shift = (value_of(m, composition, part) for part in _core_part(composition))
    return scale, shift


def _parameters_are_channels(composition: Composition) -> bool:
    node, shape = composition.core.nodes[0], composition.shape or (None, None)
    if node.op == "GroupNormalization":
        return composition.view is None
    return node.op == "InstanceNormalization" and (composition.groups is None or composition.groups == shape[1])


def parameters_of_node(m: Match, composition: Composition) -> str | None:
    """Why the parameters of the node that normalizes cannot be left out; None when they are one and zero."""
    node = composition.core.nodes[0]
    for tensor, neutral in zip(node.inputs[1:3], (1, 0), strict=False):
        value = m.surgery.constant(tensor) if tensor.name else None
        if tensor.name and (value is None or (value != neutral).any()):
            return f"{tensor.name}, a parameter of {describe(node)}, is not {neutral} everywhere"
    return None


def scale_and_shift(m: Match, composition: Composition) -> tuple[np.ndarray, np.ndarray] | None:
    """The factor and the summand of the normalized data, in float64, as they broadcast to the data.

    None where it cannot be told how what is done to reshaped data comes to the data.
    """
    scale, shift = inner_parameters(m, composition)
    if composition.view is not None:
        shapes = _inner_shape(m, composition), composition.shape or ()
        moved = [composition.view.on_source(values, *shapes) for values in (scale, shift)]
        if moved[0] is None or moved[1] is None:
            return None
        scale, shift = moved[0], moved[1]
    if composition.affine is not None:
        factor = value_of(m, composition, composition.affine.scale)
        scale, shift = scale * factor, shift * factor + value_of(m, composition, composition.affine.shift)
    return np.asarray(scale), np.asarray(shift)


def _inner_shape(m: Match, composition: Composition) -> Shape:
    """The shape of what the core normalizes."""
    kind = m.type_of(composition.core.data)
    return (composition.shape if kind is None else kind.shape) or ()


def value_of(m: Match, composition: Composition, polynomial: Polynomial) -> np.ndarray:
    """The value of a polynomial of constants in float64, with the broadcast shape of those."""
    total = np.zeros(())
    for monomial, coefficient in sorted(polynomial.terms, key=repr):
        product = np.asarray(coefficient)
        for atom, exponent in monomial:
            assert isinstance(atom, Parameter), "scale and shift are made of parameters"
            value = constant_named(m, composition, atom.tensor)
            assert value is not None, "parameters of run time were refused"
            product = product * value.astype(np.float64) ** exponent
        total = total + product
    return np.asarray(total)


def along_axis(values: np.ndarray, axis: int, rank: int) -> np.ndarray | None:
    """The vector of values along ``axis`` of data of ``rank``, of length one where all are the same; None where others vary."""
    shape: tuple[int, ...] = (1,) * (rank - values.ndim) + values.shape
    full = values.reshape(shape)
    if any(size != 1 for other, size in enumerate(shape) if other != axis):
        return None
    return full.reshape(-1)


def dtype_of(m: Match, tensor: Tensor) -> int:
    """The element type of a tensor, 0 when it is not known."""
    kind = m.type_of(tensor)
    return 0 if kind is None else kind.dtype
