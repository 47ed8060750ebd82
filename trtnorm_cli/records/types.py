"""The types that TensorRT does not have, and their replacement, as manifests hold it."""

from __future__ import annotations

from dataclasses import field

from trtnorm_cli.light_dataclass import dataclass
from trtnorm_cli.record import LEFT_OUT_BY_DEFAULT, Record


@dataclass(frozen=True)
class NarrowedConstant(Record):
    """A stored tensor of doubles that became float32.

    ``reader`` is the first node that reads it. ``worst_relative`` is the largest |float32 − double| / |double| over elements
    that are neither zero nor ``clamped``. These lie beyond float32's largest number, which stands for them. ``raised`` lie
    below its smallest normal number, which stands for them, so that a guard against a division by zero stays one. ``spread`` is
    the largest error over the distance of the largest element from the smallest. Above 1e-3 values that differ can no longer be
    told apart.
    """

    name: str
    reader: str
    elements: int
    worst_relative: float
    clamped: int = field(default=0, metadata=LEFT_OUT_BY_DEFAULT)
    raised: int = field(default=0, metadata=LEFT_OUT_BY_DEFAULT)
    spread: float = field(default=0.0, metadata=LEFT_OUT_BY_DEFAULT)


@dataclass(frozen=True)
class NarrowingCheck(Record):
    """The model as written in float64 against the narrowed one in float32.

    ``tried`` names the inputs that were tried. ``worst`` is the largest distance of an output, relative to its largest value,
    ``output`` and ``at`` say which and where, and ``written`` is that of the same output of the model as written, run in its
    own types, where it was run. ``node`` is where the error came about, where there is one to speak of. ``skipped`` says what
    was not tried, and why.
    """

    tried: tuple[str, ...] = ()
    output: str | None = None
    at: str | None = None
    worst: float | None = None
    written: float | None = None
    node: str | None = None
    skipped: tuple[str, ...] = ()


@dataclass(frozen=True)
class NarrowedDoubles(Record):
    """All that was float64 and is float32. ``computed`` counts the nodes that compute in it."""

    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    constants: tuple[NarrowedConstant, ...]
    computed: int
    check: NarrowingCheck | None = None


@dataclass(frozen=True)
class KeptInteger(Record):
    """A tensor for which ``node`` stays int64. ``value`` is one that it may have and int32 has not."""

    tensor: str
    node: str
    reason: str
    value: int | None = field(default=None, metadata=LEFT_OUT_BY_DEFAULT)


@dataclass(frozen=True)
class NarrowedIntegers(Record):
    """The nodes that compute in int32 what the file has in int64, and the tensors that they make.

    ``casts`` counts those at the border. ``undone`` says why nothing was narrowed where ranges allowed it.
    """

    nodes: tuple[str, ...] = ()
    tensors: tuple[str, ...] = ()
    casts: int = 0
    kept: tuple[KeptInteger, ...] = ()
    undone: str | None = field(default=None, metadata=LEFT_OUT_BY_DEFAULT)


@dataclass(frozen=True)
class TypesRecord(Record):
    """The types that TensorRT does not have, or that were not wanted. What is not there was not in the model."""

    doubles: NarrowedDoubles | None = field(default=None, metadata=LEFT_OUT_BY_DEFAULT)
    integers: NarrowedIntegers | None = field(default=None, metadata=LEFT_OUT_BY_DEFAULT)
