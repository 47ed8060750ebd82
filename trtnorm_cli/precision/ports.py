"""The inputs and outputs of a node whose type follows the node's, and those that have a type of their own.

Read from ONNX's operator schemas, with what they do not say.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from enum import Enum
from functools import lru_cache

import onnx

from trtnorm_cli.light_dataclass import dataclass
from trtnorm_cli.onnx_model.domains import DEFAULT_DOMAINS
from trtnorm_cli.onnx_model.shapes import TensorType
from trtnorm_cli.onnx_model.walk import subgraphs, tensors_read
from trtnorm_cli.precision.low_constants import Constants
from trtnorm_cli.precision.low_types import LowType
from trtnorm_cli.precision.opsets import opset_for
from trtnorm_cli.precision.plan import kept, key_of
from trtnorm_cli.records.precision import Kept

FLOAT = onnx.TensorProto.FLOAT
_TYPE_NAMES = {onnx.TensorProto.FLOAT16: "tensor(float16)", onnx.TensorProto.BFLOAT16: "tensor(bfloat16)"}
# They read a tensor of any type, and what they make does not depend on it.
_READ_ANY = frozenset({"Shape", "Size", "Cast", "IsNaN", "IsInf", "NonZero"})
# Outputs of these have the type that an attribute states, or operators of which it is not known how TensorRT reads them.
_STATED = frozenset(
    {"RandomNormal", "RandomNormalLike", "RandomUniform", "RandomUniformLike", "Bernoulli", "EyeLike", "CastLike"}
)
# Inputs that stay float32 beside data of a low type, by their place: TensorRT takes scales as shape arithmetic.
_OWN_TYPE = {"Resize": (1, 2), "Upsample": (1,)}


class Role(Enum):
    """The part of a node in the types of a model.

    TYPED nodes compute in float32 or the low type. FIXED ones compute in float32. WIDENS casts from the low type to float32 and
    NARROWS back, so that they vanish where nothing between needs float32. NONE touch no float32 tensor.
    """

    TYPED = "typed"
    FIXED = "fixed"
    WIDENS = "widens"
    NARROWS = "narrows"
    NONE = "none"


@dataclass(frozen=True)
class TypedNode:
    """A node with its float32 tensors. ``reads`` and ``writes`` follow its type. ``reads_float`` and ``writes_float`` do not.

    ``reads_any`` are read in the type that they have. ``captured`` are read by its subgraphs. Constants are among them.
    """

    node: onnx.NodeProto
    role: Role
    reads: frozenset[int] = frozenset()
    reads_float: frozenset[int] = frozenset()
    writes: frozenset[int] = frozenset()
    writes_float: frozenset[int] = frozenset()
    captured: frozenset[str] = frozenset()

    @property
    def key(self) -> str:
        return key_of(self.node)

    def names(self, places: Iterable[int]) -> Iterator[str]:
        """The inputs at ``places``, without those left out."""
        return (self.node.input[place] for place in sorted(places))

    @property
    def made(self) -> list[str]:
        """The outputs whose type follows the node's."""
        return [self.node.output[place] for place in sorted(self.writes)]


def typed_nodes(model: onnx.ModelProto, types: Mapping[str, TensorType], constants: Constants, low: LowType) -> list[TypedNode]:
    """The nodes of the top graph of ``model``, with what they do with float32 tensors."""
    top = {value.name for value in model.graph.input} | {name for node in model.graph.node for name in node.output}
    elements = {name: kind.dtype for name, kind in types.items() if name in top}
    elements.update({name: constants.tensor(name).data_type for name in constants})
    opset = opset_for(model, constants, low)
    return [typed_node(node, elements, low, opset) for node in model.graph.node]


def typed_node(node: onnx.NodeProto, types: dict[str, int], low: LowType, opset: int) -> TypedNode:
    """``node`` of the top graph, with what it does with float32 tensors. ``types`` are element types by tensor."""
    floats_in = [place for place, name in enumerate(node.input) if name and types.get(name) == FLOAT]
    floats_out = [place for place, name in enumerate(node.output) if name and types.get(name) == FLOAT]
    captured = frozenset(name for name in _captured(node) if types.get(name) == FLOAT)
    if not floats_in and not floats_out and not captured:
        return TypedNode(node, Role.NONE)
    if node.op_type == "Cast" and node.domain in DEFAULT_DOMAINS:
        return _cast(node, types, low)
    if node.op_type in _READ_ANY and not floats_out:
        return TypedNode(node, Role.NONE)
    if captured or node.domain not in DEFAULT_DOMAINS or node.op_type in _STATED or any(True for _ in subgraphs(node)):
        return _fixed(node, floats_in, floats_out, captured)
    return _by_schema(node, floats_in, floats_out, types, low, opset)


def _captured(node: onnx.NodeProto) -> set[str]:
    """The outer tensors that subgraphs of ``node`` read, and maybe some of their own."""
    return set(tensors_read(node)) - set(node.input) if any(True for _ in subgraphs(node)) else set()


def _fixed(node: onnx.NodeProto, reads: list[int], writes: list[int], captured: frozenset[str] = frozenset()) -> TypedNode:
    return TypedNode(node, Role.FIXED, reads_float=frozenset(reads), writes_float=frozenset(writes), captured=captured)


def _cast(node: onnx.NodeProto, types: dict[str, int], low: LowType) -> TypedNode:
    source, target = types.get(node.input[0]), types.get(node.output[0])
    here = frozenset({0})
    if source == FLOAT and target == low.onnx_type:
        return TypedNode(node, Role.NARROWS, reads=here)
    if source == low.onnx_type and target == FLOAT:
        return TypedNode(node, Role.WIDENS, writes=here)
    if target == FLOAT and source != FLOAT:
        return TypedNode(node, Role.TYPED, writes=here)
    if target == FLOAT:
        return TypedNode(node, Role.TYPED, reads=here, writes=here)
    return TypedNode(node, Role.NONE)


def _by_schema(
    node: onnx.NodeProto, reads: list[int], writes: list[int], types: dict[str, int], low: LowType, opset: int
) -> TypedNode:
    allowed = allowed_types(node.op_type, opset)
    if allowed is None or any(name and name not in types for name in (*node.input, *node.output)):
        return _fixed(node, reads, writes)
    own = _OWN_TYPE.get(node.op_type, ())
    wanted = _TYPE_NAMES[low.onnx_type]
    typed_in = {place for place in reads if wanted in allowed.input(place) and place not in own}
    typed_out = {place for place in writes if wanted in allowed.output(place)}
    if node.op_type == "ConstantOfShape":
        typed_out = set(writes)
    if not typed_in and not typed_out:
        return _fixed(node, reads, writes)
    if len(typed_out) < len(writes) and node.op_type not in ("LayerNormalization",):
        return _fixed(node, reads, writes)
    if any(place == 0 and place not in typed_in for place in reads):
        return _fixed(node, reads, writes)
    return TypedNode(
        node,
        Role.TYPED,
        reads=frozenset(typed_in),
        reads_float=frozenset(reads) - typed_in,
        writes=frozenset(typed_out),
        writes_float=frozenset(writes) - typed_out,
    )


def kept_fixed(node: TypedNode, low: LowType) -> Kept:
    """The record that a node stays float32 because it has no choice."""
    if any(True for _ in subgraphs(node.node)):
        return kept(node.node, "control-flow", f"what is inside {node.node.op_type} stays float32")
    return kept(node.node, "type", f"{node.node.op_type} does not take {low.name}")


@dataclass(frozen=True)
class Allowed:
    """The types that an operator takes and makes, by place. The last place stands for all further ones."""

    inputs: tuple[frozenset[str], ...]
    outputs: tuple[frozenset[str], ...]

    def input(self, place: int) -> frozenset[str]:
        return self.inputs[min(place, len(self.inputs) - 1)] if self.inputs else frozenset()

    def output(self, place: int) -> frozenset[str]:
        return self.outputs[min(place, len(self.outputs) - 1)] if self.outputs else frozenset()


@lru_cache(maxsize=1024)
def allowed_types(operator: str, opset: int) -> Allowed | None:
    """The types that an operator of ONNX's own domain takes in ``opset``; None for an operator that ONNX does not know."""
    try:
        schema = onnx.defs.get_schema(operator, opset, "")
    except onnx.defs.SchemaError:
        return None
    return Allowed(
        tuple(frozenset(formal.types) for formal in schema.inputs),
        tuple(frozenset(formal.types) for formal in schema.outputs),
    )
