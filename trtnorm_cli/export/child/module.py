"""Prepare the user's module for the export. Load weights, put accidents right, and move it to the CPU."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from torch.export import ExportedProgram

from trtnorm_cli.errors import UsageProblem
from trtnorm_cli.export.child.norms.accidents import examine, put_right
from trtnorm_cli.export.child.norms.accidents.accident import Accident
from trtnorm_cli.export.child.norms.accidents.program import check_program, examine_program, program_rows
from trtnorm_cli.export.child.norms.norm_table import norm_rows
from trtnorm_cli.export.child.source import Source
from trtnorm_cli.export.child.weights import load_weights
from trtnorm_cli.export.options import ExportOptions
from trtnorm_cli.light_dataclass import dataclass
from trtnorm_cli.records.export import AccidentRecord, LoadedWeights, NormModule


@dataclass(frozen=True)
class Prepared:
    """A module ready to be exported, and what the manifest tells about it.

    ``needs_torchscript`` says why dynamo would be wrong. It is empty where it would not.
    """

    source: Source
    accidents: tuple[AccidentRecord, ...] = ()
    normalizations: tuple[NormModule, ...] = ()
    weights: LoadedWeights | None = None
    needs_torchscript: str = ""
    notes: tuple[str, ...] = ()


def prepared_source(source: Source, options: ExportOptions) -> Prepared:
    """Load the weights, put right what can be put right, and move the module to the CPU.

    Raises ``RewriteError`` for accidents that are refused, and what ``load_weights`` raises.
    """
    weights = _loaded_weights(source, options)
    if source.program is not None:
        return _of_program(source, source.program, check_program(source.program, options.accepted))
    right = put_right(source.module, source.args, source.kwargs, keep_training=options.keep_training, accepted=options.accepted)
    module = right.module.requires_grad_(False)
    devices = sorted({tensor.device.type for tensor in (*module.parameters(), *module.buffers())} - {"cpu"})
    notes = (f"the model was moved from {', '.join(devices)} to the CPU",) if devices else ()
    module = module.cpu() if devices else module
    return Prepared(
        replace(source, module=module),
        tuple(right.accidents),
        tuple(norm_rows(module)),
        weights,
        _TRAINING if right.batch_statistics_in_training else "",
        notes,
    )


def inspected_source(source: Source, options: ExportOptions) -> Prepared:
    """The normalizations as the callable left them, and everything that an export would put right, doubt or refuse."""
    weights = _loaded_weights(source, options)
    if source.program is not None:
        return _of_program(source, source.program, examine_program(source.program))
    rows = norm_rows(source.module)
    right = examine(source.module, source.args, source.kwargs)
    if any(accident.kind == "lazy-module" for accident in right.accidents):
        rows = norm_rows(right.module)  # their sizes are known only now
    return Prepared(source, tuple(right.accidents), tuple(rows), weights)


def _loaded_weights(source: Source, options: ExportOptions) -> LoadedWeights | None:
    if options.weights is None:
        return None
    if source.program is not None:
        raise UsageProblem("an exported program has its weights inside", str(options.weights), "leave out --weights")
    return load_weights(source.module, options.weights, options.strict)


def _of_program(source: Source, program: ExportedProgram, accidents: Iterable[Accident]) -> Prepared:
    return Prepared(source, tuple(accidents), tuple(program_rows(program)))


_TRAINING = "dynamo would write a BatchNorm in training mode with its running statistics"
