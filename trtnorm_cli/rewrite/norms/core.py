"""The part of a normalization that normalizes: found in elementary operators, or as one node."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from trtnorm_cli.light_dataclass import dataclass
from trtnorm_cli.onnx_model.domains import DEFAULT_DOMAINS
from trtnorm_cli.onnx_model.normalization_nodes import DEFAULT_EPSILON
from trtnorm_cli.rewrite.norms.evaluation import SymbolicEvaluation
from trtnorm_cli.rewrite.norms.formula import Formula, formula_of
from trtnorm_cli.rewrite.norms.known import Known, axes_of, counted, pooled_axes
from trtnorm_cli.rewrite.norms.operators import REDUCTIONS
from trtnorm_cli.rewrite.norms.polynomial import Polynomial

if TYPE_CHECKING:
    import onnx_graphsurgeon as gs

NATIVE = ("InstanceNormalization", "LayerNormalization", "GroupNormalization", "RMSNormalization", "MeanVarianceNormalization")
Read = dict[int, "tuple[gs.Tensor, Formula]"]
_MVN_EPSILON = 1e-9
_POOLINGS = ("GlobalAveragePool", "AveragePool")


@dataclass(frozen=True)
class Core:
    """``output`` is ``formula`` of ``data`` over ``axes``. ``nodes`` are all that computes it, in the order of execution.

    ``runtime`` names the tensors of run time that ``further``, a tensor behind ``output``, is scaled or shifted with.
    """

    data: gs.Tensor
    output: gs.Tensor
    axes: tuple[int, ...]
    formula: Formula
    nodes: tuple[gs.Node, ...]
    further: gs.Tensor | None = None
    runtime: tuple[str, ...] = ()
    native: bool = False


def cores(known: Known) -> list[Core]:
    """All cores of a model, in the order of execution; none that is a part of another."""
    found: dict[int, Core] = {}
    tried: set[tuple[int, tuple[int, ...]]] = set()
    for node in known.borders.nodes:
        for data, axes in _candidates(node, known):
            if (id(data), axes) in tried:
                continue
            tried.add((id(data), axes))
            for core in _composed(SymbolicEvaluation(known, data, axes).run()):
                _keep_larger(found, core)
    natives = [_native(node, known) for node in known.borders.nodes]
    unique = {id(core): core for core in (*found.values(), *filter(None, natives))}
    positions = known.borders.positions
    return sorted(unique.values(), key=lambda core: positions[id(core.nodes[-1])])


def _keep_larger(found: dict[int, Core], core: Core) -> None:
    """Of overlapping cores keep the one with more nodes: (x − μ) also looks like the start of a normalization of its own."""
    rivals = {id(found[id(node)]): found[id(node)] for node in core.nodes if id(node) in found}
    if any(len(rival.nodes) >= len(core.nodes) for rival in rivals.values()):
        return
    for rival in rivals.values():
        for node in rival.nodes:
            found.pop(id(node), None)
    found.update((id(node), core) for node in core.nodes)


def _candidates(node: gs.Node, known: Known) -> Iterator[tuple[gs.Tensor, tuple[int, ...]]]:
    """The tensors that a reduction may be a statistic of: its input, or the one that is squared there."""
    if node.domain not in DEFAULT_DOMAINS or node.op not in (*REDUCTIONS, *_POOLINGS):
        return
    axes = axes_of(node, known) if node.op in REDUCTIONS else pooled_axes(node, known)
    if not axes:
        return
    tensor = node.inputs[0]
    yield tensor, axes
    squared = _squared(_before_casts(tensor))
    if squared is not None:
        yield squared, axes
        yield _before_casts(squared), axes


def _before_casts(tensor: gs.Tensor) -> gs.Tensor:
    while tensor.inputs and tensor.inputs[0].op in ("Cast", "Identity"):
        tensor = tensor.inputs[0].inputs[0]
    return tensor


def _squared(tensor: gs.Tensor) -> gs.Tensor | None:
    """x where ``tensor`` is x², |x|, or x·x."""
    if not tensor.inputs:
        return None
    node = tensor.inputs[0]
    if node.op in ("Pow", "Abs"):
        return node.inputs[0]
    return node.inputs[0] if node.op == "Mul" and node.inputs[0] is node.inputs[1] else None


def _composed(evaluation: SymbolicEvaluation) -> Iterator[Core]:
    """The normalizations among what was evaluated, each up to the last constant that it is scaled or shifted with."""
    read: Read = {}
    for tensor in evaluation.order:
        formula = formula_of(evaluation.values[id(tensor)].polynomial)
        if formula is not None and evaluation.is_data_shaped(tensor):
            read[id(tensor)] = (tensor, formula)
    ends: set[int] = set()
    for tensor, formula in read.values():
        nodes = _between(evaluation, tensor)
        # What goes on from a normalization that was found already is what is done with it.
        if any(id(made) in ends for node in nodes for made in node.outputs):
            continue
        core = _starting_at(tensor, formula, read, evaluation)
        ends |= {id(tensor), id(core.output)}
        yield core


def _starting_at(first: gs.Tensor, formula: Formula, read: Read, evaluation: SymbolicEvaluation) -> Core:
    output, whole = _along(first, formula, read, evaluation, constant=True)
    further, last = _along(output, whole, read, evaluation, constant=False)
    runtime = _runtime(last, evaluation)
    whole = evaluation.named_formula(whole)
    return Core(
        data=evaluation.data,
        output=output,
        axes=evaluation.axes,
        formula=whole,
        nodes=_between(evaluation, output),
        further=further if runtime else None,
        runtime=runtime,
    )


def _along(
    tensor: gs.Tensor, formula: Formula, read: Read, evaluation: SymbolicEvaluation, constant: bool
) -> tuple[gs.Tensor, Formula]:
    """Follow scales and shifts as long as nobody else uses what is between. With ``constant``, those of constants only."""
    while len(tensor.outputs) == 1 and not evaluation.known.borders.leaves(tensor):
        following = tensor.outputs[0].outputs[0]
        if id(following) not in read:
            break
        after = read[id(following)][1]
        fresh = set(_runtime(after, evaluation)) - set(_runtime(formula, evaluation))
        if (constant and fresh) or (
            not constant and any(_is_full(evaluation, name) for name in fresh - _scales(after, evaluation))
        ):
            break
        tensor, formula = read[id(following)]
    return tensor, formula


def _scales(formula: Formula, evaluation: SymbolicEvaluation) -> set[str]:
    return {evaluation.names[number] for number, _ in formula.scale}


def _is_full(evaluation: SymbolicEvaluation, name: str) -> bool:
    """True where a tensor has the shape of the data."""
    return evaluation.known.types[name].shape == evaluation.shape


def _runtime(formula: Formula, evaluation: SymbolicEvaluation) -> tuple[str, ...]:
    """The tensors of run time that a formula has."""
    parts = ([number for number, _ in formula.scale], formula.shift_tensors)
    names = [name for part in parts for name in sorted(evaluation.names[number] for number in part)]
    return tuple(dict.fromkeys(name for name in names if name in evaluation.known.types))


def _between(evaluation: SymbolicEvaluation, output: gs.Tensor) -> tuple[gs.Node, ...]:
    """The nodes that make ``output`` from the data."""
    nodes: dict[int, gs.Node] = {}
    waiting = [output]
    while waiting:
        tensor = waiting.pop()
        if tensor is evaluation.data or id(tensor) not in evaluation.values:
            continue
        node = tensor.inputs[0]
        if id(node) not in nodes:
            nodes[id(node)] = node
            waiting += node.inputs
    return tuple(sorted(nodes.values(), key=lambda node: evaluation.known.borders.positions[id(node)]))


def _native(node: gs.Node, known: Known) -> Core | None:
    """A node that normalizes, as a core."""
    if node.op not in NATIVE or node.domain not in DEFAULT_DOMAINS:
        return None
    shape = known.shape(node.inputs[0])
    axes = None if shape is None else _native_axes(node, len(shape))
    if axes is None:
        return None
    centred = node.op != "RMSNormalization"
    # MeanVarianceNormalization adds its epsilon to the root.
    outside = _MVN_EPSILON if node.op == "MeanVarianceNormalization" else 0.0
    epsilon = 0.0 if outside else float(node.attrs.get("epsilon", DEFAULT_EPSILON))
    scale = tuple((tensor.name, 1.0) for tensor in node.inputs[1:2])
    spread = "variance" if centred else "square"
    formula = Formula(centred, spread, 1.0, epsilon, 1.0, scale, Polynomial(), outside=outside)
    return Core(node.inputs[0], node.outputs[0], axes, formula, (node,), native=True)


def _native_axes(node: gs.Node, rank: int) -> tuple[int, ...] | None:
    """The axes over which a node normalizes; None for groups, which are none."""
    if node.op == "InstanceNormalization":
        return tuple(range(2, rank)) or None
    if node.op == "MeanVarianceNormalization":
        return counted(node.attrs.get("axes", [0, 2, 3]), rank)
    if node.op in ("LayerNormalization", "RMSNormalization"):
        first = counted([node.attrs.get("axis", -1)], rank)
        return None if first is None else tuple(range(first[0], rank))
    return None
