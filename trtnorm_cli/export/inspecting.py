"""``trtnorm inspect`` of a PyTorch model, with its normalization modules and their faults."""

from __future__ import annotations

from pathlib import Path

from trtnorm_cli.export.export_model import work_folder
from trtnorm_cli.export.launch import launch
from trtnorm_cli.export.options import ExportOptions
from trtnorm_cli.export.request import InspectRequest
from trtnorm_cli.light_dataclass import dataclass
from trtnorm_cli.node_names import EVERY_NODE, NodePatterns
from trtnorm_cli.record import Record
from trtnorm_cli.records.export import AccidentRecord, LoadedWeights, NormModule
from trtnorm_cli.target import Target, require_torch

_REMARKS = {
    "program": "every call of a normalization is listed; one that is written out in other operators is not",
    "module": "functional calls such as torch.nn.functional.layer_norm are no modules and not listed",
}


@dataclass(frozen=True)
class ModuleDescription(Record):
    """The description of a PyTorch model, with the values that ``trtnorm inspect`` prints with ``--json``.

    The normalizations are as the callable left them. The accidents are what an export would put right, doubt or refuse.
    ``not_seen`` says what kind of normalization is not listed.
    """

    model: str
    normalizations: tuple[NormModule, ...]
    accidents: tuple[AccidentRecord, ...]
    weights: LoadedWeights | None
    notes: tuple[str, ...]
    not_seen: str


def inspect_module(spec: Target, weights: Path | None, wanted: NodePatterns = EVERY_NODE) -> ModuleDescription:
    """The normalization modules of the model ``spec`` with shapes, types and statistics, as the callable left them,
    and what an export would put right, doubt or refuse.

    Only modules whose path fits ``wanted``. Raises ``UsageProblem`` for a pattern that none fits.
    """
    require_torch()
    request = InspectRequest(spec, ExportOptions(weights=weights))
    with work_folder("trtnorm-inspect-") as work:
        result = launch(request, work)
    wanted.require((row.path for row in result.normalizations), spec.text)
    return ModuleDescription(
        model=spec.text,
        normalizations=tuple(row for row in result.normalizations if wanted.fits(row.path)),
        accidents=tuple(one for one in result.accidents if wanted.fits(one.module)),
        weights=result.weights,
        notes=result.notes,
        not_seen=_REMARKS.get(spec.kind, _REMARKS["module"]),
    )
