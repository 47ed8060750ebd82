"""The child process that exports one model: ``python -m trtnorm_cli.export.child.worker FOLDER``.

It reads ``request.json``, runs the user's code and PyTorch's exporters, and writes ``result.json`` last. Whatever it prints
goes to a log; the only modules of trtnorm that import PyTorch run here.
"""

from __future__ import annotations

import logging
import sys
import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from trtnorm_cli.child_process import die_with_parent
from trtnorm_cli.errors import ModelError, TrtnormError
from trtnorm_cli.export.request import MODEL_FILE, ExportRequest, ExportResult, Failure, LearntDimension
from trtnorm_cli.profile.model import BuildProfile
from trtnorm_cli.profile.positions import Positions
from trtnorm_cli.target import Target


def main(arguments: list[str]) -> int:
    die_with_parent()
    folder = Path(arguments[0])
    request = ExportRequest.load(folder)
    try:
        # PyTorch's exporters name operators that they skip and modules that they deprecate; none of it is the user's concern.
        warnings.simplefilter("ignore")
        logging.getLogger("torch.onnx").setLevel(logging.ERROR)
        result = Worker(request, folder).run()
    except TrtnormError as error:
        result = ExportResult(Failure(type(error).__name__, error.summary, error.where, error.hint))
    result.save(folder)
    return 0 if result.failure is None else 1


@dataclass
class Worker:
    """One request from beginning to end."""

    request: ExportRequest
    folder: Path
    notes: list[str] = field(default_factory=list)
    skipped: list[str] = field(default_factory=list)
    seconds: dict[str, float] = field(default_factory=dict)

    def run(self) -> ExportResult:
        import torch

        from trtnorm_cli.export.child.module import inspected_source, prepared_source
        from trtnorm_cli.export.child.source import load_source

        torch.manual_seed(self.request.seed)
        spec = Target(**self.request.spec)
        source = self._timed("load", lambda: load_source(spec))
        if self.request.task == "inspect":
            return self._inspected(inspected_source(source, self.request))
        prepared = prepared_source(source, self.request)
        self.notes += prepared.notes
        return self._evaluate(prepared.source) if self.request.task == "run" else self._export(prepared, spec)

    def _inspected(self, prepared: Any) -> ExportResult:
        return ExportResult(
            accidents=prepared.accidents,
            normalizations=prepared.normalizations,
            weights=prepared.weights,
            notes=tuple(self.notes),
        )

    def _timed(self, name: str, step: Callable[[], Any]) -> Any:
        start = time.perf_counter()
        result = step()
        self.seconds[name] = round(time.perf_counter() - start, 3)
        return result

    def _profile(self) -> BuildProfile:
        lines = {tuple(path): line for path, line in self.request.profile_lines}
        profile = BuildProfile.model_validate(self.request.profile or {})
        return profile.located(Positions(self.request.profile_file, lines))

    def _export(self, prepared: Any, spec: Target) -> ExportResult:
        import torch

        from trtnorm_cli.export.child.exporting import Exporting

        profile = self._profile()
        exporting = Exporting(
            prepared.source, profile, self.request, spec, self.folder / MODEL_FILE, prepared.needs_torchscript
        )
        exported = self._timed("export", exporting.run)
        result = ExportResult(
            exporter=exported.exporter,
            because=exported.because,
            opset=exported.written.opset,
            torch=torch.__version__,
            inputs=tuple(
                {"name": held.name, "dtype": held.dtype, "shape": list(held.shape)}
                for held in exported.requested.inputs.values()
            ),
            outputs=exported.written.outputs,
            dimensions=tuple(_learnt(dimension) for dimension in exported.requested.dimensions.values()),
            accidents=prepared.accidents,
            normalizations=prepared.normalizations,
            weights=prepared.weights,
            notes=(*self.notes, *exported.notes),
            warnings=exported.written.warnings,
            seconds=self.seconds,
        )
        if not self.request.verify:
            return result
        # The run may exhaust the memory: what was exported must be known before.
        trials = self._timed("run", lambda: exported.trials(self.folder, profile, self.request, self.skipped))
        return replace(result, trials=trials, skipped=tuple(self.skipped), seconds=self.seconds)

    def _evaluate(self, source: Any) -> ExportResult:
        from trtnorm_cli.export.child.evaluation import Evaluation, ModuleRunner, read_feeds

        records = []
        for label, feeds in self.request.feeds.items():
            tensors = read_feeds(self.folder, feeds)
            runner = ModuleRunner(source.module, _call(source, tensors))
            evaluation = Evaluation(runner, self.folder, self.request.trial_budget_s, self.skipped)
            records.append(evaluation.one(label, tensors, optional=True))
        found = tuple(record for record in records if record is not None)
        return ExportResult(trials=found, skipped=tuple(self.skipped), notes=tuple(self.notes))


def _call(source: Any, tensors: dict[str, Any]) -> Any:
    """A call with ``tensors``: in the place of those that came with the model, or by keyword."""
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
