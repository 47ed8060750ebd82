"""A first build profile for a model: sizes worked out, tried in ONNX Runtime and shown to TensorRT, and written down."""

from __future__ import annotations

import textwrap
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import numpy as np

from trtnorm_cli.child_process import Limits
from trtnorm_cli.errors import BuilderDied, TrtnormError
from trtnorm_cli.evaluate.data.drawing import feeds_at
from trtnorm_cli.evaluate.data.input_ranges import InputRanges
from trtnorm_cli.evaluate.data.shape_points import ShapePoint
from trtnorm_cli.evaluate.ort_runner import OrtRunner, RunFailed
from trtnorm_cli.light_dataclass import dataclass
from trtnorm_cli.onnx_model.fixed_inputs import is_of_unknown_rank, with_fixed, with_ranks
from trtnorm_cli.onnx_model.load import LoadedModel
from trtnorm_cli.onnx_model.placeholders import without_placeholders
from trtnorm_cli.onnx_model.quantised_nodes import DYNAMIC, quantised_nodes
from trtnorm_cli.onnx_model.save import MAPPED_FROM, save_model
from trtnorm_cli.profile.facts import fixed_inputs
from trtnorm_cli.profile.fit import fit
from trtnorm_cli.profile.load import parse_profile
from trtnorm_cli.profile.memory import estimate_memory
from trtnorm_cli.profile.model import DimRange
from trtnorm_cli.profile.model_input import ModelInput, inputs_of
from trtnorm_cli.profile.paste import starting_profile
from trtnorm_cli.profile.prove import prove
from trtnorm_cli.profile.runnable import OutOfTime, Point, Trial, tried
from trtnorm_cli.profile.start import start_for
from trtnorm_cli.progress import current, stage
from trtnorm_cli.scratch import Scratch
from trtnorm_cli.shapes.propagate import propagate
from trtnorm_cli.shapes.symbols import value_symbol
from trtnorm_cli.tensorrt.launch import launch
from trtnorm_cli.tensorrt.request import BuildRequest

_RUN_S, _ALL_RUNS_S, _PARSE_S = 10.0, 40.0, 60.0
# A first run should not be what fills a machine.
_MOST_BYTES = 4 << 30
# What an input without any shape may have, the likeliest first.
_RANKS = (4, 3, 2, 5, 1)
_WIDTH = 118


@dataclass(frozen=True)
class FirstProfile:
    """The text of the file, and what there is to say beside it."""

    text: str
    notes: tuple[str, ...]


def first_profile(loaded: LoadedModel, run: bool = True) -> FirstProfile:
    """A profile that ``loaded`` fits. With ``run``, it is one at whose min and opt ONNX Runtime has run it, where there is any.

    The findings, and what does not run all the same, stand in the file and in the notes.
    """
    inputs = inputs_of(loaded.proto)
    unknown = [value.name for value in loaded.proto.graph.input if is_of_unknown_rank(value)]
    trial = Trial(start_for(loaded.proto, inputs))
    notes: list[str] = []
    if run and (trial.start.ranges or trial.start.values or unknown):
        with stage("try-sizes", unit="runs"):
            loaded, trial, notes = _run(loaded, trial, unknown)
        inputs = inputs_of(loaded.proto)
    notes = [*trial.remarks, *notes, *_quantised_dynamically(loaded)]
    text = starting_profile(loaded.path.name, inputs, trial.start, _comments(notes))
    if run:
        with stage("ask-parser"):
            notes += _parser_notes(loaded, text)
    return FirstProfile(text, tuple(notes))


def _quantised_dynamically(loaded: LoadedModel) -> list[str]:
    """The line that a dynamically quantised model needs, which is for the user to choose."""
    if not any(node.op_type in DYNAMIC for node in quantised_nodes(loaded.proto)):
        return []
    return [
        "the model is quantised dynamically, which TensorRT does not have: to compute with floats instead, add the line "
        "`dynamic_quantization: float`"
    ]


def _run(loaded: LoadedModel, trial: Trial, unknown: Sequence[str]) -> tuple[LoadedModel, Trial, list[str]]:
    """``loaded`` with a rank for the inputs ``unknown``, sizes at which it runs, and what there is to say of that."""
    with _runnable(loaded) as path, OrtRunner(_RUN_S) as runner:
        runner.start()
        deadline = time.monotonic() + _ALL_RUNS_S
        # Every rank is tried at the likeliest sizes before one is tried at many.
        ways = [(rank, elsewhere) for elsewhere in (False, True) for rank in _RANKS] if unknown else [(None, True)]
        for rank, elsewhere in ways:
            proto = loaded.proto if rank is None else with_ranks(loaded.proto, dict.fromkeys(unknown, rank))
            candidate = replace(loaded, proto=proto)
            inputs = inputs_of(proto)
            attempts = _Attempts(candidate, path, inputs, runner, deadline)
            found = _legal(candidate, inputs, tried(start_for(proto, inputs), inputs, attempts, elsewhere))
            if found.failure is None and (rank is None or attempts.ran):
                assumed = [f"the file does not say how many dimensions {name} has: it runs with {rank}" for name in unknown]
                return candidate, found, [*assumed, *attempts.notes]
            trial = trial if trial.failure else replace(found, failure=found.failure or "no run of it came to its end")
    why = f"ONNX Runtime does not run the model at these sizes, nor at others that were tried: {trial.failure}"
    return loaded, trial, [why, *(f"the file does not say how many dimensions {name} has" for name in unknown)]


@contextmanager
def _runnable(loaded: LoadedModel) -> Iterator[Path]:
    """The file of ``loaded``, or that of the mended model where ONNX Runtime does not take the file as it stands."""
    if loaded.runs_unmended:
        yield loaded.path
        return
    with Scratch("trtnorm-init-") as folder:
        save_model(loaded.proto, folder / "mended.onnx", loaded.folder, MAPPED_FROM)
        yield folder / "mended.onnx"


def _legal(loaded: LoadedModel, inputs: Sequence[ModelInput], trial: Trial) -> Trial:
    """``trial``, or where its max, which was not run, breaks what the model demands, with opt in its place."""
    try:
        profile = parse_profile(starting_profile(loaded.path.name, inputs, trial.start))
        prove(loaded.proto, inputs, profile, fit(profile, inputs))
    except TrtnormError:
        ranges = {
            name: DimRange(min=dim.min, opt=dim.opt, max=dim.opt, multiple_of=dim.multiple_of)
            for name, dim in trial.start.ranges.items()
        }
        return replace(trial, start=replace(trial.start, ranges=ranges))
    return trial


class _Attempts:
    """Runs of one model, for as long as there is time. A run that was stopped is no evidence against its sizes."""

    def __init__(
        self, loaded: LoadedModel, path: Path, inputs: Sequence[ModelInput], runner: OrtRunner, deadline: float
    ) -> None:
        self._loaded, self._path, self._inputs, self._runner, self._deadline = loaded, path, inputs, runner, deadline
        self._propagation = propagate(loaded.proto)
        self._ranges = InputRanges(loaded.proto, self._propagation.tensors)
        self.notes: list[str] = []
        # True once a run came to its end: what was only stopped says nothing for a rank either.
        self.ran = False

    def __call__(self, point: Point) -> str | None:
        if time.monotonic() > self._deadline:
            self._note(f"the {_ALL_RUNS_S:g} s for it were over")
            raise OutOfTime
        needed = estimate_memory(self._loaded.proto, self._propagation, "", {n: (s, s, s) for n, s in point.items()}).total
        if needed > _MOST_BYTES:
            self._note(f"{needed / 2**30:.0f} GiB of memory are needed")
            return None
        reason = self._reason(point, zeros=False)
        if reason is not None and any(model_input.takes_integers for model_input in self._inputs):
            reason = reason if self._reason(point, zeros=True) else None  # indices into a small table, perhaps
        return reason

    def _reason(self, point: Point, zeros: bool) -> str | None:
        current().advance()
        current().at(", ".join(f"{name}={size}" for name, size in point.items()))
        try:
            self._runner.run(self._path, self._feeds(point, zeros))
        except RunFailed as failure:
            if failure.timed_out:
                self._note(f"it takes more than {_RUN_S:g} s")
                return None
            return failure.reason
        self.ran = True
        return None

    def _note(self, why: str) -> None:
        self.notes = self.notes or [f"not all of these sizes were run to the end in ONNX Runtime: {why}"]

    def _feeds(self, point: Point, zeros: bool) -> Mapping[str, np.ndarray]:
        shapes = {
            one.name: tuple(max(dim if isinstance(dim, int) else point[dim], 1) for dim in one.dimensions)
            for one in self._inputs
        }
        values = {one.name: _elements(one, point) for one in self._inputs if value_symbol(one.name, 0) in point}
        at, domains = ShapePoint("init", shapes, values), self._ranges.at(shapes, values)
        feeds = feeds_at(at, self._ranges.inputs, {}, 0, domains)
        integers = {one.name for one in self._inputs if one.takes_integers and one.name not in values} if zeros else set()
        return {name: np.zeros_like(array) if name in integers else array for name, array in feeds.items()}


def _elements(model_input: ModelInput, point: Point) -> tuple[int, ...]:
    found: list[int] = []
    while value_symbol(model_input.name, len(found)) in point:
        found.append(point[value_symbol(model_input.name, len(found))])
    return tuple(found)


def _comments(notes: Sequence[str]) -> list[str]:
    return [f"# {line}" for note in notes for line in textwrap.wrap(note, _WIDTH)]


def _parser_notes(loaded: LoadedModel, text: str) -> list[str]:
    """The objections of TensorRT's parser to the model, with all that the profile settles. The rewriting may still help."""
    profile = parse_profile(text)
    settled = with_fixed(without_placeholders(loaded.proto), fixed_inputs(fit(profile, inputs_of(loaded.proto))))
    with Scratch("trtnorm-init-") as folder:
        save_model(settled, folder / "model.onnx", loaded.folder)
        request = BuildRequest("model.onnx", str(folder / "model.engine"), parse_only=True)
        try:
            result = launch(request, folder, None, Limits(_PARSE_S))
        except BuilderDied as death:
            return [f"TensorRT's parser was not asked to the end: {death.summary}"]
    if result.ok:
        return []
    said = "; ".join(error.text for error in result.errors[:2])
    if result.stage == "load":
        return ["TensorRT is not installed, so its parser was not asked"]
    return [f"TensorRT's parser does not take the model before it is rewritten: {said}"]
