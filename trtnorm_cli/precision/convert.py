"""A float32 model in a low type, with casts only where nodes of both types meet."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import field
from pathlib import Path

import onnx

from trtnorm_cli.light_dataclass import dataclass
from trtnorm_cli.onnx_model.shapes import TensorType
from trtnorm_cli.onnx_model.shelf import Shelf
from trtnorm_cli.precision.islands import Island, islands
from trtnorm_cli.precision.low_constants import Constants
from trtnorm_cli.precision.masks import Masks
from trtnorm_cli.precision.opsets import needs_raising, raised_opset
from trtnorm_cli.precision.plan import TypePlan, kept
from trtnorm_cli.precision.ports import Role, TypedNode, kept_fixed
from trtnorm_cli.precision.tensor_types import complete_types
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
    if needs_raising(model, plan.low):
        model = raised_opset(model, Constants(model, folder))
    types, constants = complete_types(model, types), Constants(model, folder)
    in_float = [unit for unit in units if not unit.keys.isdisjoint(plan.kept)]
    masks = Masks(model, types, in_float, constants).finite()
    for name, (value, _) in masks.items():
        constants.replace(name, value)
    writer = Writer(model, plan, units, types, constants)
    result = writer.model()
    return Typed(
        model=result,
        shelves=(writer.shelf,),
        casts=writer.casts,
        islands=islands(writer.nodes, writer.is_low),
        kept=tuple(_kept(writer.nodes, writer.is_low, plan)),
        masks=tuple(replaced for _, replaced in masks.values()),
    )


def _kept(nodes: Iterable[TypedNode], is_low: Mapping[str, bool], plan: TypePlan) -> Iterable[Kept]:
    for node in nodes:
        if node.role is Role.NONE or is_low[node.key]:
            continue
        if node.key in plan.kept:
            yield plan.kept[node.key]
        elif node.role is Role.FIXED:
            yield kept_fixed(node, plan.low)
        else:
            yield kept(node.node, "joined", "it stands between nodes in float32, and to cast there and back would cost more")
