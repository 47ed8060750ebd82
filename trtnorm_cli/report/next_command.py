"""The next useful command, with which the result of a command ends."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Sequence
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from trtnorm_cli.light_dataclass import dataclass
from trtnorm_cli.report.console import console
from trtnorm_cli.report.verbosity import Verbosity

if TYPE_CHECKING:
    from trtnorm_cli.compare.result import Comparison
    from trtnorm_cli.export.inspecting import ModuleDescription
    from trtnorm_cli.records.export import ExportRecord
    from trtnorm_cli.rewrite.rewritten import RewrittenModel
    from trtnorm_cli.target import Target
    from trtnorm_cli.tensorrt.manifest import Manifest

Command = Sequence[str]


@dataclass(frozen=True)
class Given:
    """The options of a command that the next one has to have too, to be about the same."""

    profile: Path | None = None
    precision: str | None = None
    dynamic_quantization: str | None = None
    weights: Path | None = None
    backend: str | None = None

    def options(self) -> list[str]:
        """The options as they are written."""
        values = {
            "-p": self.profile,
            "--precision": self.precision,
            "--dynamic-quantization": self.dynamic_quantization,
            "--weights": self.weights,
            "--backend": self.backend,
        }
        return [word for option, value in values.items() if value is not None for word in (option, str(value))]


class _Input(Protocol):
    @property
    def shape(self) -> Sequence[object] | None: ...


def print_next(command: Command | None, as_json: bool = False, verbosity: Verbosity = Verbosity.NORMAL) -> None:
    """Print ``command`` as a line that a shell takes. Where a program or a script reads the output, print nothing."""
    if command is not None and not as_json and verbosity is not Verbosity.QUIET:
        console().print(f"\nnext: {shlex.join(['trtnorm', *command])}", soft_wrap=True)


def after_build(model: str, engine: Path, manifest: Manifest, given: Given) -> Command:
    """A comparison where the build made none or left shapes out, else a look at the engine."""
    comparison = manifest.comparison
    if comparison is None or comparison.skipped or comparison.not_compared:
        return ["compare", model, *given.options()]
    return ["inspect", str(engine)]


def after_rewrite(model: str, done: RewrittenModel, given: Given) -> Command:
    """The build of what was written, or of the model where nothing was."""
    from trtnorm_cli.onnx_model.shapes import model_inputs

    inputs = model_inputs(done.rewriting.model).values()
    if not done.written:
        return _to_an_engine(model, inputs, given)
    return _to_an_engine(str(done.written[0]), inputs, Given(given.profile))


def after_export(model: Path, manifest: ExportRecord, given: Given, misfits: bool) -> Command:
    """The build of the exported model; ``misfits`` says that the profile has sizes that the model does not take."""
    return [*_to_an_engine(str(model), manifest.inputs, given), *(["--snap"] if misfits else [])]


def after_inspection(target: Target, described: object, given: Given, every: bool) -> Command | None:
    """The next step of what was inspected on its way to an engine; of an engine the report on it."""
    from trtnorm_cli.records.export import ExportRecord

    if isinstance(described, ExportRecord):
        model = target.path.with_suffix("")
        return ["inspect", str(model)] if model.is_file() else None
    if target.is_pytorch:
        return _after_module(target, described, given)  # type: ignore[arg-type]
    if target.kind in ("engine", "manifest"):
        engine = target.path.with_suffix("") if target.kind == "manifest" else target.path
        return after_engine(engine if engine.is_file() else target.path, every)
    inputs: Iterable[_Input] = described.inputs  # type: ignore[attr-defined]
    if target.kind == "network" and not _are_dynamic(inputs):
        return ["compare", target.location, target.text, *given.options()]
    return _to_an_engine(target.location, inputs, given)


def after_engine(engine: Path, every: bool) -> Command | None:
    """The report, where its libraries are installed, else the long form of the inspection."""
    from trtnorm_cli.report.page.write import LIBRARIES

    if all(find_spec(module) is not None for module in LIBRARIES):
        return ["report", str(engine)]
    return None if every else ["inspect", str(engine), "--all"]


def after_comparison(reference: Target, candidates: Sequence[Target], comparison: Comparison, given: Given) -> Command | None:
    """The build of what was found right, a closer look at what was not, or the node that TensorRT refuses."""
    last = candidates[-1] if candidates else reference
    if comparison.passed:
        return after_engine(last.path, False) if last.kind == "engine" else ["build", _built(last), *given.options()]
    if not comparison.is_out_of_tolerance:
        if any(report.does_not_run and report.kind == "network" for report in comparison.candidates):
            return ["build", _built(last), "--isolate", *given.options()]
        # Where nothing is in the way, the values say nothing: they are all infinite, say.
        return ["doctor"] if any(report.error for report in comparison.candidates) else None
    if last.kind == "network":
        return ["build", last.location, *given.options()]
    if candidates:
        return ["diff", reference.text, last.text]
    return ["rewrite", reference.text, *replace(given, backend=None).options(), "--dry-run", "--explain"]


def after_diff(first: Target, second: Target, differ: bool, exported: bool) -> Command | None:
    """The numbers behind a difference of graphs, or a look at the engine."""
    if not differ:
        return None
    engines = [one for one in (second, first) if one.kind in ("engine", "manifest")]
    if engines:
        return ["inspect", engines[0].text]
    if second.is_pytorch:
        return None if exported or not first.is_pytorch else ["diff", first.text, second.text, "--exported"]
    return ["compare", first.text, second.text]


def _to_an_engine(model: str, inputs: Iterable[_Input], given: Given) -> list[str]:
    """The build, or before it the profile that a model with dynamic sizes needs."""
    if given.profile is None and _are_dynamic(inputs):
        return ["init", model, "-o", str(_free(Path(model).with_suffix(".yaml").name))]
    return ["build", model, *given.options()]


def _after_module(target: Target, found: ModuleDescription, given: Given) -> Command | None:
    """The export, unless it would be refused."""
    if any(accident.severity == "refused" for accident in found.accidents):
        return None
    return ["export", target.text, "-o", str(_free(f"{target.stem}.onnx")), *given.options()]


def _built(target: Target) -> str:
    return target.location if target.kind == "network" else target.text


def _are_dynamic(inputs: Iterable[_Input]) -> bool:
    return any(one.shape is None or not all(isinstance(size, int) for size in one.shape) for one in inputs)


def _free(name: str) -> Path:
    """``name`` in the current folder, with a number where there is such a file."""
    path, number = Path(name), 1
    while path.exists():
        number += 1
        path = Path(name).with_stem(f"{Path(name).stem}-{number}")
    return path
