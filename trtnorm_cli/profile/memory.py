"""The memory that an optimization profile implies, for all tensors of the unfused graph that are alive at once, at max.

Tensors are alive from the node that makes them to the last one that reads them, inputs and outputs all the time. Reshapes share
the memory of what they reshape. An engine fuses operators and needs less. Its scratch memory comes on top.
"""

from __future__ import annotations

from collections.abc import Mapping

import onnx

from trtnorm_cli.light_dataclass import dataclass
from trtnorm_cli.onnx_model.stored import tensor_bytes
from trtnorm_cli.onnx_model.walk import all_tensors, tensors_read
from trtnorm_cli.profile.edits import Corners
from trtnorm_cli.profile.model import BuildProfile
from trtnorm_cli.profile.problems import Problem
from trtnorm_cli.record import Record
from trtnorm_cli.shapes.evaluate import values_at
from trtnorm_cli.shapes.expression import Size
from trtnorm_cli.shapes.propagate import Propagation
from trtnorm_cli.shapes.tensor import Shape

MOST_BYTES = 80 << 30
_SHARES_MEMORY = frozenset({"Reshape", "Squeeze", "Unsqueeze", "Flatten", "Identity", "Dropout"})
_HALF_BYTE = 4
_DEFAULT_BITS = 32


@dataclass(frozen=True)
class LargestTensor(Record):
    """The tensor with the most elements."""

    name: str
    elements: int


@dataclass(frozen=True)
class MemoryRecord(Record):
    """A ``MemoryEstimate`` as the manifest has it."""

    weights_bytes: int
    activations_bytes: int
    at_node: str
    largest_tensor: LargestTensor
    tensors_of_unknown_size: int


@dataclass(frozen=True)
class MemoryEstimate:
    """Bytes of the weights and of the tensors alive at ``node``, where they are most, for one optimization profile.

    ``largest`` is the tensor with the most elements. ``unknown`` counts the tensors whose size is not known.
    """

    profile: str
    weights: int
    activations: int
    node: str
    largest: str
    largest_elements: int
    unknown: int = 0

    @property
    def total(self) -> int:
        return self.weights + self.activations

    def record(self) -> MemoryRecord:
        largest = LargestTensor(self.largest, self.largest_elements)
        return MemoryRecord(self.weights, self.activations, self.node, largest, self.unknown)


def estimate_memory(model: onnx.ModelProto, found: Propagation, profile: str, sizes: Mapping[str, Corners]) -> MemoryEstimate:
    """The estimate for the largest sizes of one optimization profile."""
    at = {name: corners[2] for name, corners in sizes.items()}
    elements = _elements(found, at)
    produced = [(node, [n for n in node.output if n]) for node in model.graph.node]
    base = _bases(model.graph)
    last = _last_uses(model.graph, base)
    alive = {v.name: _bytes(found, elements, v.name) for v in model.graph.input if elements.get(v.name) is not None}
    for initializer in model.graph.initializer:
        alive.pop(initializer.name, None)
    current = sum(alive.values())
    most, busiest, unknown = current, "", 0
    for index, (node, outputs) in enumerate(produced):
        for name in outputs:
            if elements.get(name) is None:
                unknown += 1
            elif base.get(name, name) == name:
                alive[name] = _bytes(found, elements, name)
                current += alive[name]
        if current > most:
            most, busiest = current, node.name or f"-> {node.output[0]}"
        for name in last.get(index, ()):
            current -= alive.pop(name, 0)
    sized = {name: count for name, count in elements.items() if count is not None}
    largest = max(sized, key=lambda name: sized[name], default="")
    weights = sum(tensor_bytes(tensor) for tensor in all_tensors(model))
    return MemoryEstimate(profile, weights, most, busiest, largest, sized.get(largest, 0), unknown)


def _elements(found: Propagation, at: Mapping[str, int]) -> dict[str, int | None]:
    sizes: dict[Shape | None, Size | None] = {}
    for tensor in found.tensors.values():
        if tensor.shape not in sizes:
            sizes[tensor.shape] = tensor.size
    known = {shape: size for shape, size in sizes.items() if size is not None}
    counts = dict(zip(known, values_at(list(known.values()), at), strict=True))
    return {name: counts.get(tensor.shape) for name, tensor in found.tensors.items()}


def _bytes(found: Propagation, elements: Mapping[str, int | None], name: str) -> int:
    return -(-(elements[name] or 0) * _bits(found.tensors[name].dtype) // 8)


def _bits(dtype: int) -> int:
    name = onnx.TensorProto.DataType.Name(dtype) if dtype else "UNDEFINED"
    if name.endswith("INT4") or name.startswith("FLOAT4"):
        return _HALF_BYTE
    try:
        return int(onnx.helper.tensor_dtype_to_np_dtype(dtype).itemsize) * 8
    except (KeyError, TypeError):
        return _DEFAULT_BITS


def _bases(graph: onnx.GraphProto) -> dict[str, str]:
    """The owner of the memory of each tensor that shares another's."""
    base: dict[str, str] = {}
    for node in graph.node:
        if node.op_type in _SHARES_MEMORY and node.output:
            base[node.output[0]] = base.get(node.input[0], node.input[0])
    return base


def _last_uses(graph: onnx.GraphProto, base: Mapping[str, str]) -> dict[int, list[str]]:
    """For the place of each node, the tensors that nobody reads after it. Inputs and outputs of the graph stay."""
    last: dict[str, int] = {}
    for index, node in enumerate(graph.node):
        for name in (*node.output, *tensors_read(node)):
            if name:
                last[base.get(name, name)] = index
    stay = {base.get(v.name, v.name) for v in (*graph.input, *graph.output)}
    freed: dict[int, list[str]] = {}
    for name, index in last.items():
        if name not in stay:
            freed.setdefault(index, []).append(name)
    return freed


def memory_problem(estimate: MemoryEstimate, profile: BuildProfile, index: int) -> Problem | None:
    """Say that the estimate is above what is allowed."""
    limit = profile.max_memory or MOST_BYTES
    if estimate.total <= limit:
        return None
    gib = 1 << 30
    needed = -(-estimate.total // gib)
    path = (
        ("max_memory",)
        if profile.max_memory
        else ("optimization_profiles", index)
        if profile.optimization_profiles
        else ("dims",)
    )
    text = (
        f"at max, optimization profile {estimate.profile!r} needs about {estimate.total / gib:.1f} GiB: "
        f"{estimate.weights / gib:.1f} GiB of weights and {estimate.activations / gib:.1f} GiB of tensors alive at "
        f"{estimate.node or 'the inputs'}; allowed are {limit / gib:.1f} GiB"
    )
    return Problem(path, text, f"ask for a smaller max; or, if you have that much memory, write max_memory: {needed}GiB")
