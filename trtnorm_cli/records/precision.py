"""The types of a model in another precision as records: what the manifest and the commands show."""

from __future__ import annotations

from collections import Counter
from dataclasses import field
from typing import Any, Literal

from trtnorm_cli.light_dataclass import dataclass
from trtnorm_cli.record import LEFT_OUT_BY_DEFAULT, Record

# asked: the build profile says so. type: TensorRT does not compute the operator in the type. constant: a constant does not
# survive it. norm: a normalization in pieces. range: values do not fit. mask: what is added to scores before a softmax.
# control-flow: inside or beside If, Loop, Scan. budget: the error would be too large. author: the file casts to float there.
# joined: it stands between nodes that stay float32, and casting there and back would cost more.
Cause = Literal["asked", "type", "constant", "norm", "range", "mask", "control-flow", "budget", "author", "joined"]


@dataclass(frozen=True)
class Kept(Record):
    """A node that stays float32.

    ``node`` is its name for people, ``key`` its first output. ``reason`` is one sentence with numbers. ``value`` of ``tensor``
    is held against ``limit``. ``error`` is the node's share of the relative error, where a budget raised it.
    """

    node: str
    key: str
    operator: str
    cause: Cause
    reason: str
    tensor: str | None = None
    value: float | None = None
    limit: float | None = None
    error: float | None = None


@dataclass(frozen=True)
class Replaced(Record):
    """A constant that has another value in the low type than its own rounded: ``before`` became ``after``, and why."""

    tensor: str
    node: str
    before: float
    after: float
    reason: str


@dataclass(frozen=True)
class Scaled(Record):
    """A tensor that would overflow and is held as 2 to the power of −``exponent`` of itself, which rounds nothing otherwise."""

    tensor: str
    exponent: int


@dataclass(frozen=True)
class OutputError(Record):
    """The error of one output at one set of inputs: relative L2 against the model in float32.

    ``emulated`` rounds each node's result to its type; ``network`` does so in the network that TensorRT's parser made.
    """

    output: str
    at: str
    emulated: float | None = None
    network: float | None = None

    @property
    def error(self) -> float:
        """The error that counts: that of TensorRT's network where it is known."""
        return self.network if self.network is not None else self.emulated or 0.0


@dataclass(frozen=True)
class PrecisionRecord(Record):
    """A model in another precision.

    ``type`` is what was asked for and ``io`` what inputs and outputs are. ``low`` counts the nodes that compute in it, and
    ``kept`` has those that stay float32. ``casts`` counts Cast nodes that were added, ``constants`` are those that changed.
    ``max_error`` bounds ``errors``; it is None where nothing does. ``calibration`` names the inputs of the ranges and errors,
    ``data`` says where they came from (random ones from ``seed``), ``evaluations`` how often the model was run to find what
    must stay float32. ``scaled`` are tensors that are held as a power of two of themselves. ``unseen`` are errors at inputs
    that nothing was settled on. ``notes`` are for the user.
    """

    type: str
    io: str
    max_error: float | None
    low: int
    casts: int
    kept: tuple[Kept, ...] = ()
    constants: tuple[Replaced, ...] = ()
    errors: tuple[OutputError, ...] = ()
    calibration: tuple[str, ...] = ()
    data: dict[str, str] = field(default_factory=dict)
    evaluations: int = 0
    seed: int = 0
    notes: tuple[str, ...] = ()
    unseen: tuple[OutputError, ...] = ()
    scaled: tuple[Scaled, ...] = field(default=(), metadata=LEFT_OUT_BY_DEFAULT)

    @property
    def has_users_data(self) -> bool:
        """True where the user brought the inputs."""
        return any(source.startswith("from ") for source in self.data.values())

    @property
    def causes(self) -> dict[str, int]:
        """How many nodes stay float32 for which cause."""
        return dict(Counter(one.cause for one in self.kept).most_common())

    @property
    def worst(self) -> OutputError | None:
        """The output that is off most, by TensorRT's network where that is known."""
        return max(self.errors, key=lambda one: one.error, default=None)

    @property
    def worst_unseen(self) -> OutputError | None:
        """The output that is off most at inputs that nothing was settled on."""
        return max(self.unseen, key=lambda one: one.error, default=None)

    def to_json(self) -> dict[str, Any]:
        """The record as JSON values."""
        return super().to_json()
