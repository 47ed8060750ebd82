"""The work and findings of an export, as records. They need no PyTorch."""

from __future__ import annotations

from dataclasses import field
from typing import Literal

from trtnorm_cli.light_dataclass import dataclass
from trtnorm_cli.record import LEFT_OUT_BY_DEFAULT, Record
from trtnorm_cli.records.comparison import ComparisonRecord
from trtnorm_cli.records.digests import FileDigest
from trtnorm_cli.records.precision import PrecisionRecord

# The format of the record; it changes when a reader of the old one would misread the new one.
FORMAT = 1
Severity = Literal["fixed", "warning", "refused"]
Statistics = Literal["none", "tracked", "untouched", "frozen"]


@dataclass(frozen=True)
class AccidentRecord(Record):
    """One fault found at one module, of a kind that ``--accept`` knows. ``module`` is its path, empty for the model itself.

    ``fixed`` was put right in the module that is exported, ``warning`` is left as it is, ``refused`` ends the export.
    """

    kind: str
    module: str
    message: str
    severity: Severity
    hint: str | None = None


@dataclass(frozen=True)
class NormModule(Record):
    """One normalization module.

    ``shape`` is what the module says that it normalizes, ``affine`` whether it scales, ``dtypes`` the types of its parameters
    and statistics, ``momentum`` None for a cumulative average and for modules without. ``mean`` and ``variance`` are the
    smallest and largest running statistic.
    """

    path: str
    type: str
    family: str
    recognised_by: str
    shape: tuple[int, ...] | None
    groups: int | None
    epsilon: int | float | None
    affine: bool
    momentum: float | None
    dtypes: tuple[str, ...]
    statistics: Statistics
    mean: tuple[float, float] | None
    variance: tuple[float, float] | None
    training: bool


@dataclass(frozen=True)
class LoadedWeights(Record):
    """The weights that were loaded: tensors that fit, names that the file lacks, names that the model lacks."""

    file: str
    sha256: str
    loaded: int
    missing: tuple[str, ...]
    unexpected: tuple[str, ...]
    notes: tuple[str, ...]


@dataclass(frozen=True)
class ExportedInput(Record):
    """An input of the exported model."""

    name: str
    dtype: str
    shape: tuple[int | str, ...]


@dataclass(frozen=True)
class LearntDimension(Record):
    """One dimension of the model: the sizes asked for, and those that the model takes.

    ``reasons`` are the guards that told, each with the module and the source line that it comes from. ``places`` says which
    axes it is: ``image[2]``.
    """

    name: str
    asked: tuple[int, int, int]
    taken: tuple[int, int, int]
    multiple_of: int
    places: tuple[str, ...]
    reasons: tuple[str, ...] = ()
    named: bool = True

    @property
    def changed(self) -> bool:
        return self.asked != self.taken


@dataclass(frozen=True)
class ExportVersions(Record):
    """The programs that made an export."""

    trtnorm: str
    torch: str


@dataclass(frozen=True)
class ExportRecord(Record):
    """The contents of ``MODEL.onnx.json``, which tell how the file came about.

    ``precision`` is there where the model was converted after the export.
    """

    format: int
    versions: ExportVersions
    spec: str
    weights: LoadedWeights | None
    model: FileDigest
    exporter: str
    because: str
    opset: int
    inputs: tuple[ExportedInput, ...]
    outputs: tuple[str, ...]
    dimensions: tuple[LearntDimension, ...]
    cleaning: dict[str, int]
    comparison: ComparisonRecord | None
    skipped: tuple[str, ...]
    accidents: tuple[AccidentRecord, ...]
    normalizations: tuple[NormModule, ...]
    notes: tuple[str, ...]
    exporter_warnings: tuple[str, ...]
    seconds: dict[str, float]
    precision: PrecisionRecord | None = field(default=None, metadata=LEFT_OUT_BY_DEFAULT)
