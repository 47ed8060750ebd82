"""A float32 model in a low type, with casts only where nodes of both types meet."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import onnx

from trtnorm_cli.onnx_model.infer import sound_types
from trtnorm_cli.onnx_model.shapes import TensorType
from trtnorm_cli.onnx_model.shelf import Shelf
from trtnorm_cli.onnx_model.walk import subgraphs
from trtnorm_cli.precision.islands import Island, islands
from trtnorm_cli.precision.low_constants import Constants
from trtnorm_cli.precision.low_types import BF16
from trtnorm_cli.precision.opsets import raised_opset
from trtnorm_cli.precision.plan import TypePlan, kept
from trtnorm_cli.precision.ports import Role, TypedNode
from trtnorm_cli.precision.units import Unit
from trtnorm_cli.precision.writer import Writer
from trtnorm_cli.records.precision import Kept, Replaced


@dataclass(frozen=True)
class Typed:
    """A model in a low type.

    ``casts`` counts those that were added. ``kept`` are all nodes that ended float32, with the cause. ``masks`` are constants
    whose value was replaced. ``model`` refers to values on the ``shelves`` and must not outlive these.
    """

    model: onnx.ModelProto
    shelves: tuple[Shelf, ...] = field(repr=False, compare=False)
    casts: int = 0
    islands: tuple[Island, ...] = ()
    kept: tuple[Kept, ...] = ()
    masks: tuple[Replaced, ...] = ()


def convert(
    model: onnx.ModelProto, folder: Path | None, plan: TypePlan, units: Sequence[Unit], types: Mapping[str, TensorType]
) -> Typed:
    """``model`` in ``plan.low``, but for what the plan keeps. ``model`` is not changed.

    ``types`` are those of its tensors. External tensors are read from ``folder``, and stay external where they stay float32.
    """
    if plan.low is BF16:
        model = raised_opset(model, Constants(model, folder))[0] or model
    writer = Writer(model, folder, plan, units, complete_types(model, types))
    result = writer.model()
    return Typed(
        model=result,
        shelves=(writer.shelf,),
        casts=writer.casts,
        islands=islands(writer.nodes, writer.is_low),
        kept=tuple(_kept(writer.nodes, writer.is_low, plan)),
    )


def complete_types(model: onnx.ModelProto, types: Mapping[str, TensorType]) -> dict[str, TensorType]:
    """``types`` with those of tensors that it leaves out: what rules have added is not stated in the model."""
    missing = any(name and name not in types for node in model.graph.node for name in node.output)
    tables = sound_types(model, data_prop=False) if missing else None
    found = tables[0] if tables else {}
    return {**{name: kind for name, kind in found.items() if kind.dtype}, **types}


def _kept(nodes: Iterable[TypedNode], is_low: Mapping[str, bool], plan: TypePlan) -> Iterable[Kept]:
    for node in nodes:
        if node.role is Role.NONE or is_low[node.key]:
            continue
        if node.key in plan.kept:
            yield plan.kept[node.key]
        elif node.role is Role.FIXED:
            yield _fixed(node, plan)
        else:
            yield kept(node.node, "joined", "it stands between nodes in float32, and to cast there and back would cost more")


def _fixed(node: TypedNode, plan: TypePlan) -> Kept:
    if node.captured or any(True for _ in subgraphs(node.node)):
        return kept(node.node, "control-flow", f"what is inside {node.node.op_type} stays float32")
    return kept(node.node, "type", f"{node.node.op_type} does not take {plan.low.name}")
