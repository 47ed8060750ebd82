"""The participants of a comparison: ONNX files, TensorRT's networks of them, engines, and PyTorch modules that ran before."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import ClassVar, NamedTuple

import numpy as np
import onnx

from trtnorm_cli.errors import UsageProblem
from trtnorm_cli.evaluate.tolerance import epsilon
from trtnorm_cli.light_dataclass import dataclass
from trtnorm_cli.onnx_model.load import LoadedModel, load_model, read_model
from trtnorm_cli.onnx_model.plugin_nodes import by_definition, has_definitions
from trtnorm_cli.onnx_model.save import MAPPED_FROM, save_model
from trtnorm_cli.onnx_model.shapes import TensorType, model_inputs, tensor_type
from trtnorm_cli.onnx_model.walk import all_graphs
from trtnorm_cli.target import NETWORK_PREFIX
from trtnorm_cli.tensorrt.network.launch import PARSE_LIMITS, NetworkTranslation, network_of


class Recorded(NamedTuple):
    """Outputs of one run by name, and those in float64 or None."""

    native: dict[str, np.ndarray]
    exact: dict[str, np.ndarray] | None


@dataclass(frozen=True)
class _Described:
    """A participant whose inputs and outputs an ONNX model describes."""

    label: str
    model: onnx.ModelProto

    def inputs(self) -> dict[str, TensorType]:
        return model_inputs(self.model)

    def outputs(self) -> dict[str, TensorType | None]:
        return {value.name: tensor_type(value) for value in self.model.graph.output}

    @cached_property
    def stored_types(self) -> frozenset[int]:
        """The ONNX types of the inputs and constants, and those that a Cast makes: a model may be half without weights."""
        nodes = (node for graph in all_graphs(self.model.graph) for node in graph.node if node.op_type == "Cast")
        made = {attribute.i for node in nodes for attribute in node.attribute if attribute.name == "to"}
        constants = {tensor.data_type for tensor in self.model.graph.initializer}
        return frozenset({*made, *constants, *(kind.dtype for kind in self.inputs().values())})


@dataclass(frozen=True)
class ModuleParticipant(_Described):
    """A PyTorch module that ran before, in a process of its own.

    ``recorded`` holds its outputs by trial. ``model`` is an interface without nodes.
    """

    kind: ClassVar[str] = "module"

    recorded: Mapping[str, Recorded]


@dataclass(frozen=True)
class OnnxParticipant(_Described):
    """An ONNX file that ONNX Runtime runs.

    With ``shares_tensors`` the names of its inner tensors mean what they mean in the reference. One that ``is_resized`` is run
    at other sizes of its inputs than the file states.
    """

    kind: ClassVar[str] = "onnx"

    path: Path
    notes: tuple[str, ...] = ()
    shares_tensors: bool = False
    is_resized: bool = False


@dataclass(frozen=True)
class NetworkParticipant(OnnxParticipant):
    """TensorRT's network of an ONNX file. ``path`` is the file that it was translated back to."""

    kind: ClassVar[str] = "network"


@dataclass(frozen=True)
class EngineParticipant:
    """An engine, which TensorRT runs. Its inputs and outputs are known only on a machine with a GPU."""

    kind: ClassVar[str] = "engine"

    label: str
    path: Path
    notes: tuple[str, ...] = ()


RunnableReference = ModuleParticipant | OnnxParticipant
Candidate = OnnxParticipant | EngineParticipant


def onnx_participant(path: Path, label: str | None = None) -> OnnxParticipant:
    """An ONNX file, read and validated."""
    return loaded_participant(load_model(path), label)


def loaded_participant(loaded: LoadedModel, label: str | None = None) -> OnnxParticipant:
    """An ONNX file that was read before."""
    return OnnxParticipant(label or str(loaded.path), loaded.proto, loaded.path, loaded.warnings)


def loaded_network(
    loaded: LoadedModel,
    scratch: Path,
    backend: str | None,
    label: str | None = None,
    memory_bytes: int | None = None,
    is_own: bool = False,
) -> NetworkParticipant:
    """TensorRT's network of a model that was read before, translated back to ONNX in ``scratch``.

    That of a file that ``is_own``, which this program alone writes to, comes beside it and refers to its weights. Raises
    ``TensorRTRefusal`` when the parser refuses the model or a layer has no translation.
    """
    number = len(list(scratch.iterdir()))
    folder, name = (loaded.folder, f"{scratch.name}-network") if is_own else (scratch, "network")
    target, parsed, notes = folder / f"{name}-{number}.onnx", loaded.path, []
    if has_definitions(loaded.proto):
        parsed = scratch / f"definition-{number}.onnx"
        save_model(by_definition(loaded.proto), parsed, loaded.folder, MAPPED_FROM)
        notes.append("its plugin nodes are taken for what they are defined to compute; what they do compute, an engine shows")
    translation = network_of(parsed, target, backend, replace(PARSE_LIMITS, memory_bytes=memory_bytes))
    return translated_network(translation, label or f"{NETWORK_PREFIX}{loaded.path}", notes)


def translated_network(translation: NetworkTranslation, label: str, notes: Sequence[str] = ()) -> NetworkParticipant:
    """TensorRT's network that was written as ONNX before."""
    proto = read_model(translation.network)
    return NetworkParticipant(label, proto, translation.network, (*notes, *translation.notes))


def engine_participant(path: Path) -> EngineParticipant:
    """An engine; it runs only on a machine with a GPU."""
    if not path.is_file():
        raise UsageProblem("there is no such engine", str(path), "check the path")
    return EngineParticipant(str(path), path)


def pair_names(
    reference: Mapping[str, object], candidate: Mapping[str, object], what: str, label: str, by_position: bool
) -> dict[str, str]:
    """Reference name -> candidate name for inputs or outputs.

    Raises ``UsageProblem`` with both sides when the names differ and ``by_position`` is not set, or the counts differ.
    """
    ours, theirs = list(reference), list(candidate)
    if set(ours) == set(theirs):
        return {name: name for name in ours}
    sides = f"the reference has {', '.join(ours) or 'none'}; {label} has {', '.join(theirs) or 'none'}"
    if len(ours) != len(theirs):
        raise UsageProblem(f"the {what} differ in number: {sides}", hint="compare models of one interface")
    if not by_position:
        raise UsageProblem(f"the {what} have different names: {sides}", hint="match them in order with --by-position")
    return dict(zip(ours, theirs, strict=True))


def require_same_types(
    reference: Mapping[str, TensorType], candidate: Mapping[str, TensorType], pairs: Mapping[str, str], label: str
) -> None:
    """Raise ``UsageProblem`` when paired inputs differ in rank, or in element type other than float64 against float32.

    TensorRT computes in float32 what a model declares as double.
    """
    for ours, theirs in pairs.items():
        a, b = reference[ours], candidate[theirs]
        if a.shape is not None and b.shape is not None and len(a.shape) != len(b.shape):
            raise UsageProblem(f"input {ours} has rank {len(a.shape)} in the reference and {len(b.shape)} in {label}")
        demoted = {a.dtype, b.dtype} == {onnx.TensorProto.DOUBLE, onnx.TensorProto.FLOAT}
        if a.dtype != b.dtype and not demoted:
            types = " and ".join(onnx.TensorProto.DataType.Name(kind.dtype).lower() for kind in (a, b))
            raise UsageProblem(f"input {ours} has the types {types} in the reference and in {label}")


def coarsest_ulp(*participants: Candidate | RunnableReference, arrays: Iterable[np.ndarray | None] = ()) -> float:
    """The unit in the last place of the coarsest floating type in which ``participants`` compute, or ``arrays`` are."""
    described = [one for one in participants if not isinstance(one, EngineParticipant)]
    stored = frozenset().union(*(one.stored_types for one in described))
    kinds = [onnx.helper.tensor_dtype_to_np_dtype(kind) for kind in stored if kind]
    plain = [kind for kind in kinds if kind.name in ("float64", "float32", "float16", "bfloat16")]
    given = [array.dtype for array in arrays if array is not None]
    return max((epsilon(kind) for kind in (*plain, *given)), default=0.0) or epsilon(np.dtype(np.float32))
