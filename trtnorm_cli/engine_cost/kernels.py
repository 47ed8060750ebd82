"""The work of one kernel: what it reads, writes, computes and reduces."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Mapping, Sequence

import onnx

from trtnorm_cli.cost.roofline import Rows, Work
from trtnorm_cli.engine_cost.facts import ModelFacts
from trtnorm_cli.engine_cost.operations import PRODUCTS, operations
from trtnorm_cli.engine_cost.reductions import Reduction, reduction
from trtnorm_cli.engine_cost.tensors import Key, element_counts, key_of
from trtnorm_cli.light_dataclass import dataclass
from trtnorm_cli.onnx_model.parser_names import parser_name
from trtnorm_cli.records.engine_parts import Kernel, KernelTensor

_BITS = {
    "float": 32, "half": 16, "bfloat16": 16, "bf16": 16, "fp8": 8, "fp4": 4, "int4": 4, "int8": 8, "uint8": 8, "bool": 8,
    "int32": 32, "int64": 64, "double": 64,
}  # fmt: skip
# The types that are computed in, in the words of ``cost.device``. Others are moved, or computed as float32.
_COMPUTED_IN = {
    "float": "float32", "half": "float16", "bfloat16": "bfloat16", "bf16": "bfloat16", "int8": "int8", "fp8": "fp8",
    "fp4": "fp4",
}  # fmt: skip
# Releases before 1.7 write type and layout as one text, such as "Channel major FP16 format".
_WRITTEN = {"fp32": "float", "fp16": "half", "bf16": "bf16", "int8": "int8", "int32": "int32", "int64": "int64", "bool": "bool"}
# The compiler makes the name of a kernel from the operations in it.
_PARTS = re.compile(r"^__myl_([A-Za-z0-9]+?)_myl\d")
_PART = re.compile(r"[A-Z][a-z0-9]*")
_FILLS_OR_CUTS = frozenset(("Conc", "Slic"))
_INTERPOLATES = frozenset(("Resi", "Grid"))
_REDUCES = frozenset({"Mean", "Sum", "Maxr", "Minr", "Prod", "Inor", "Etc"})
# Types of kernels, and parts of their names, that multiply matrices.
_MULTIPLIES = frozenset({"correlation", "gemm", "deconv", "Corr", "Deco", "Fc", "Gemm", "Mha", "Dot"})
_MOVES = {"Cast": "cast", "Tran": "transposition", "Move": "copy", "Resh": "copy"}
# The operators of a model that ask for what ``_MOVES`` does.
_ASKS = frozenset({
    "Cast", "CastLike", "Transpose", "Reshape", "Flatten", "Squeeze", "Unsqueeze", "Identity", "Concat", "Split", "Slice",
    "Expand", "Tile", "Pad", "Gather", "ConstantOfShape", "Range", "DepthToSpace", "SpaceToDepth", "Einsum",
})  # fmt: skip
# These read a part of their table.
_LOOKS_UP = frozenset({"Gather", "GatherElements", "GatherND"})


@dataclass(frozen=True)
class KernelWork:
    """The work of a kernel by each row length that it may have. ``weights`` are bytes of ``read`` that are constants.

    ``unasked`` says what the kernel does that no node of the model asks for, and ``unsized`` how many of its tensors have
    sizes that could not be told and count as nothing.
    """

    works: tuple[Work, ...]
    weights: int
    unasked: str | None
    unsized: int


@dataclass(frozen=True)
class Listing:
    """The whole list of kernels, and what it says about each of them.

    ``counts`` are the elements of each tensor. ``shares`` says for each ONNX node in how many kernels it is listed, and
    ``multiplying`` in how many that multiply matrices. ``has_constants`` is set where kernels are listed with the constants
    that they read.
    """

    model: ModelFacts
    counts: Mapping[Key, int]
    shares: Mapping[str, int]
    multiplying: Mapping[str, int]
    has_constants: bool


def listing(kernels: Sequence[Kernel], model: ModelFacts) -> Listing:
    shares = Counter(name for kernel in kernels for name in set(kernel.onnx_nodes))
    multiplying = Counter(name for kernel in kernels if multiplies(kernel) for name in set(kernel.onnx_nodes))
    return Listing(model, element_counts(kernels, model), shares, multiplying, any(kernel.constants for kernel in kernels))


def kernel_work(kernel: Kernel, known: Listing) -> KernelWork:
    """The work of a kernel of the list."""
    facts, counts = known.model, known.counts
    nodes = facts.named(kernel.onnx_nodes)
    inputs, outputs = _each_once(kernel.inputs), _each_once(kernel.outputs)
    read, written = _bytes(inputs, counts), _bytes(outputs, counts)
    weights = _weights(kernel, known)
    if any(node.op_type in _LOOKS_UP for node in nodes):
        weights = min(weights, written)
    computed = sum(_operations(kernel, node, known) for node in nodes)
    kind = computed_in((*outputs, *inputs))
    parts = _parts(kernel)
    moves = transposes(kernel) or _changes_layout(inputs, outputs)
    rows = () if not _may_reduce(kernel, parts) else _rows(kernel, parts, [reduction(node, facts) for node in nodes])
    works = tuple(Work(read + weights, written, computed, kind, row, moves) for row in (rows or (None,)))
    unsized = sum(key_of(tensor) not in counts for tensor in (*inputs, *outputs))
    return KernelWork(works, weights, _unasked(parts, {node.op_type for node in nodes}) if inputs else None, unsized)


def _operations(kernel: Kernel, node: onnx.NodeProto, known: Listing) -> int:
    """The kernel's share of a node's operations. Products are made by the kernels that multiply, where there are any."""
    if node.op_type in PRODUCTS and (count := known.multiplying[parser_name(node)]):
        return operations(node, known.model) // count if multiplies(kernel) else 0
    return operations(node, known.model) // known.shares[parser_name(node)]


def multiplies(kernel: Kernel) -> bool:
    """True for a kernel that multiplies matrices, as convolutions do."""
    return kernel.type in _MULTIPLIES or not _MULTIPLIES.isdisjoint(_parts(kernel))


def _each_once(tensors: Sequence[KernelTensor]) -> list[KernelTensor]:
    return list({key_of(tensor): tensor for tensor in tensors}.values())


def _bytes(tensors: Sequence[KernelTensor], counts: Mapping[Key, int]) -> int:
    return sum(math.ceil(counts.get(key_of(tensor), 0) * bits_of(tensor) / 8) for tensor in tensors)


def bits_of(tensor: KernelTensor) -> int:
    """Bits of one element; 32 for a type that is not known."""
    return _BITS.get(_type_name(tensor), 32)


def _type_name(tensor: KernelTensor) -> str:
    name = tensor.dtype.lower()
    if name in _BITS:
        return name
    return next((known for written, known in _WRITTEN.items() if written in name), name)


def computed_in(tensors: Sequence[KernelTensor]) -> str:
    """The type that a kernel with these tensors computes in, in the words of ``cost.device``."""
    return next((_COMPUTED_IN[name] for one in tensors if (name := _type_name(one)) in _COMPUTED_IN), "float32")


def _weights(kernel: Kernel, known: Listing) -> int:
    """Bytes of constants: as the builder lists them, or else those of the ONNX nodes, in the type of the kernel."""
    if known.has_constants:
        return sum(math.prod(one.shape) * bits_of(one) // 8 for one in kernel.constants if -1 not in one.shape)
    bits = max((bits_of(tensor) for tensor in kernel.outputs), default=32)
    facts, found = known.model, 0
    for node in facts.named(kernel.onnx_nodes):
        elements = sum(math.prod(facts.shapes.get(name, (0,))) for name in set(node.input) & facts.constants)
        found += elements // known.shares[parser_name(node)]
    return found * bits // 8


def _parts(kernel: Kernel) -> tuple[str, ...]:
    found = _PARTS.match(kernel.name)
    return tuple(_PART.findall(found[1])) if found else ()


def reduces(kernel: Kernel) -> bool:
    """True for a kernel in whose name a reduction stands."""
    return not _REDUCES.isdisjoint(_parts(kernel))


def transposes(kernel: Kernel) -> bool:
    """True for a kernel in whose name a transposition stands."""
    return "Tran" in _parts(kernel)


def copies(kernel: Kernel) -> bool:
    """True for a kernel in whose name a copy stands."""
    return "Move" in _parts(kernel)


def fills_or_cuts(kernel: Kernel) -> bool:
    """True for a kernel in whose name nothing but a concatenation or a slice stands."""
    parts = set(_parts(kernel))
    return bool(parts) and parts <= _FILLS_OR_CUTS


def writes_products_out(kernel: Kernel) -> bool:
    """True for a generated kernel that multiplies and adds, as TensorRT makes a matrix product of few terms or of one row."""
    parts = set(_parts(kernel))
    return "Mul" in parts and not parts.isdisjoint(("Add", "Sum")) and not multiplies(kernel)


def interpolates(kernel: Kernel) -> bool:
    """True for a kernel in whose name a resizing or the sampling of a grid stands."""
    return not _INTERPOLATES.isdisjoint(_parts(kernel))


def _may_reduce(kernel: Kernel, parts: Sequence[str]) -> bool:
    return not _REDUCES.isdisjoint(parts) or (not parts and kernel.type not in ("correlation", "gemm"))


def _changes_layout(inputs: Sequence[KernelTensor], outputs: Sequence[KernelTensor]) -> bool:
    """True where a tensor of several axes is read in one layout, and no tensor is written in it."""
    read, written = ({one.format for one in tensors if len(one.shape) > 2} for tensors in (inputs, outputs))
    return bool(read) and bool(written) and not read <= written


def _rows(kernel: Kernel, parts: Sequence[str], reductions: Sequence[Reduction | None]) -> list[Rows]:
    """The rows of each length. Elements of the last axis lie side by side unless channels do."""
    if not kernel.inputs:
        return []
    layout = max(kernel.inputs, key=lambda tensor: len(tensor.shape)).format
    channels_last = layout.upper() not in ("", "LINEAR") and "ROW MAJOR" not in layout.upper()
    element = max(bits_of(tensor) for tensor in kernel.inputs) / 8
    split = True if _has_counter(kernel) else None
    different = dict.fromkeys(one for one in reductions if one is not None)
    times = max(1, sum(part in _REDUCES for part in parts))
    return [Rows(one.count, one.length, element, one.innermost != channels_last, split, reductions=times) for one in different]


def _has_counter(kernel: Kernel) -> bool:
    """True for a kernel whose blocks share rows: they count in integers who is done, and leave partial results behind."""
    return any(_type_name(tensor) == "int32" and len(tensor.shape) == 1 for tensor in kernel.inputs) and len(kernel.outputs) > 1


def _unasked(parts: Sequence[str], operators: set[str]) -> str | None:
    """The name of what a kernel does where it only moves data, and no node of the model asks for that."""
    if not parts or not _MOVES.keys() >= set(parts) or not _ASKS.isdisjoint(operators):
        return None
    return next(_MOVES[part] for part in _MOVES if part in parts)
