"""Describe a TensorRT network: the layers that the parser made of a model."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

import onnx

from trtnorm_cli.errors import UsageProblem
from trtnorm_cli.light_dataclass import dataclass
from trtnorm_cli.node_names import EVERY_NODE, NodePatterns
from trtnorm_cli.onnx_model.load import load_model, read_model
from trtnorm_cli.onnx_model.shapes import NamedType, declared_types
from trtnorm_cli.record import Record
from trtnorm_cli.scratch import Scratch
from trtnorm_cli.target import NETWORK_PREFIX
from trtnorm_cli.tensorrt.network import network_of


@dataclass(frozen=True)
class LayerNode(Record):
    """A node of the network as ONNX, and TensorRT's layer that it is or is a part of, with the type of that."""

    operator: str
    name: str
    outputs: tuple[NamedType, ...]
    layer: str
    type: str


@dataclass(frozen=True)
class NetworkDescription(Record):
    """The description of TensorRT's network of a model, with the values that ``trtnorm inspect --json`` prints."""

    model: str
    backend: str
    tensorrt: str
    layers_by_type: dict[str, int]
    inputs: tuple[NamedType, ...]
    outputs: tuple[NamedType, ...]
    nodes: tuple[LayerNode, ...]
    warnings: tuple[str, ...]
    notes: tuple[str, ...]


def describe_network(
    model: Path, save_to: Path | None, backend: str | None, wanted: NodePatterns = EVERY_NODE
) -> NetworkDescription:
    """Layers, inputs and outputs of the network. Its ONNX form is saved when ``save_to`` is given.

    ``nodes`` are those of layers whose name fits ``wanted``. Raises ``UsageProblem`` for a pattern that no layer fits.
    """
    load_model(model)
    if save_to is not None and not save_to.absolute().parent.is_dir():
        raise UsageProblem("there is no such folder", str(save_to.parent), "choose another one with -o")
    with Scratch("trtnorm-inspect-") as scratch:
        target = save_to or scratch / "network.onnx"
        translation = network_of(model, target, backend)
        proto = read_model(target)
    types = declared_types(proto)
    nodes = [_node(node) for node in proto.graph.node]
    wanted.require((name for one in nodes for name in (one.layer, one.name)), f"{NETWORK_PREFIX}{model}")

    def typed(names: Iterable[str]) -> tuple[NamedType, ...]:
        return tuple(NamedType.of(name, types.get(name)) for name in names if name)

    return NetworkDescription(
        model=model.name,
        backend=translation.backend,
        tensorrt=translation.version,
        layers_by_type=translation.layers,
        inputs=typed(value.name for value in proto.graph.input),
        outputs=typed(value.name for value in proto.graph.output),
        nodes=tuple(
            replace(one, outputs=typed(node.output))
            for one, node in zip(nodes, proto.graph.node, strict=True)
            if wanted.fits(one.layer, one.name)
        ),
        warnings=translation.warnings,
        notes=translation.notes,
    )


def _node(node: onnx.NodeProto) -> LayerNode:
    """The node without its outputs. Nodes that the translation wrote for itself are layers of their own."""
    origin = {entry.key: entry.value for entry in node.metadata_props}
    return LayerNode(node.op_type, node.name, (), origin.get("trt.layer", node.name), origin.get("trt.type", node.op_type))
