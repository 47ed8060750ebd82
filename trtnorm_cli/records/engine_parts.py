"""The parts of a parsed network and of a compiled engine, as records. Types are named as ``trt.DataType`` names them."""

from __future__ import annotations

from dataclasses import field

from trtnorm_cli.light_dataclass import dataclass
from trtnorm_cli.record import LEFT_OUT_BY_DEFAULT, Record

Sizes = tuple[int, ...]


@dataclass(frozen=True)
class NetworkTensor(Record):
    """A tensor of the parsed network. ``shape`` is None where TensorRT cannot compute it."""

    name: str
    dtype: str
    shape: Sizes | None


@dataclass(frozen=True)
class NetworkLayer(Record):
    """A layer of the parsed network. ``weights`` is the type of the weights that a convolution holds."""

    name: str
    type: str
    outputs: tuple[NetworkTensor, ...] = ()
    weights: str | None = field(default=None, metadata=LEFT_OUT_BY_DEFAULT)


@dataclass(frozen=True)
class KernelTensor(Record):
    """An input or output of a kernel, with the type and layout as the builder's log writes them."""

    name: str
    shape: Sizes
    dtype: str
    format: str


@dataclass(frozen=True)
class Kernel(Record):
    """A layer of the compiled engine, and the ONNX nodes that it comes from.

    ``constants`` are the weights that it reads. Releases before 1.7 of TensorRT for RTX do not list them.
    """

    name: str
    type: str
    tactic: str
    inputs: tuple[KernelTensor, ...]
    outputs: tuple[KernelTensor, ...]
    onnx_nodes: tuple[str, ...]
    constants: tuple[KernelTensor, ...] = field(default=(), metadata=LEFT_OUT_BY_DEFAULT)


@dataclass(frozen=True)
class UnreadKernel(Record):
    """The line of the log on a compiled layer that has another form than all known releases write."""

    unread: str

    @property
    def type(self) -> str:
        return "unread"


CompiledLayer = Kernel | UnreadKernel
# These launch nothing on the device: stream synchronisation and the computation of shapes.
NOT_LAUNCHED = frozenset({"signal", "wait", "shape_call"})


def launched(kernels: tuple[CompiledLayer, ...]) -> tuple[CompiledLayer, ...]:
    """The compiled layers that launch work on the device."""
    return tuple(kernel for kernel in kernels if kernel.type not in NOT_LAUNCHED)


@dataclass(frozen=True)
class BindingRange(Record):
    """The shapes of a binding in one optimization profile. An output has none."""

    min: Sizes | None = field(default=None, metadata=LEFT_OUT_BY_DEFAULT)
    opt: Sizes | None = field(default=None, metadata=LEFT_OUT_BY_DEFAULT)
    max: Sizes | None = field(default=None, metadata=LEFT_OUT_BY_DEFAULT)


@dataclass(frozen=True)
class Binding(Record):
    """An input or output of the compiled engine."""

    name: str
    mode: str
    dtype: str
    shape: Sizes
    location: str
    profiles: tuple[BindingRange, ...]
