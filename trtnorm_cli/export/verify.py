"""The exported model against the module that it was made from, on the inputs that the module was run on."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import onnx

from trtnorm_cli.compare.comparison import compare
from trtnorm_cli.compare.participants import ModuleParticipant, OnnxParticipant, Recorded
from trtnorm_cli.compare.result import Comparison, Options, Trial
from trtnorm_cli.compare.session import profile_tolerances
from trtnorm_cli.evaluate.tensor_files import read_tensor
from trtnorm_cli.export.request import TrialRecord
from trtnorm_cli.onnx_model.load import read_model
from trtnorm_cli.profile.model import BuildProfile
from trtnorm_cli.progress import stage


def read_trials(folder: Path, records: Sequence[TrialRecord]) -> tuple[list[Trial], dict[str, Recorded]]:
    """The inputs that the module was run on, and what it gave, from the files of the export process."""
    trials, recorded = [], {}
    for record in records:
        feeds = {name: read_tensor(folder, entry) for name, entry in record.feeds.items()}
        native = {name: read_tensor(folder, entry) for name, entry in record.outputs.items()}
        exact = None
        if record.exact is not None:
            exact = {name: read_tensor(folder, entry) for name, entry in record.exact.items()}
        trials.append(Trial(record.label, feeds, record.optional))
        recorded[record.label] = Recorded(native, exact)
    return trials, recorded


def module_participant(label: str, inputs: Sequence[onnx.ValueInfoProto], recorded: dict[str, Recorded]) -> ModuleParticipant:
    """A module that has run. ``inputs`` are those of the model that it is compared with."""
    first = next(iter(recorded.values()))
    outputs = [onnx.helper.make_tensor_value_info(name, _element_type(array), None) for name, array in first.native.items()]
    graph = onnx.helper.make_graph([], "module", list(inputs), outputs)
    return ModuleParticipant(label, onnx.helper.make_model(graph), recorded)


def _element_type(array: np.ndarray) -> int:
    return onnx.helper.np_dtype_to_tensor_dtype(array.dtype)


def verified(label: str, model: Path, profile: BuildProfile | None, folder: Path, records: Sequence[TrialRecord]) -> Comparison:
    """Compare ``model`` with the module's runs in ``records``. ONNX Runtime runs it with its optimisation off."""
    proto = read_model(model)
    trials, recorded = read_trials(folder, records)
    reference = module_participant(label, proto.graph.input, recorded)
    candidate = OnnxParticipant(model.name, proto, model)
    with stage("compare"):
        return compare(reference, [candidate], trials, Options(tolerances=profile_tolerances(profile)))
