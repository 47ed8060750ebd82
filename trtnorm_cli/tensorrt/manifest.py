"""The manifest: everything that says what is in an engine and how it came about. Paths are file names only."""

from __future__ import annotations

import json
import platform
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import field, fields
from importlib import metadata
from pathlib import Path
from typing import Annotated, Any

import onnx
from pydantic import Field, ValidationError

from trtnorm_cli import __version__
from trtnorm_cli.errors import ModelError
from trtnorm_cli.light_dataclass import dataclass
from trtnorm_cli.onnx_model.shapes import tensor_type
from trtnorm_cli.profile.fit import ProfileRecord
from trtnorm_cli.profile.prove import ProofRecord
from trtnorm_cli.record import LEFT_OUT_BY_DEFAULT, Record, json_of, read
from trtnorm_cli.records.comparison import ComparisonRecord
from trtnorm_cli.records.cost import CostTotal, EngineCostRecord
from trtnorm_cli.records.digests import Digest, FileDigest
from trtnorm_cli.records.engine_parts import Binding, CompiledLayer, NetworkLayer, NetworkTensor, launched
from trtnorm_cli.records.export import ExportRecord
from trtnorm_cli.records.precision import PrecisionRecord
from trtnorm_cli.records.types import TypesRecord
from trtnorm_cli.rewrite.effect import Effect
from trtnorm_cli.rewrite.kernels import Cost
from trtnorm_cli.rewrite.norms.record import CompositeOutcome
from trtnorm_cli.rewrite.rewritten import NormOutcome
from trtnorm_cli.rewrite.rule import Change, Rejection, Undone
from trtnorm_cli.tensorrt.request import BuildResult

# The format of the manifest; it changes when a reader of the old one would misread the new one.
FORMAT = 1
# Keys of the manifest that are not the name of their field.
_SPOKEN = {"every_change": "every change", "no_change": "no change"}
_AGAIN = "build the engine again"


@dataclass(frozen=True)
class Versions:
    """The programs that made the engine."""

    trtnorm: str
    python: str
    onnx: str
    onnxruntime: str
    backend: str
    tensorrt: str

    @staticmethod
    def of(result: BuildResult) -> Versions:
        return Versions(
            trtnorm=__version__,
            python=platform.python_version(),
            onnx=onnx.__version__,
            onnxruntime=metadata.version("onnxruntime"),
            backend=result.backend,
            tensorrt=result.version,
        )


@dataclass(frozen=True)
class EngineFile:
    """The engine's bytes, and what TensorRT says of the compiled engine."""

    file: str
    sha256: str
    bytes: int
    targets: tuple[str, ...] = ()
    newer_too: bool = False
    bindings: tuple[Binding, ...] = ()

    @staticmethod
    def of(engine: Path, sha256: str, result: BuildResult) -> EngineFile:
        """``engine`` is the final name, ``sha256`` the digest of its bytes."""
        return EngineFile(engine.name, sha256, result.engine_bytes, result.targets, result.newer_too, result.bindings)


@dataclass(frozen=True)
class Normalizations:
    """How many normalizations the model has: ``nodes`` by operator, ``pieces`` by kind; and what became of each."""

    nodes: dict[str, int]
    pieces: dict[str, int] = field(default_factory=dict)
    composite: tuple[CompositeOutcome, ...] = ()
    outcomes: tuple[NormOutcome, ...] = ()


@dataclass(frozen=True)
class Network:
    """The network that TensorRT's parser made of the model, and the kernels of the compiled engine.

    ``dimensions`` are the shapes of its inputs and outputs as the model declares them, with the names of dynamic sizes.
    """

    inputs: tuple[NetworkTensor, ...]
    outputs: tuple[NetworkTensor, ...]
    layers: tuple[NetworkLayer, ...]
    layers_by_type: dict[str, int]
    kernels: tuple[CompiledLayer, ...]
    kernels_by_type: dict[str, int]
    dimensions: dict[str, tuple[int | str | None, ...] | None] = field(default_factory=dict, metadata=LEFT_OUT_BY_DEFAULT)

    @staticmethod
    def of(result: BuildResult, model: onnx.ModelProto) -> Network:
        ends = (*model.graph.input, *model.graph.output)
        kinds = {value.name: tensor_type(value) for value in ends}
        return Network(
            inputs=result.inputs,
            outputs=result.outputs,
            layers=result.layers,
            layers_by_type=count(layer.type for layer in result.layers),
            kernels=result.kernels,
            kernels_by_type=kernels_by_type(result),
            dimensions={name: kind.shape for name, kind in kinds.items() if kind is not None},
        )

    @property
    def launches(self) -> int:
        """How many kernels the engine launches."""
        return sum(self.kernels_by_type.values())


@dataclass(frozen=True)
class Kernels:
    """The kernels that the compiled engine of a variant launches, by type, its size, and its estimated cost.

    ``reason`` says why there is none.
    """

    kernels_by_type: dict[str, int]
    engine_bytes: int
    reason: str = ""
    cost: CostTotal | None = None

    @property
    def launches(self) -> int:
        return sum(self.kernels_by_type.values())


@dataclass(frozen=True)
class Choice(Record):
    """The result of a search for the least time or the fewest kernels.

    ``no_change`` is None where the engine of every change showed that nothing was to be gained without. ``left_out`` are the
    tensors whose computation stays as it is. Of these ``not_tried`` stayed from the start, so that ``every_change`` is every
    other change.
    """

    every_change: Annotated[Cost, Field(alias=_SPOKEN["every_change"])]
    no_change: Annotated[Cost | None, Field(alias=_SPOKEN["no_change"])]
    chosen: Cost
    left_out: tuple[str, ...]
    builds: int
    not_tried: tuple[str, ...] = field(default=(), metadata=LEFT_OUT_BY_DEFAULT)

    def to_json(self) -> dict[str, Any]:
        """The choice as JSON values."""
        return {_SPOKEN.get(key, key): value for key, value in super().to_json().items()}


@dataclass(frozen=True)
class Optimization:
    """The policy for optional changes and what came of it.

    ``before`` are the kernels without optional changes, where that was measured. ``more`` says why the engine launches more.
    """

    policy: str
    chosen: Choice | None
    before: Kernels | None
    more: str | None = None


@dataclass(frozen=True)
class BackendUsed:
    """The backend of a build, and the GPUs of the machine: kernels are chosen by measuring them there."""

    name: str
    version: str
    devices: tuple[str, ...]


@dataclass(frozen=True)
class MadeFrom:
    """All that an engine depends on: digests of all that is read, the versions of the programs, and the backend."""

    file: str
    model: str
    weights: str | None
    plugins: tuple[str, ...]
    profile: str
    trtnorm: str
    packages: dict[str, str]
    backend: BackendUsed | None = None
    data: str | None = None


@dataclass(frozen=True, kw_only=True)
class Manifest:
    """The contents of ``MODEL.engine.json``, with one field for each key.

    ``rules`` has the algebra of each rule that made a change, in the words of the release that built the engine. ``profile`` is
    the build profile as that release wrote it, whose keys another one may not know. ``precision`` says what became of types,
    and ``float32`` what kernels the model has without that. ``cost`` is an estimate: nothing was run for it.
    """

    format: int = FORMAT
    versions: Versions
    source: FileDigest
    export: ExportRecord | None = None
    weights: FileDigest | None = None
    plugins: tuple[FileDigest, ...] = ()
    rewritten: Digest | None = None
    engine: EngineFile
    profile: dict[str, Any] | None = None
    optimization_profiles: tuple[ProfileRecord, ...]
    cleaning: dict[str, int]
    normalizations: Normalizations
    changes: tuple[Change, ...]
    rules: dict[str, str] = field(default_factory=dict)
    undone: tuple[Undone, ...] = ()
    refused: tuple[Rejection, ...] = ()
    effects: tuple[Effect, ...] = ()
    network: Network
    cost: EngineCostRecord | None = None
    rewrite_warnings: tuple[str, ...] = ()
    warnings: tuple[str, ...]
    types: TypesRecord | None = None
    optimize: Optimization
    precision: PrecisionRecord | None = None
    float32: Kernels | None = None
    comparison: ComparisonRecord | None = None
    made_from: MadeFrom | None = None
    reproducible: bool | None = None
    proof: ProofRecord | None = None
    seconds: dict[str, float]

    def to_json(self) -> dict[str, Any]:
        """The manifest as JSON values."""
        return {one.name: json_of(getattr(self, one.name)) for one in fields(self)}

    @staticmethod
    def load(path: Path) -> Manifest:
        """Read the manifest in ``path``; raises ``ModelError`` for anything else."""
        try:
            values = json.loads(path.read_text(encoding="utf-8"))
        except (UnicodeDecodeError, json.JSONDecodeError, RecursionError) as error:
            raise ModelError("the manifest is not JSON", str(path), _AGAIN) from error
        if not isinstance(values, dict) or values.get("format") != FORMAT:
            what = f"this is no manifest of format {FORMAT}, the one that this trtnorm writes"
            raise ModelError(what, str(path), _AGAIN)
        try:
            return read(Manifest, values)
        except ValidationError as error:
            raise ModelError(_what_is_wrong(error), str(path), _AGAIN) from error


def _what_is_wrong(error: ValidationError) -> str:
    problems = error.errors(include_url=False)
    missing = sorted(_place(problem["loc"]) for problem in problems if problem["type"] == "missing")
    if missing:
        return f"the manifest lacks {', '.join(missing)}"
    return f"the manifest cannot be read: {_place(problems[0]['loc'])}: {problems[0]['msg']}"


def _place(location: Sequence[int | str]) -> str:
    return ".".join(str(step) for step in location)


def manifest_of(engine: Path) -> Path:
    """Where the manifest of ``engine`` is."""
    return engine.with_name(engine.name + ".json")


def kernels_by_type(result: BuildResult) -> dict[str, int]:
    """How many kernels of each type an engine launches."""
    return count(kernel.type for kernel in launched(result.kernels))


def count(names: Iterable[str]) -> dict[str, int]:
    """How often each name occurs, most frequent first, equal counts by name."""
    return dict(sorted(Counter(names).items(), key=lambda item: (-item[1], item[0])))
