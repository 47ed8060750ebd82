"""Describe a TensorRT network: the layers that the parser made of a model."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from trtnorm_cli.errors import UsageProblem
from trtnorm_cli.light_dataclass import dataclass
from trtnorm_cli.onnx_model.load import load_model, read_model
from trtnorm_cli.onnx_model.shapes import NamedType, declared_types
from trtnorm_cli.record import Record
from trtnorm_cli.scratch import Scratch
from trtnorm_cli.tensorrt.network import network_of


@dataclass(frozen=True)
class LayerNode(Record):
    """A node of the network as ONNX. ``name`` is that of TensorRT's layer."""

    operator: str
    name: str
    outputs: tuple[NamedType, ...]


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


def describe_network(model: Path, save_to: Path | None, backend: str | None) -> NetworkDescription:
    """Layers, inputs and outputs of the network. Its ONNX form is saved when ``save_to`` is given."""
    load_model(model)
    if save_to is not None and not save_to.absolute().parent.is_dir():
        raise UsageProblem("there is no such folder", str(save_to.parent), "choose another one with -o")
    with Scratch("trtnorm-inspect-") as scratch:
        target = save_to or scratch / "network.onnx"
        translation = network_of(model, target, backend)
        proto = read_model(target)
    types = declared_types(proto)

    def typed(names: Iterable[str]) -> tuple[NamedType, ...]:
        return tuple(NamedType.of(name, types.get(name)) for name in names if name)

    return NetworkDescription(
        model=model.name,
        backend=translation.backend,
        tensorrt=translation.version,
        layers_by_type=translation.layers,
        inputs=typed(value.name for value in proto.graph.input),
        outputs=typed(value.name for value in proto.graph.output),
        nodes=tuple(LayerNode(node.op_type, node.name, typed(node.output)) for node in proto.graph.node),
        warnings=translation.warnings,
        notes=translation.notes,
    )
