"""What is done to the user's module before it is exported: weights loaded, accidents put right, moved to the CPU."""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from trtnorm_cli.errors import UsageProblem
from trtnorm_cli.export.accidents import put_right
from trtnorm_cli.export.norm_table import norms_json
from trtnorm_cli.export.request import ExportRequest
from trtnorm_cli.export.source import Source
from trtnorm_cli.export.weights import load_weights


@dataclass(frozen=True)
class Prepared:
    """A module ready to be exported, and what the manifest tells about it.

    ``needs_torchscript`` says why dynamo would be wrong; empty where it would not.
    """

    source: Source
    accidents: tuple[dict[str, Any], ...] = ()
    normalizations: tuple[dict[str, Any], ...] = ()
    weights: dict[str, Any] | None = None
    needs_torchscript: str = ""
    notes: tuple[str, ...] = ()


def prepared_source(source: Source, request: ExportRequest) -> Prepared:
    """Load the weights, put right what can be put right, and move the module to the CPU.

    Raises ``RewriteError`` for accidents that are refused, and what ``load_weights`` raises.
    """
    if source.program is not None:
        if request.weights is not None:
            raise UsageProblem("an exported program has its weights inside", request.weights, "leave out --weights")
        return Prepared(source)
    weights = None
    if request.weights is not None:
        weights = load_weights(source.module, Path(request.weights), request.strict).as_json()
    right = put_right(source.module, source.args, source.kwargs, keep_training=request.keep_training, accepted=request.accepted)
    module = right.module.requires_grad_(False)
    devices = sorted({tensor.device.type for tensor in (*module.parameters(), *module.buffers())} - {"cpu"})
    notes = (f"the model was moved from {', '.join(devices)} to the CPU",) if devices else ()
    module = module.cpu() if devices else module
    return Prepared(
        replace(source, module=module),
        tuple(asdict(accident) for accident in right.accidents),
        tuple(norms_json(module)),
        weights,
        _TRAINING if right.batch_statistics_in_training else "",
        notes,
    )


_TRAINING = "dynamo would write a BatchNorm in training mode with its running statistics"
