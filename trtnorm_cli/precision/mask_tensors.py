"""Tensors that only say what a softmax may see: their values are no magnitudes."""

from __future__ import annotations

from collections.abc import Iterable

import onnx

from trtnorm_cli.onnx_model.walk import tensors_read
from trtnorm_cli.precision.plan import key_of
from trtnorm_cli.precision.units import SOFTMAX, Unit


def mask_tensors(model: onnx.ModelProto, units: Iterable[Unit]) -> frozenset[str]:
    """Masks, what masks alone are made from, and the masked scores in front of each softmax.

    The scores before the mask do not belong to them.
    """
    nodes = {key_of(node): node for node in model.graph.node}
    masks: set[str] = set()
    scores: set[str] = set()
    for unit in units:
        inside = [nodes[key] for key in unit.keys if key in nodes]
        if unit.kind == SOFTMAX and len(inside) > 1:
            masks.update(name for node in inside for name in node.output if name and name != unit.output)
            scores.add(unit.data)
    readers: dict[str, list[onnx.NodeProto]] = {}
    for node in model.graph.node:
        for name in dict.fromkeys(tensors_read(node)):
            readers.setdefault(name, []).append(node)
    fixed = scores | {value.name for value in model.graph.output}
    made = [name for node in reversed(model.graph.node) for name in node.output if name]
    given = [*(value.name for value in model.graph.input), *(tensor.name for tensor in model.graph.initializer)]
    for name in (*made, *given):
        if name not in fixed and _make_masks(readers.get(name, ()), masks):
            masks.add(name)
    return frozenset(masks - scores)


def _make_masks(readers: Iterable[onnx.NodeProto], masks: set[str]) -> bool:
    """True where there are readers, and they make nothing but masks."""
    made = [[name for name in node.output if name] for node in readers]
    return bool(made) and all(names and masks.issuperset(names) for names in made)
