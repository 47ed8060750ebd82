"""One export from source to ONNX file, with the choice of inputs and exporter and the reasons."""

from __future__ import annotations

import inspect
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import field, replace
from pathlib import Path

import torch

from trtnorm_cli.errors import ModelError, TrtnormError
from trtnorm_cli.export.child.arguments import Call, bind, named_results
from trtnorm_cli.export.child.dynamic import Traced, trace
from trtnorm_cli.export.child.evaluation import Evaluation, Feeds, ModuleRunner, Trials, points
from trtnorm_cli.export.child.examples import InputValues, dtype_name, example_tensors
from trtnorm_cli.export.child.program import take_program
from trtnorm_cli.export.child.sizes.dimensions import Requested, TensorInput, nearest_size, requested
from trtnorm_cli.export.child.sizes.guards import Sizes
from trtnorm_cli.export.child.sizes.solver import Assumption, Unsolved
from trtnorm_cli.export.child.source import Source, user_frames
from trtnorm_cli.export.child.to_onnx import Runnable, Written, export_program, export_torchscript
from trtnorm_cli.export.request import ExportRequest
from trtnorm_cli.light_dataclass import dataclass
from trtnorm_cli.profile.model import BuildProfile
from trtnorm_cli.progress import stage
from trtnorm_cli.suggest import listing

# TorchScript's exporter knows no newer opset.
_TORCHSCRIPT_OPSET = 20
_BFLOAT16_OPSET = 22
_UNGUARDED_POINTS = 3
_TRIAL_BUDGET_S = 30.0
# Strides of networks that check their input's size.
_ROUND_SIZES = (8, 16, 32, 64, 128)


@dataclass(frozen=True)
class Exported:
    """An ONNX file that was written, and everything that is needed to run the module beside it."""

    exporter: str
    because: str
    written: Written
    requested: Requested
    runner: ModuleRunner
    given: Mapping[str, torch.Tensor]
    assumptions: tuple[Assumption, ...]
    notes: tuple[str, ...]

    def trials(self, folder: Path, profile: BuildProfile, seed: int) -> Trials:
        """Runs of the module at min, opt and max, and where the trace may not hold."""
        evaluation = Evaluation(self.runner, folder, _TRIAL_BUDGET_S)
        # TorchScript records no guards: what it took for a constant shows at sizes that it has not seen.
        in_between = _UNGUARDED_POINTS if self.exporter == "torchscript" else 0
        where = points(self.requested, self.assumptions, in_between, seed)
        feeds = Feeds(self.requested, InputValues(self.given, profile.data, seed))
        return evaluation.at_points(feeds, where)


@dataclass
class Exporting:
    """``run`` writes the ONNX model to ``path``."""

    source: Source
    profile: BuildProfile
    request: ExportRequest
    path: Path
    needs_torchscript: str = ""
    notes: list[str] = field(default_factory=list)

    def run(self) -> Exported:
        call = self._bound()
        wanted = self._requested(call)
        ran = self._runnable(wanted, call)
        call = ran.call
        if call.constants():
            shown = listing(f"{name}={value!r}" for name, value in call.constants().items())
            self.notes.append(f"not tensors, and therefore constants of the exported model: {shown}")
        if self.source.program is not None:
            return self._from_program(self.source.program, ran)
        if self.request.options.exporter == "torchscript":
            return self._torchscript(ran, "asked for")
        if self.needs_torchscript:
            if self.request.options.exporter == "dynamo":
                raise ModelError(f"dynamo cannot be used: {self.needs_torchscript}", self.name, "leave out --exporter")
            return self._torchscript(ran, self.needs_torchscript)
        return self._dynamo(ran)

    @property
    def name(self) -> str:
        """The model as the user named it, for messages."""
        return self.request.target.text

    def _bound(self) -> Call:
        """The arguments that came with the module, or an empty call that the profile's inputs will fill."""
        if self.source.args is None:
            return Call((), {}, (), ())
        try:
            return bind(self.source.module, self.source.args, self.source.kwargs)
        except TypeError as error:
            signature = inspect.signature(self.source.module.forward)
            raise ModelError(
                f"the example inputs do not fit forward{signature}: {error}",
                self.name,
                "return (module, args, kwargs)",
            ) from error

    def _requested(self, call: Call) -> Requested:
        examples = {n: TensorInput(n, dtype_name(t), tuple(t.shape)) for n, t in call.tensors().items()}
        required, allowed = _parameters(self.source.module)
        if self.source.args is None:
            self._refuse_unknown(allowed)
        wanted = requested(self.profile, examples, required, self._parameter_dtype(), self.name)
        self.notes += wanted.notes
        return wanted

    def _refuse_unknown(self, allowed: set[str] | None) -> None:
        said = {*self.profile.export.inputs, *(n for one in self.profile.optimization_profiles for n in one.inputs)}
        unknown = sorted(said - allowed) if allowed is not None else []
        if unknown and allowed is not None:
            hint = f"forward takes {listing(sorted(allowed))}"
            raise ModelError(f"the model has no input {unknown[0]!r}", self.name, hint)

    def _parameter_dtype(self) -> str:
        found = (dtype_name(p) for p in self.source.module.parameters() if p.is_floating_point())
        return next(found, "float32")

    def _completed(self, call: Call, wanted: Requested) -> Call:
        """The call with tensors at the sizes of the trace."""
        made = example_tensors(wanted, call.tensors(), self.profile)
        if self.source.args is not None:
            return call.with_tensors(made)
        return bind(self.source.module, (), made)

    def _runnable(self, wanted: Requested, call: Call) -> Runnable:
        """The request with sizes at which the model runs.

        They are opt, or the nearest rounder ones where it does not run there.
        """
        ready = self._completed(call, wanted)
        try:
            return Runnable(wanted, ready, self._try_run(ready))
        except ModelError as refusal:
            for other in self._other_sizes(wanted, call) if self.source.program is None else ():
                ready = self._completed(call, other)
                try:
                    outputs = self._try_run(ready)
                except ModelError:
                    continue
                shapes = listing(f"{name} {list(tensor.shape)}" for name, tensor in ready.tensors().items())
                self.notes.append(f"{refusal.summary}; it was traced at {shapes}")
                return Runnable(other, ready, outputs)
            raise

    def _other_sizes(self, wanted: Requested, call: Call) -> Iterator[Requested]:
        """Sizes that the model may run at where it refuses opt, which are rounder ones and those of its example inputs."""
        for multiple in _ROUND_SIZES:
            yield _rounded(wanted, multiple)
        examples = call.tensors()
        sizes = {
            dim: examples[name].shape[axis]
            for dim, held in wanted.dimensions.items()
            for name, axis in held.places
            if name in examples and held.sizes.low <= examples[name].shape[axis] <= held.sizes.high
        }
        yield replace(wanted, dimensions={n: replace(d, opt=sizes.get(n, d.opt)) for n, d in wanted.dimensions.items()})

    def _try_run(self, call: Call) -> list[str]:
        """Run the module once as it is. Returns the names of its results, and says clearly when the model itself fails."""
        try:
            with stage("run-module"), torch.no_grad():
                result = self.source.module(*call.args, **call.kwargs)
        except Exception as error:
            shapes = ", ".join(f"{name} {list(tensor.shape)}" for name, tensor in call.tensors().items())
            raise ModelError(
                f"the model itself does not run on {shapes}: {type(error).__name__}: {_first_line(error)}",
                user_frames(error, self.name),
                "give sizes that it takes (opt in the build profile), or example inputs from the callable",
            ) from error
        names = list(named_results(result, call))
        if not names:
            raise ModelError(f"the model returns no tensor but {type(result).__name__}", self.name)
        return names

    def _dynamo(self, ran: Runnable) -> Exported:
        """torch.export without and with TorchDynamo's analysis of the code, then TorchScript where that is allowed."""
        failures: list[str] = []
        for strict in (False, True):
            try:
                traced = trace(self.source.module, ran.call, ran.requested, self.profile, strict)
                because = "the first choice" if not strict else f"with strict=True, because without it: {failures[0]}"
                return self._write_program(traced, ran.outputs, because)
            except Unsolved as unsolved:
                raise unsolved.error from None
            except TrtnormError:
                raise
            except Exception as error:  # whatever the exporter raises; the next way may do
                failures.append(_reason(error))
        if self.request.options.exporter == "dynamo":
            raise ModelError(
                f"dynamo cannot export the model: {failures[0]}",
                self.name,
                "try --exporter torchscript, or auto",
            )
        try:
            made = self._torchscript(ran, f"dynamo cannot: {failures[0]}")
        except ModelError as error:
            raise ModelError(
                "neither exporter can export the model", f"dynamo: {failures[0]}\ntorchscript: {error.summary}", error.hint
            ) from error
        if _DATA_DEPENDENT in failures[0] and any(_TRACED_BRANCH in warning for warning in made.written.warnings):
            raise ModelError(
                "the model's code branches on its data, and a trace would keep one branch for all data",
                f"{self.name}\n{failures[0]}",
                "write the branch with torch.where or torch.cond; or, where all data take the same one, --exporter torchscript",
            )
        return made

    def _write_program(self, traced: Traced, outputs: Sequence[str], because: str) -> Exported:
        opset = self.request.options.opset or self._default_opset(traced.call)
        written = export_program(traced.program, Runnable(traced.requested, traced.call, outputs), opset, self.path)
        notes = [*self.notes, *traced.notes, *map(str, traced.assumptions)]
        runner = ModuleRunner(self.source.module, traced.call)
        given = traced.call.tensors()
        return Exported("dynamo", because, written, traced.requested, runner, given, traced.assumptions, tuple(notes))

    def _default_opset(self, call: Call) -> int:
        """The backend's default opset, or a later one for bfloat16, which Conv and many others take only from opset 22 on."""
        tensors = (*self.source.module.parameters(), *self.source.module.buffers(), *call.tensors().values())
        half = any(tensor.dtype == torch.bfloat16 for tensor in tensors)
        return _BFLOAT16_OPSET if half and self.request.default_opset == _BFLOAT16_OPSET - 1 else self.request.default_opset

    def _torchscript(self, ran: Runnable, because: str) -> Exported:
        opset = self.request.options.opset or min(self.request.default_opset, _TORCHSCRIPT_OPSET)
        try:
            written = export_torchscript(self.source.module, ran, opset, self.path)
        except Exception as error:
            hint = "try --exporter dynamo" if self.request.options.exporter == "torchscript" else None
            raise ModelError(f"TorchScript cannot export the model: {_reason(error)}", self.name, hint) from error
        runner = ModuleRunner(self.source.module, ran.call)
        return Exported("torchscript", because, written, ran.requested, runner, ran.call.tensors(), (), tuple(self.notes))

    def _from_program(self, program: torch.export.ExportedProgram, ran: Runnable) -> Exported:
        call, outputs = ran.call, ran.outputs
        taken = take_program(program, ran.requested, call)
        self.notes += taken.notes
        try:
            return self._write_program(Traced(program, taken, call), outputs, "the model is an exported program")
        except ModelError:
            raise
        except Exception as error:  # a program with sizes such as 2*n that was saved and loaded is one that it cannot take
            reason = f"the model is an exported program; traced again, because as it was saved: {_reason(error)}"
        try:
            return self._write_program(trace(self.source.module, call, taken, self.profile, strict=False), outputs, reason)
        except Exception as error:
            raise ModelError(f"the exported program cannot be written as ONNX: {_reason(error)}", self.name) from error


# What PyTorch says of a branch that the values of tensors decide: dynamo in its error, TorchScript in a warning.
_DATA_DEPENDENT, _TRACED_BRANCH = "data-dependent", "to a Python boolean might cause the trace to be incorrect"


def _rounded(wanted: Requested, multiple: int) -> Requested:
    """The sizes of the trace as multiples of ``multiple`` where the range has one."""
    dimensions = {}
    for name, held in wanted.dimensions.items():
        step = math.lcm(multiple, held.sizes.multiple_of)
        fits = held.opt >= multiple and -(-held.sizes.low // step) <= held.sizes.high // step
        opt = nearest_size(held.opt, Sizes(held.sizes.low, held.sizes.high, step)) if fits else held.opt
        dimensions[name] = replace(held, opt=opt)
    return replace(wanted, dimensions=dimensions)


def _parameters(module: torch.nn.Module) -> tuple[list[str], set[str] | None]:
    """The parameters of ``forward`` that must be given, and all that may. The latter are None when it takes any."""
    parameters = inspect.signature(module.forward).parameters.values()
    plain = [p for p in parameters if p.kind in (p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY)]
    anything = any(p.kind is p.VAR_KEYWORD for p in parameters)
    return [p.name for p in plain if p.default is p.empty], None if anything else {p.name for p in plain}


def _first_line(error: BaseException) -> str:
    return next((line for line in str(error).splitlines() if line.strip()), "")[:300]


def _reason(error: BaseException) -> str:
    """Type and first line of the innermost cause, with the user's line if there is one."""
    root = error
    while root.__cause__ is not None:
        root = root.__cause__
    frames = user_frames(root, "").splitlines()[1:]
    return f"{type(root).__name__}: {_first_line(root)}" + (f" ({frames[-1].strip()})" if frames else "")
