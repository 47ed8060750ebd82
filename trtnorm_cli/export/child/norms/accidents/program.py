"""Accidents of a saved exported program. Nothing in it can be put right, so it is refused or warned of."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import replace

import torch

from trtnorm_cli.export.child.norms.accidents import CHECKS, accepting, require_none_refused
from trtnorm_cli.export.child.norms.accidents.accident import Accident
from trtnorm_cli.export.child.norms.norm_modules import norms
from trtnorm_cli.export.child.norms.norm_table import norm_rows
from trtnorm_cli.export.child.norms.program_norms import ProgramNorms
from trtnorm_cli.records.export import NormModule

_AGAIN = "call eval() on the model before torch.export.export, and save the program again"


def check_program(program: torch.export.ExportedProgram, accepted: Collection[str] = ()) -> tuple[Accident, ...]:
    """The accidents in ``program``. Raises ``RewriteError`` with every refusal that is not among the ``accepted`` kinds."""
    found = examine_program(program, accepted)
    require_none_refused(found)
    return found


def examine_program(program: torch.export.ExportedProgram, accepted: Collection[str] = ()) -> tuple[Accident, ...]:
    """The accidents that ``check_program`` finds, with those that it would refuse."""
    held = ProgramNorms(program)
    found = [*_in_training(held), *_active_dropout(program)]
    for check in CHECKS:
        found += check(held)
    return tuple(accepting(found, accepted))


def program_rows(program: torch.export.ExportedProgram) -> list[NormModule]:
    """One row for each normalization that the program calls, functions included."""
    held = ProgramNorms(program)
    return [replace(row, type=held.types.get(row.path, row.type)) for row in norm_rows(held)]


def _in_training(held: ProgramNorms) -> Iterator[Accident]:
    message = "the program was exported in training mode: it normalizes with the data's own mean and variance"
    for norm in norms(held):
        if norm.module.training:
            yield Accident("stays-in-training", norm.path, message, "refused", _AGAIN)


def _active_dropout(program: torch.export.ExportedProgram) -> Iterator[Accident]:
    for node in program.graph.nodes:
        if str(node.target) == "aten.dropout.default" and len(node.args) > 2 and node.args[2] and node.args[1]:
            path = list((node.meta.get("nn_module_stack") or {"": ("", "")}).values())[-1][0]
            message = f"the program was exported in training mode: it drops {float(node.args[1]):.0%} of its values at random"
            yield Accident("dropout-active", str(path), message, "refused", _AGAIN)
