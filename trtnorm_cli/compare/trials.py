"""The trials of a comparison: sets of inputs that the user brings, or that are drawn at the shapes of the build profile."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import field, replace
from pathlib import Path

import numpy as np
import onnx

from trtnorm_cli.compare.data_files import read_data
from trtnorm_cli.compare.participants import OnnxParticipant
from trtnorm_cli.compare.result import Trial
from trtnorm_cli.compare.settings import Settings
from trtnorm_cli.compare.smaller_first import SmallerTrial
from trtnorm_cli.compare.smaller_inputs import smaller_inputs
from trtnorm_cli.evaluate.data.drawing import fitting_feeds
from trtnorm_cli.evaluate.data.input_ranges import InputRanges
from trtnorm_cli.evaluate.data.shape_points import ShapePoint, shape_points
from trtnorm_cli.light_dataclass import dataclass
from trtnorm_cli.onnx_model.shapes import model_inputs
from trtnorm_cli.profile.facts import as_profiled
from trtnorm_cli.profile.fit import fit
from trtnorm_cli.profile.model import BuildProfile
from trtnorm_cli.profile.model_input import inputs_of
from trtnorm_cli.profile.prove import Proof, prove

# Seeds of further data, tried where nothing can be said on the first.
_FURTHER_SEEDS = (1001, 1002)


@dataclass(frozen=True)
class Trials:
    """The trials, notes on the profile's sizes and on the data, and the source of each input's values.

    ``proof`` is that of the sizes at which inputs were drawn. ``smaller`` stands in for the smallest of the trials in float64.
    """

    trials: list[Trial]
    notes: Sequence[str] = ()
    inputs: dict[str, str] = field(default_factory=dict)
    proof: Proof | None = None
    smaller: SmallerTrial | None = None


def trials_of(
    described: OnnxParticipant, profile: BuildProfile | None, settings: Settings, proof: Proof | None = None
) -> Trials:
    """The trials for models with the inputs of ``described``; ``proof`` is that of the sizes in it, where there is one."""
    inputs = described.inputs()
    if settings.data is not None:
        sets = read_data(settings.data, inputs)
        brought = dict.fromkeys(inputs, f"from {settings.data.name}")
        return Trials([Trial(f"{settings.data.name}[{index}]", feeds) for index, feeds in enumerate(sets)], (), brought)
    model = as_profiled(described.model, profile)
    dims, inputs = inputs_of(model), model_inputs(model)
    proof = proof or prove(model, dims, profile, fit(profile, dims), settings.snap)
    points = shape_points(proof, inputs, settings.in_between, np.random.default_rng(settings.seed))
    ranges = InputRanges(model, proof.tensors)
    feeds, chosen, notes = fitting_feeds(ranges, points, {} if profile is None else profile.data, settings.seed)
    trials = [Trial(point.label, fed, point.optional) for point, fed in zip(points, feeds, strict=True)]
    smaller = None
    if settings.may_be_smaller and not (profile is not None and profile.data):
        folder, least = described.path.absolute().parent, min(points, key=lambda point: point.elements)
        smaller = _smaller(model, folder, ranges, least, settings)
    return Trials(trials, (*proof.notes, *notes), chosen, proof, smaller)


def _smaller(
    model: onnx.ModelProto, folder: Path, ranges: InputRanges, point: ShapePoint, settings: Settings
) -> SmallerTrial | None:
    """The trial that stands in for that at ``point``, if there is one."""
    there = smaller_inputs(model, point.shapes, folder, settings.share_of_smaller)
    if there is None:
        return None
    shapes = there.shapes
    differs = {name: shape for name, shape in shapes.items() if shape != point.shapes[name]}
    told = ", ".join(f"{name} {'x'.join(map(str, shape))}" for name, shape in differs.items())
    label = f"{point.label} (smaller: {told})"
    (feeds,), _, _ = fitting_feeds(ranges, [replace(point, label=label, shapes=shapes)], {}, settings.seed)
    return SmallerTrial(Trial(label, feeds), point.shapes, there)


def further_trials(
    described: OnnxParticipant, profile: BuildProfile | None, settings: Settings, proof: Proof | None = None
) -> Iterator[Trial]:
    """The corners of the optimization profiles with other data, drawn when they are asked for.

    The user's own inputs have no other data.
    """
    for seed in _FURTHER_SEEDS if settings.data is None else ():
        drawn = trials_of(described, profile, replace(settings, seed=settings.seed + seed, in_between=0), proof)
        for trial in sorted(drawn.trials, key=lambda trial: trial.elements):
            yield replace(trial, label=f"{trial.label}, seed {settings.seed + seed}")
