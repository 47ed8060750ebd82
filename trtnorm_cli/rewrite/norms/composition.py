"""Normalizations that a graph writes in pieces: what each is, of what, over which axes, and how it is written."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING

from trtnorm_cli.light_dataclass import dataclass
from trtnorm_cli.onnx_model.shapes import TensorType
from trtnorm_cli.rewrite.borders import Borders
from trtnorm_cli.rewrite.norms.affine_part import AffinePart, affine_behind
from trtnorm_cli.rewrite.norms.core import Core, cores
from trtnorm_cli.rewrite.norms.formula import Formula
from trtnorm_cli.rewrite.norms.kinds import kind_of, misgiving
from trtnorm_cli.rewrite.norms.known import Known, Shape
from trtnorm_cli.rewrite.norms.views import View, view_of

if TYPE_CHECKING:
    import onnx_graphsurgeon as gs

    from trtnorm_cli.onnx_model.surgery import Surgery


@dataclass(frozen=True)
class Composition:
    """One normalization written in pieces.

    ``data`` is what is normalized, over ``axes`` of it or in ``groups`` blocks of each sample, to ``output``. ``nodes`` are all
    that is between, in the order of execution; ``core`` the part that normalizes, ``view`` how the data are reshaped or
    transposed around it, and ``affine`` what scales and shifts behind a view. ``runtime`` names tensors of run time that the
    result is scaled or shifted with (adaptive normalization). ``misgiving`` says why it is no such normalization after all, or
    is empty.
    """

    kind: str
    data: gs.Tensor
    output: gs.Tensor
    axes: tuple[int, ...]
    groups: int | None
    nodes: tuple[gs.Node, ...]
    core: Core
    view: View | None
    affine: AffinePart | None
    shape: Shape | None
    dtype: int
    computed_in: int
    runtime: tuple[str, ...] = ()
    misgiving: str = ""

    @property
    def formula(self) -> Formula:
        return self.core.formula

    @property
    def epsilon(self) -> float:
        return self.formula.epsilon

    @property
    def spelled(self) -> str:
        """The operators, in the order of execution."""
        return " ".join(node.op for node in self.nodes)


def compositions(surgery: Surgery, types: Mapping[str, TensorType], borders: Borders | None = None) -> list[Composition]:
    """Every normalization of the model that is more than one node, in the order of execution. Reads only."""
    known = Known(surgery, types, borders or Borders(surgery.graphs()))
    found = [_composition(core, known) for core in cores(known)]
    return [composition for composition in found if composition is not None]


def _composition(core: Core, known: Known) -> Composition | None:
    view = view_of(core, known)
    if core.native and view is None:
        return None
    if view is None:
        source, output, axes, groups, affine = core.data, core.output, core.axes, None, None
        nodes, runtime = core.nodes, core.runtime
    else:
        affine = affine_behind(view.output, known)
        source, axes, groups = view.source, view.axes, view.groups
        output = view.output if affine is None else affine.output
        nodes = _ordered(known, (*core.nodes, *view.nodes, *(affine.nodes if affine else ())))
        runtime = () if affine is None else affine.runtime
    nodes = with_shape_arithmetic(known, nodes)
    shape = known.shape(source)
    kind = kind_of(core, view, affine, shape, known)
    return Composition(
        kind=kind,
        data=source,
        output=output,
        axes=axes,
        groups=groups,
        nodes=nodes,
        core=core,
        view=view,
        affine=affine,
        shape=shape,
        dtype=known.dtype(source),
        computed_in=_computed_in(core, known),
        runtime=runtime,
        misgiving=misgiving(core, kind, _count(core, known)),
    )


def _ordered(known: Known, nodes: tuple[gs.Node, ...]) -> tuple[gs.Node, ...]:
    unique = {id(node): node for node in nodes}
    return tuple(sorted(unique.values(), key=lambda node: known.borders.positions[id(node)]))


def with_shape_arithmetic(known: Known, nodes: tuple[gs.Node, ...]) -> tuple[gs.Node, ...]:
    """``nodes`` with those that work out shapes for them from what they make."""
    positions = known.borders.positions
    first = positions[id(nodes[0])]
    inside = {id(node): True for node in nodes}

    def depends(node: gs.Node) -> bool:
        if id(node) not in inside:
            inside[id(node)] = False
            if positions.get(id(node), -1) > first and known.borders.are_together(node, nodes[0]):
                inside[id(node)] = any(depends(producer) for tensor in node.inputs for producer in tensor.inputs)
        return inside[id(node)]

    more = {id(p): p for node in nodes for tensor in node.inputs for p in tensor.inputs if depends(p)}
    waiting = list(more.values())
    while waiting:
        for tensor in waiting.pop().inputs:
            for producer in tensor.inputs:
                if depends(producer) and id(producer) not in more:
                    more[id(producer)] = producer
                    waiting.append(producer)
    return _ordered(known, (*nodes, *more.values()))


def _count(core: Core, known: Known) -> int | None:
    """How many values are normalized together; None when that is not known."""
    shape = known.shape(core.data) or ()
    sizes = [shape[axis] for axis in core.axes]
    numbers = [size for size in sizes if isinstance(size, int)]
    return math.prod(numbers) if sizes and len(numbers) == len(sizes) else None


def _computed_in(core: Core, known: Known) -> int:
    """The element type of the reductions: float32 in an island of half-precision data. 0 when it is not known."""
    for node in core.nodes:
        if node.op.startswith("Reduce"):
            return known.dtype(node.inputs[0])
    return known.dtype(core.data)
