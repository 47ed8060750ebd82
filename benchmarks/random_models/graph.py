"""A random graph while it grows: its tensors with their sizes, its nodes, constants and functions."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import ml_dtypes
import numpy as np
import onnx
from hypothesis import strategies as st
from onnx import TensorProto, helper, numpy_helper

FLOAT, HALF, BFLOAT, DOUBLE = TensorProto.FLOAT, TensorProto.FLOAT16, TensorProto.BFLOAT16, TensorProto.DOUBLE
NUMPY = {FLOAT: np.float32, HALF: np.float16, BFLOAT: ml_dtypes.bfloat16, DOUBLE: np.float64}
# From these opsets on the axes of an operator are an input.
_AXES_INPUT = {
    **dict.fromkeys(("ReduceMean", "ReduceMax", "ReduceMin", "ReduceL2", "ReduceL1", "ReduceSumSquare", "ReduceProd"), 18),
    **dict.fromkeys(("ReduceSum", "Squeeze", "Unsqueeze"), 13),
}


class Dim(NamedTuple):
    """A size: what it is at the smallest inputs, and its name where it is open."""

    size: int
    name: str = ""

    def made(self, size: int, how: str) -> Dim:
        """The size that an operator makes of this one."""
        return Dim(size, f"{self.name}{how}" if self.name else "")


class Held(NamedTuple):
    """A floating tensor."""

    name: str
    dims: tuple[Dim, ...]
    dtype: int

    @property
    def sizes(self) -> tuple[int, ...]:
        return tuple(dim.size for dim in self.dims)

    @property
    def channels(self) -> int:
        """The size of axis 1, or 0 where that is open."""
        return 0 if len(self.dims) < 2 or self.dims[1].name else self.dims[1].size


class _Counter:
    def __init__(self) -> None:
        self.value = 0

    def next(self) -> int:
        self.value += 1
        return self.value


@dataclass
class Growing:
    """A graph, or a body in one: ``outer`` holds what it was made in.

    ``stores`` says how constants are stored: as initializers, as Constant nodes, or either with an Identity behind.
    """

    draw: Any
    opset: int
    stores: str = "initializer"
    nodes: list[onnx.NodeProto] = field(default_factory=list)
    stored: list[onnx.TensorProto] = field(default_factory=list)
    functions: list[onnx.FunctionProto] = field(default_factory=list)
    inputs: list[onnx.ValueInfoProto] = field(default_factory=list)
    domains: set[str] = field(default_factory=set)
    counter: _Counter = field(default_factory=_Counter)

    def body(self, stores: str) -> Growing:
        """A graph inside this one, with names of its own."""
        return Growing(
            self.draw,
            self.opset,
            stores,
            functions=self.functions,
            inputs=self.inputs,
            domains=self.domains,
            counter=self.counter,
        )

    def one_of(self, *choices: Any) -> Any:
        return self.draw(st.sampled_from(choices))

    def number(self, low: int, high: int) -> int:
        return int(self.draw(st.integers(low, high)))

    def chance(self, one_in: int) -> bool:
        """True seldom; hypothesis shrinks it to false."""
        return self.number(0, one_in - 1) == one_in - 1

    def name(self, stem: str) -> str:
        return f"{stem}{self.counter.next()}"

    def op(
        self,
        kind: str,
        inputs: Sequence[str],
        outputs: int = 1,
        domain: str = "",
        axes: Sequence[int] | None = None,
        **attributes: Any,
    ) -> Any:
        """Add a node, and give the name of its output, or the list of them."""
        given = list(inputs)
        if axes is not None:
            if self.opset >= _AXES_INPUT.get(kind, 99):
                given.append(self.constant(np.array(axes, np.int64), "axes"))
            else:
                attributes["axes"] = list(axes)
        names = [self.name(kind.lower()[:6]) for _ in range(outputs)]
        label = "" if len(self.nodes) % 5 == 4 else self.name("node_")
        self.nodes.append(helper.make_node(kind, given, names, name=label, domain=domain, **attributes))
        if domain:
            self.domains.add(domain)
        return names[0] if outputs == 1 else names

    def constant(self, value: np.ndarray, stem: str = "c") -> str:
        """Store ``value``, and give its name."""
        tensor = numpy_helper.from_array(value, self.name(stem))
        if self.stores == "initializer":
            self.stored.append(tensor)
            return str(tensor.name)
        held = str(self.op("Constant", (), value=tensor))
        return str(self.op("Identity", [held])) if self.stores == "identity" else held

    def floats(self, shape: Sequence[int], dtype: int, low: float | None = None, high: float = 1.5, scale: float = 1.0) -> str:
        """Store random numbers, between ``low`` and ``high`` where these are given, else normal ones."""
        rng = np.random.default_rng(self.number(0, 7))
        value = rng.standard_normal(shape) * scale if low is None else rng.uniform(low, high, shape)
        return self.constant(value.astype(NUMPY[dtype]))

    def scalar(self, value: float, dtype: int) -> str:
        shape = self.one_of((), (1,))
        return self.constant(np.full(shape, value).astype(NUMPY[dtype]))

    def integer(self, value: int) -> str:
        return self.constant(np.array(value, np.int64))

    def runtime(self, shape: Sequence[int], dtype: int) -> str:
        """A further input of the model."""
        name = self.name("given")
        self.inputs.append(helper.make_tensor_value_info(name, dtype, list(shape)))
        return name

    def unary(self, kind: str, x: Held, **attributes: Any) -> Held:
        return x._replace(name=self.op(kind, [x.name], **attributes))
