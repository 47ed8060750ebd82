"""Run torch.export with dynamic dimensions. Constraints are solved and retried, and what cannot be solved is explained.

``torch.onnx.export`` would apply PyTorch's suggested fixes without a word, so that a model asked for dynamic sizes comes out
static. torch.export itself does not check a guard against a multiple such as ``4*_H``. Here every guard is read and solved over
the sizes that were asked for, and the trace is made again with what remains.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
import torch.utils._pytree as pytree
from torch import nn
from torch.export import Dim

from trtnorm_cli.export.child.arguments import Call, arguments_by_parameter, leaf_names
from trtnorm_cli.export.child.examples import example_tensors
from trtnorm_cli.export.child.sizes.constraints import GuardLog, read_violations, recorded_guards
from trtnorm_cli.export.child.sizes.dimensions import Dimension, Requested
from trtnorm_cli.export.child.sizes.solver import Assumption, Solver, Unsolved
from trtnorm_cli.light_dataclass import dataclass
from trtnorm_cli.profile.model import BuildProfile
from trtnorm_cli.progress import stage

_ROUNDS = 8


@dataclass(frozen=True)
class Traced:
    """An exported program, the dimensions as they were solved, and what the trace takes for granted."""

    program: torch.export.ExportedProgram
    requested: Requested
    call: Call
    assumptions: tuple[Assumption, ...] = ()
    notes: tuple[str, ...] = ()


def trace(module: nn.Module, call: Call, wanted: Requested, profile: BuildProfile, strict: bool) -> Traced:
    """``torch.export.export`` with the dimensions of ``wanted``, solved where the module does not take all of their sizes.

    Raises ``ModelError`` when a dimension cannot be dynamic as asked, and whatever torch.export raises for other reasons.
    """
    tracing = Tracing(module, call, Solver(wanted, call), profile, strict)
    try:
        return tracing.rounds()
    except Unsolved as unsolved:
        # What could not be read may still be solved by PyTorch; its result is only taken with every dimension dynamic.
        try:
            return tracing.round(automatic=True)[0] or _fail(unsolved)
        except Unsolved:
            raise unsolved.error from None


def _fail(unsolved: Unsolved) -> Traced:
    raise unsolved


@dataclass(frozen=True)
class Tracing:
    """The attempts to trace one call of a module, with sizes that ``solver`` narrows from one to the next."""

    module: nn.Module
    call: Call
    solver: Solver
    profile: BuildProfile
    strict: bool

    def rounds(self) -> Traced:
        """The program of the first trace that its own guards allow."""
        for number in range(_ROUNDS):
            with stage("torch-export") as told:
                if number:
                    told.at(f"attempt {number + 1}, with narrower sizes")
                traced, log, text = self.round()
            if traced is not None:
                return traced
            self.solver.solve(read_violations(text), log)
        raise Unsolved(self.solver.error("its constraints were not solved in time", "", None))

    def round(self, automatic: bool = False) -> tuple[Traced | None, GuardLog, str]:
        """The program of one trace, or None when the dimensions have to be narrowed first, with what PyTorch said."""
        solver, module = self.solver, self.module
        ready = self.call.with_tensors(example_tensors(solver.wanted, self.call.tensors(), self.profile))
        with recorded_guards(module) as log:
            try:
                shapes = dynamic_shapes(module, ready, solver, automatic)
                program = torch.export.export(
                    module, ready.args, ready.kwargs or None, dynamic_shapes=shapes, strict=self.strict
                )
            except Exception as error:  # a violation arrives as UserError, ValueError or ConstraintViolationError
                if read_violations(str(error)) is None:
                    raise
                return None, log, str(error)
        solver.require_dynamic(program, log)
        if not automatic and solver.violated(log):
            return None, log, ""
        assumptions = tuple(solver.assumptions(log))
        return Traced(program, solver.wanted, ready, assumptions, tuple(solver.notes)), log, ""


def dynamic_shapes(module: nn.Module, call: Call, solver: Solver, automatic: bool) -> Any:
    """The tree of ``Dim`` that torch.export takes, over the arguments by parameter, or None without dynamic dimensions."""
    if not solver.wanted.dimensions:
        return None
    bound = arguments_by_parameter(module, call.args, call.kwargs)
    found, spec = pytree.tree_flatten_with_path(bound)
    dims = {name: _dim(solver.symbol(name), held) for name, held in solver.wanted.dimensions.items()}
    leaves = [_axes(solver.wanted, name, dims, automatic) for name in leaf_names([path for path, _ in found])]
    return pytree.tree_unflatten(leaves, spec)


def _axes(wanted: Requested, name: str, dims: Mapping[str, Any], automatic: bool) -> dict[int, Any] | None:
    if name not in wanted.inputs:
        return None
    named = {axis: dim for axis, dim in enumerate(wanted.inputs[name].shape) if isinstance(dim, str)}
    if not automatic:
        return {axis: dims[dim] for axis, dim in named.items()}
    sizes = {dim: wanted.dimensions[dim].sizes for dim in named.values()}
    return {axis: Dim.AUTO(min=sizes[dim].low, max=sizes[dim].high) for axis, dim in named.items()}


def _dim(symbol: str, dimension: Dimension) -> Any:
    sizes, m = dimension.sizes, dimension.sizes.multiple_of
    if m == 1:
        return Dim(symbol, min=sizes.low, max=sizes.high)
    return m * Dim(f"_{symbol}", min=-(-sizes.low // m), max=sizes.high // m)
