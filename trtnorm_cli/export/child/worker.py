"""The child process that exports one model: ``python -m trtnorm_cli.export.child.worker FOLDER``.

It reads ``request.json``, runs the user's code and PyTorch's exporters, and writes ``result.json`` last. Whatever it prints
goes to a log. Besides the readers of weights, the only modules of trtnorm that import PyTorch run here.
"""

from __future__ import annotations

import logging
import sys
import time
import warnings
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import field, replace
from pathlib import Path
from typing import Any

from trtnorm_cli.child_process import die_with_parent
from trtnorm_cli.errors import ModelError, TrtnormError
from trtnorm_cli.export.request import (
    MODEL_FILE,
    ExportRequest,
    ExportResult,
    Failure,
    InspectRequest,
    Request,
    RunRequest,
    load_request,
)
from trtnorm_cli.light_dataclass import dataclass
from trtnorm_cli.profile.model import BuildProfile
from trtnorm_cli.progress import listening, stage, telling_parent
from trtnorm_cli.records.export import ExportedInput, LearntDimension


def main(arguments: list[str]) -> int:
    die_with_parent()
    folder = Path(arguments[0])
    request = load_request(folder)
    telling = listening(telling_parent(int(arguments[1]))) if len(arguments) > 1 else nullcontext()
    try:
        # PyTorch's exporters name operators that they skip and modules that they deprecate; none of it is the user's concern.
        warnings.simplefilter("ignore")
        logging.getLogger("torch.onnx").setLevel(logging.ERROR)
        with telling:
            result = answer(request, folder)
    except TrtnormError as error:
        result = ExportResult(Failure(type(error).__name__, error.summary, error.where, error.hint))
    result.save(folder)
    return 0 if result.failure is None else 1


@dataclass
class Clock:
    """Times the steps of an export."""

    seconds: dict[str, float] = field(default_factory=dict)

    def timed(self, name: str, step: Callable[[], Any]) -> Any:
        start = time.perf_counter()
        result = step()
        self.seconds[name] = round(time.perf_counter() - start, 3)
        return result


def answer(request: Request, folder: Path) -> ExportResult:
    """Load the model, and do what is asked with it."""
    with stage("import-torch"):
        import torch

        from trtnorm_cli.export.child.module import inspected_source, prepared_source
        from trtnorm_cli.export.child.source import load_source

    torch.manual_seed(request.options.seed)
    clock = Clock()
    with stage("load-module"):
        source = clock.timed("load", lambda: load_source(request.target))
    if isinstance(request, InspectRequest):
        return _inspected(inspected_source(source, request.options))
    prepared = prepared_source(source, request.options)
    if isinstance(request, RunRequest):
        return _run(request, prepared, folder)
    return _export(request, prepared, folder, clock)


def _inspected(prepared: Any) -> ExportResult:
    return ExportResult(accidents=prepared.accidents, normalizations=prepared.normalizations, weights=prepared.weights)


def _export(request: ExportRequest, prepared: Any, folder: Path, clock: Clock) -> ExportResult:
    import torch

    from trtnorm_cli.export.child.exporting import Exporting

    profile = BuildProfile() if request.profile is None else request.profile.parse()
    exporting = Exporting(prepared.source, profile, request, folder / MODEL_FILE, prepared.needs_torchscript)
    with stage("trace"):
        exported = clock.timed("export", exporting.run)
    result = ExportResult(
        exporter=exported.exporter,
        because=exported.because,
        opset=exported.written.opset,
        torch=torch.__version__,
        inputs=tuple(ExportedInput(held.name, held.dtype, tuple(held.shape)) for held in exported.requested.inputs.values()),
        outputs=exported.written.outputs,
        dimensions=tuple(_learnt(dimension) for dimension in exported.requested.dimensions.values()),
        accidents=prepared.accidents,
        normalizations=prepared.normalizations,
        weights=prepared.weights,
        notes=(*prepared.notes, *exported.notes),
        warnings=exported.written.warnings,
        seconds=clock.seconds,
    )
    if not request.options.verify:
        return result
    # The run may exhaust the memory: what was exported must be known before.
    trials = clock.timed("run", lambda: exported.trials(folder, profile, request.options.seed))
    return replace(result, trials=trials.records, skipped=trials.skipped, seconds=clock.seconds)


def _run(request: RunRequest, prepared: Any, folder: Path) -> ExportResult:
    from trtnorm_cli.export.child.evaluation import Evaluation, ModuleRunner, Trials, read_feeds

    source, trials = prepared.source, Trials()
    for label, feeds in request.feeds.items():
        tensors = read_feeds(folder, feeds)
        runner = ModuleRunner(source.module, _call(source, tensors))
        trials += Evaluation(runner, folder, request.budget_s).one(label, tensors, optional=True)
    return ExportResult(trials=trials.records, skipped=trials.skipped, notes=prepared.notes)


def _call(source: Any, tensors: dict[str, Any]) -> Any:
    """A call with ``tensors``, in the place of those that came with the model, or by keyword."""
    from trtnorm_cli.export.child.arguments import bind

    try:
        call = bind(source.module, (), tensors) if source.args is None else bind(source.module, source.args, source.kwargs)
    except TypeError as error:
        raise ModelError(f"the inputs {', '.join(tensors)} do not fit the model: {error}") from error
    unknown = [name for name in tensors if name not in call.tensors()]
    if unknown:
        raise ModelError(f"the model has no input {unknown[0]!r}", None, f"it has {', '.join(call.tensors())}")
    return call.with_tensors(tensors)


def _learnt(dimension: Any) -> LearntDimension:
    sizes, m = dimension.sizes, dimension.sizes.multiple_of
    from trtnorm_cli.export.child.sizes.dimensions import nearest_size

    low, high = -(-sizes.low // m) * m, sizes.high // m * m
    taken = (low, nearest_size(dimension.asked[1], sizes), high)
    places = tuple(f"{name}[{axis}]" for name, axis in dimension.places)
    return LearntDimension(dimension.name, dimension.asked, taken, m, places, dimension.reasons, dimension.named)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
