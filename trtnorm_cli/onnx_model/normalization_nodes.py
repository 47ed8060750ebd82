"""The normalization nodes of a model: which there are, and what their parameters look like."""

from __future__ import annotations

import onnx

from trtnorm_cli.light_dataclass import dataclass
from trtnorm_cli.onnx_model.domains import DEFAULT_DOMAINS
from trtnorm_cli.onnx_model.shapes import TensorType, declared_types
from trtnorm_cli.onnx_model.walk import all_graphs
from trtnorm_cli.record import Record

DEFAULT_EPSILON = 1e-5
# Operator -> names of its parameter inputs, in order, after the data. The domain is the default one.
PARAMETERS: dict[str, tuple[str, ...]] = {
    "BatchNormalization": ("scale", "bias", "mean", "variance"),
    "InstanceNormalization": ("scale", "bias"),
    "GroupNormalization": ("scale", "bias"),
    "LayerNormalization": ("scale", "bias"),
    "RMSNormalization": ("scale",),
    "SimplifiedLayerNormalization": ("scale",),
    "MeanVarianceNormalization": (),
    "LpNormalization": (),
    "LRN": (),
}
# Of ONNX Runtime, which fuses what stands beside a normalization into it: operator -> parameters by their place.
FUSED: dict[str, dict[str, int]] = {
    "SkipLayerNormalization": {"scale": 2, "bias": 3},
    "SkipSimplifiedLayerNormalization": {"scale": 2},
    "GroupNorm": {"scale": 1, "bias": 2},
    "SkipGroupNorm": {"scale": 1, "bias": 2},
}
_MICROSOFT = "com.microsoft"
_FUSED_EPSILON = {"SkipLayerNormalization": 1e-12, "SkipSimplifiedLayerNormalization": 1e-12}
_HAS_EPSILON = frozenset(PARAMETERS) - {"MeanVarianceNormalization", "LpNormalization", "LRN"}


@dataclass(frozen=True)
class Parameter(Record):
    """A parameter input: its role, tensor, length (None when not known) and element type."""

    role: str
    tensor: str
    shape: tuple[int | str | None, ...] | None
    dtype: str


@dataclass(frozen=True)
class Normalization(Record):
    """One normalization node. ``channels`` is the size of axis 1, or of the last axis for Layer- and RMSNormalization."""

    operator: str
    name: str
    output: str
    input_shape: tuple[int | str | None, ...] | None
    input_dtype: str
    channels: int | str | None
    parameters: tuple[Parameter, ...]
    epsilon: float | None
    fed_by: str
    attributes: dict[str, object]
    further_outputs: tuple[str, ...] = ()

    @property
    def label(self) -> str:
        """The node as a user knows it: its name, or operator and first output when it has none."""
        return self.name or f"{self.operator} -> {self.output}"


def normalizations(model: onnx.ModelProto) -> list[Normalization]:
    """Every normalization node of the model's graph and subgraphs, in order."""
    types = declared_types(model)
    found: list[Normalization] = []
    for graph in all_graphs(model.graph):
        types.update({t.name: TensorType(t.data_type, tuple(t.dims)) for t in graph.initializer})
        producers = {name: node for node in graph.node for name in node.output if name}
        found += [_read(node, types, producers) for node in graph.node if is_normalization(node)]
    return found


def is_normalization(node: onnx.NodeProto) -> bool:
    if node.domain == _MICROSOFT:
        return node.op_type in FUSED
    return node.op_type in PARAMETERS and node.domain in DEFAULT_DOMAINS


def _read(node: onnx.NodeProto, types: dict[str, TensorType], producers: dict[str, onnx.NodeProto]) -> Normalization:
    data = node.input[0]
    kind = types.get(data)
    shape = kind.shape if kind else None
    producer = producers.get(data)
    attributes = {a.name: onnx.helper.get_attribute_value(a) for a in node.attribute}
    places = FUSED[node.op_type] if node.domain == _MICROSOFT else {r: i for i, r in enumerate(PARAMETERS[node.op_type], 1)}
    roles = [(role, node.input[place]) for role, place in places.items() if place < len(node.input)]
    return Normalization(
        operator=node.op_type,
        name=node.name,
        output=node.output[0],
        input_shape=shape,
        input_dtype=_dtype_name(kind),
        channels=_channels(node.op_type, shape, attributes),
        parameters=tuple(_parameter(role, name, types) for role, name in roles if name),
        epsilon=_epsilon(node.op_type, attributes),
        fed_by=f"{producer.op_type} {producer.name}".strip() if producer else f"input {data}",
        attributes=attributes,
        further_outputs=tuple(name for name in node.output[1:] if name),
    )


def _parameter(role: str, name: str, types: dict[str, TensorType]) -> Parameter:
    kind = types.get(name)
    return Parameter(role, name, kind.shape if kind else None, _dtype_name(kind))


def _dtype_name(kind: TensorType | None) -> str:
    if kind is None or not kind.dtype:
        return "?"
    return onnx.TensorProto.DataType.Name(kind.dtype).lower()


def _channels(operator: str, shape: tuple[int | str | None, ...] | None, attributes: dict[str, object]) -> int | str | None:
    if not shape or len(shape) < 2:
        return None
    last = operator.endswith(("LayerNormalization", "RMSNormalization"))
    if operator in ("GroupNorm", "SkipGroupNorm"):
        last = bool(attributes.get("channels_last", 1))
    return shape[-1 if last else 1]


def _epsilon(operator: str, attributes: dict[str, object]) -> float | None:
    if operator not in _HAS_EPSILON and operator not in FUSED:
        return None
    value = attributes.get("epsilon", _FUSED_EPSILON.get(operator, DEFAULT_EPSILON))
    return float(value) if isinstance(value, int | float) else None
