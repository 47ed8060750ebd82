"""``trtnorm compare`` of a model with itself in another precision."""

from __future__ import annotations

from dataclasses import replace

from trtnorm_cli.compare.participants import NetworkParticipant, loaded_network
from trtnorm_cli.compare.result import Comparison
from trtnorm_cli.compare.session import compare_lowered, with_tolerances
from trtnorm_cli.compare.settings import Settings
from trtnorm_cli.lowering.lower import Means, lowered, written
from trtnorm_cli.onnx_model.load import LoadedModel
from trtnorm_cli.precision.session import typed_session
from trtnorm_cli.profile.precision import PrecisionSettings
from trtnorm_cli.progress import stage
from trtnorm_cli.rewrite.prepare import OpenedModel, prepare
from trtnorm_cli.scratch import Scratch
from trtnorm_cli.side_work import Later
from trtnorm_cli.target import Target


def run_precision_session(named: Target, opened: OpenedModel, precision: PrecisionSettings, settings: Settings) -> Comparison:
    """Compare a model with its rewriting, and TensorRT's network with the rewriting in ``precision``.

    A PyTorch model, as ``named``, stands in ``opened`` as it was exported, and its export was compared with it then. The result
    holds the record of the conversion: which nodes stay float32, why, and the errors of each output. Raises as ``lowered``
    does.
    """
    prepared = prepare(opened, settings.snap)
    with Scratch("trtnorm-compare-") as scratch:
        memory_bytes = settings.options.memory_bytes

        def parsed(model: LoadedModel) -> NetworkParticipant:
            return loaded_network(model, scratch, settings.backend, memory_bytes=memory_bytes)

        with stage("rewrite"):
            rewriting = typed_session(prepared).rewrite()
        rewriting.require_all_checks_passed()
        with stage("precision"):
            made = lowered(prepared, rewriting, precision, Means(scratch, settings.seed, memory_bytes, parsed))
        settings = replace(settings, options=with_tolerances(settings, prepared.profile))
        typed = written(made.rewriting, scratch / "lowered.onnx")
        network, most = Later(made.known_network), made.record.max_error
        comparison = compare_lowered(prepared, rewriting, made.wide, typed, network, scratch, settings, most)
    comparison.precision = made.record
    if named.is_pytorch:
        comparison.reference = f"export of {named.text}"
    return comparison
