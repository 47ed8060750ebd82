"""Shapes at which a change is proved where the file's are large: short along axes on which everything is repeated.

A defect shows there as it does at the file's shapes: every weight is reached, borders are there, and axes that are reduced keep
their length. Where an operator's meaning may depend on the length of an axis, no such shapes are given.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence

from onnx import numpy_helper

from trtnorm_cli.evaluate.float64.planning import attributes_of, imported_opsets
from trtnorm_cli.onnx_model.domains import DEFAULT_DOMAINS
from trtnorm_cli.rewrite.proof.axes import Axes, NotShortened
from trtnorm_cli.rewrite.proof.axis_rules import AXIS_RULES, Tensor, Use
from trtnorm_cli.rewrite.proof.region import Region

Shapes = dict[str, tuple[int, ...]]

# Below, the file's shapes cost no more than all else that a proof does.
_MOST_ELEMENTS, _MOST_WORK = 1 << 17, 1 << 22
# More positions show smaller defects; so many are taken as cost next to nothing.
_FURTHER, _CHEAP = (16, 8, 4, 2, 0), 1 / 2
# Operators of an earlier opset take the softmax over several axes at once.
_ONE_AXIS_OPSET = 13


def short_shapes(before: Region, after: Region, real: Shapes) -> Shapes | None:
    """Shapes of the fed tensors that prove as much as the file's, ``real``; None where those are needed or cheap."""
    axes = Axes()
    work: list[Tensor] = []
    try:
        fed = {name: axes.fed(shape) for name, shape in real.items()}
        made, made_instead = (_traced(region, fed, axes, work) for region in (before, after))
        for value in before.model.graph.output:
            axes_of_both = zip(made[value.name], made_instead[value.name], strict=True)
            for one, other in axes_of_both:
                if axes.sizes[one] != axes.sizes[other]:
                    return None
                axes.link(one, other)
        tensors = [*made.values(), *made_instead.values()]
        if _cost(axes.sizes, tensors, work) <= 1:
            return None
        sizes = next(s for s in map(axes.shortened, _FURTHER) if _cost(s, tensors, work) <= _CHEAP or s == axes.shortened())
    except (NotShortened, KeyError, IndexError, ValueError):
        return None
    shapes = {name: tuple(sizes[axis] for axis in tensor) for name, tensor in fed.items()}
    return None if shapes == real else shapes


def _cost(sizes: Sequence[int], tensors: Iterable[Tensor], work: Iterable[Tensor]) -> float:
    """The cost at these lengths, as a multiple of what is cheap."""
    elements, multiplications = (sum(math.prod(sizes[axis] for axis in each) for each in many) for many in (tensors, work))
    return max(elements / _MOST_ELEMENTS, multiplications / _MOST_WORK)


def _traced(region: Region, fed: Mapping[str, Tensor], axes: Axes, work: list[Tensor]) -> dict[str, Tensor]:
    """The axes of the tensors that ``region`` is fed with and makes."""
    model = region.model
    opsets = imported_opsets(model)
    constants = {tensor.name: numpy_helper.to_array(tensor) for tensor in model.graph.initializer}
    constants.update(region.weights)
    known: dict[str, Tensor] = dict(fed)
    for node in model.graph.node:
        rule = AXIS_RULES.get(node.op_type)
        one_softmax = not node.op_type.endswith("Softmax") or opsets.get("", 1) >= _ONE_AXIS_OPSET
        if rule is None or node.domain not in DEFAULT_DOMAINS or not one_softmax or any(node.output[1:]):
            raise NotShortened
        inputs, values = [], []
        for name in node.input:
            if name in constants and name not in known:
                known[name] = axes.fixed(constants[name].shape)
            inputs.append(known[name] if name else None)
            values.append(constants.get(name))
        use = Use(axes, inputs, values, attributes_of(node, opsets), work)
        known[node.output[0]] = rule(use)
    return {name: tensor for name, tensor in known.items() if name not in constants}
