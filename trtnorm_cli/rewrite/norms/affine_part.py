"""Scales and shifts behind a normalization, in whatever order and shape they are written."""

from __future__ import annotations

from typing import TYPE_CHECKING

from trtnorm_cli.light_dataclass import dataclass
from trtnorm_cli.rewrite.norms.evaluation import SymbolicEvaluation
from trtnorm_cli.rewrite.norms.known import Known
from trtnorm_cli.rewrite.norms.polynomial import DATA, Monomial, Parameter, Polynomial

if TYPE_CHECKING:
    import onnx_graphsurgeon as gs


@dataclass(frozen=True)
class AffinePart:
    """``output`` is ``scale · x + shift``; both are polynomials of constants. ``nodes`` make it, in the order of execution.

    ``runtime`` names the run-time tensors in the next scale or shift behind it.
    """

    output: gs.Tensor
    scale: Polynomial
    shift: Polynomial
    nodes: tuple[gs.Node, ...]
    runtime: tuple[str, ...] = ()


def affine_behind(tensor: gs.Tensor, known: Known) -> AffinePart | None:
    """The constants that scale and shift ``tensor``, as long as nobody else uses what is between; None without any."""
    if not tensor.outputs:
        return None
    evaluation = SymbolicEvaluation(known, tensor, ()).run()
    part = AffinePart(tensor, Polynomial.constant(1.0), Polynomial(), ())
    current = tensor
    while len(current.outputs) == 1 and not known.borders.leaves(current):
        node = current.outputs[0]
        value = evaluation.value(node.outputs[0]) if node.outputs else None
        read = None if value is None else split(value.polynomial)
        if read is None:
            break
        current, read = node.outputs[0], (evaluation.named(read[0]), evaluation.named(read[1]))
        runtime = _runtime(read, known)
        if runtime:
            return AffinePart(part.output, part.scale, part.shift, part.nodes, _affine_names(read, evaluation, known))
        part = AffinePart(current, *read, (*part.nodes, node))
    return part if part.nodes else None


def split(polynomial: Polynomial) -> tuple[Polynomial, Polynomial] | None:
    """Scale and shift of a polynomial that is linear in the data; None for others."""
    scale: dict[Monomial, float] = {}
    shift: dict[Monomial, float] = {}
    for monomial, value in polynomial:
        exponents = dict(monomial)
        degree = exponents.pop(DATA, 0.0)
        if degree not in (0.0, 1.0) or not all(isinstance(atom, Parameter) for atom in exponents):
            return None
        (scale if degree else shift)[frozenset(exponents.items())] = value
    return (Polynomial.of(scale), Polynomial.of(shift)) if scale else None


def _runtime(parts: tuple[Polynomial, Polynomial], known: Known) -> tuple[str, ...]:
    names = [atom.tensor for part in parts for atom in part.atoms() if isinstance(atom, Parameter)]
    return tuple(sorted({name for name in names if name in known.types}))


def _affine_names(parts: tuple[Polynomial, Polynomial], evaluation: SymbolicEvaluation, known: Known) -> tuple[str, ...]:
    """Run-time tensors that act as scale or bias. A shift as large as the data is a residual connection, and is left out."""
    scales = _runtime((parts[0], Polynomial()), known)
    shifts = [name for name in _runtime((Polynomial(), parts[1]), known) if known.types[name].shape != evaluation.shape]
    return tuple(dict.fromkeys((*scales, *shifts)))
