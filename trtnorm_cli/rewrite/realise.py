"""Turn a replacement, written as an expression of new nodes, into named nodes and tensors."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import field
from typing import Any

import numpy as np
import onnx
import onnx_graphsurgeon as gs

from trtnorm_cli.light_dataclass import dataclass
from trtnorm_cli.onnx_model.surgery import Surgery
from trtnorm_cli.rewrite.pattern import describe
from trtnorm_cli.rewrite.region import Region, RegionNode
from trtnorm_cli.rewrite.rule import Match, NewConstant, NewNode, NewOutput, NewOutputs, NewTensors, Replacement


@dataclass(frozen=True)
class RealNode:
    """A node with the names it will have in the model."""

    op: str
    name: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    attrs: dict[str, Any]
    function: onnx.FunctionProto | None = None

    @property
    def domain(self) -> str:
        return "" if self.function is None else str(self.function.domain)

    def proto(self) -> onnx.NodeProto:
        node = onnx.helper.make_node(self.op, self.inputs, self.outputs, self.name, **self.attrs)
        if self.domain:
            node.domain = self.domain
        return node


@dataclass
class Realised:
    """A replacement with names: nodes in topological order, new constants by name, and the tensors it takes as they are.

    ``outputs`` are the tensors of the model that it goes on producing, the root's first one first. ``instead_of`` holds the
    old node whose place a new one takes (by its number in ``nodes``); ``stands_for`` maps new tensors to old ones of the same
    type and shape.
    """

    outputs: tuple[str, ...]
    nodes: list[RealNode] = field(default_factory=list)
    constants: dict[str, np.ndarray] = field(default_factory=dict)
    taken: dict[str, gs.Tensor] = field(default_factory=dict)
    instead_of: dict[int, gs.Node] = field(default_factory=dict)
    stands_for: dict[str, str] = field(default_factory=dict)

    @property
    def functions(self) -> list[onnx.FunctionProto]:
        """The functions that the nodes call."""
        return [node.function for node in self.nodes if node.function is not None]

    def substitute(self, old: str) -> str:
        """The tensor of the type and shape of the tensor ``old``, which goes away."""
        return next(new for new, stood_for in self.stands_for.items() if stood_for == old)


def realise(expression: Replacement, match: Match, fresh: Callable[[str], str]) -> Realised:
    """Give names to what ``expression`` adds; ``fresh`` turns a wished name into one that the model does not use yet."""
    produced = _produced(expression, match)
    result = Realised(tuple(produced))
    namer = _Namer(result, describe(match.site), fresh)
    namer.fixed = {_key(source): name for name, source in produced.items()}
    for source in produced.values():
        namer.input(source)
    if isinstance(expression, NewTensors):
        result.taken.update((tensor.name, tensor) for tensor in expression.same_shape.values())
        result.stands_for.update((tensor.name, old) for old, tensor in expression.same_shape.items())
    return result


def _produced(expression: Replacement, match: Match) -> dict[str, NewNode | NewOutput]:
    """Tensors of the model, the root's first output first, with what produces them from now on."""
    if isinstance(expression, NewNode):
        return {match.output.name: expression}
    if isinstance(expression, NewOutputs):
        return {match.root.outputs[number].name: expression.nodes[number] for number in sorted(expression.nodes)}
    first = [(tensor.name, source) for tensor, source in expression.tensors if tensor is match.output]
    return dict([*first, *((tensor.name, source) for tensor, source in expression.tensors)])


def _key(source: NewNode | NewOutput) -> tuple[int, int]:
    return (id(source.node), source.index) if isinstance(source, NewOutput) else (id(source), 0)


class _Namer:
    """``fixed`` names outputs (by the id of their node and their number) that are tensors of the model."""

    def __init__(self, result: Realised, stem: str, fresh: Callable[[str], str]) -> None:
        self.result, self.stem, self.fresh = result, stem, fresh
        self.done: dict[int, tuple[str, ...]] = {}
        self.fixed: dict[tuple[int, int], str] = {}

    def node(self, new: NewNode) -> tuple[str, ...]:
        """Name ``new`` and all that feeds it; returns the names of its outputs. A replacement may be as deep as the graph."""
        begun: list[tuple[NewNode, list[str]]] = [(new, [])] if id(new) not in self.done else []
        while begun:
            node, inputs = begun[-1]
            if len(inputs) == len(node.inputs):
                self._name(node, tuple(inputs))
                begun.pop()
                continue
            item = node.inputs[len(inputs)]
            feeder = item.node if isinstance(item, NewOutput) else item
            if isinstance(feeder, NewNode) and id(feeder) not in self.done:
                begun.append((feeder, []))
            else:
                inputs.append(self.input(item))
        return self.done[id(new)]

    def _name(self, new: NewNode, inputs: tuple[str, ...]) -> None:
        name = new.name or self.fresh(f"{self.stem}/{new.role or new.op}")
        outputs = tuple(self._output(new, i, name) for i in range(new.outputs))
        attrs = {key: value for key, value in new.attrs.items() if not _is_empty_list(value)}
        self.result.nodes.append(RealNode(new.op, name, inputs, outputs, attrs, new.function))
        self.done[id(new)] = outputs
        self._remember(new, outputs)

    def _output(self, new: NewNode, index: int, name: str) -> str:
        left_out = new.instead_of is not None and new.outputs > 1 and not new.instead_of.outputs[index].name
        return "" if left_out else self.fixed.get((id(new), index)) or self.fresh(f"{name}_output")

    def _remember(self, new: NewNode, outputs: tuple[str, ...]) -> None:
        """Note the old node and tensors that the new ones stand for."""
        if new.like is not None:
            self.result.stands_for[outputs[0]] = new.like.name
        if new.instead_of is None:
            return
        self.result.instead_of[len(self.result.nodes) - 1] = new.instead_of
        pairs = zip(outputs, (tensor.name for tensor in new.instead_of.outputs), strict=False)
        self.result.stands_for.update((made, old) for made, old in pairs if made)

    def input(self, item: gs.Tensor | NewConstant | NewNode | NewOutput | None) -> str:
        if item is None:
            return ""
        if isinstance(item, NewNode):
            return self.node(item)[0]
        if isinstance(item, NewOutput):
            return self.node(item.node)[item.index]
        if isinstance(item, NewConstant):
            return self._constant(item)
        self.result.taken[item.name] = item
        return str(item.name)

    def _constant(self, item: NewConstant) -> str:
        if id(item) not in self.done:
            name = self.fresh(f"{self.stem}/{item.role}")
            self.result.constants[name] = np.asarray(item.value)
            self.done[id(item)] = (name,)
        return self.done[id(item)][0]


def _is_empty_list(value: Any) -> bool:
    """ONNX cannot tell the type of an empty list, and means the attribute's default by it."""
    return isinstance(value, list | tuple) and not value


def region_of(found: Match, realised: Realised) -> Region:
    """The region of a change that is about to be made. Reads no weights."""
    surgery = found.surgery
    read = {tensor.name: tensor for node in found.nodes for tensor in node.inputs} | realised.taken
    constants = {name: _kind(tensor, surgery) for name, tensor in read.items() if surgery.is_constant(tensor)}
    constants |= {name: _kind_text(value) for name, value in realised.constants.items()}
    after = (RegionNode(node.name, node.op, node.inputs, node.outputs) for node in realised.nodes)
    return Region(tuple(_region_nodes(reversed(found.nodes))), tuple(after), constants)


def _region_nodes(nodes: Iterable[gs.Node]) -> Iterator[RegionNode]:
    for node in nodes:
        inputs, outputs = (tuple(str(tensor.name) for tensor in tensors) for tensors in (node.inputs, node.outputs))
        yield RegionNode(describe(node), str(node.op), inputs, outputs)


def _kind(tensor: gs.Tensor, surgery: Surgery) -> str:
    value = tensor if isinstance(tensor, gs.Constant) else surgery.constant(tensor)
    return "" if value is None else _kind_text(value)


def _kind_text(value: Any) -> str:
    return f"{value.dtype} [{', '.join(map(str, value.shape))}]"
