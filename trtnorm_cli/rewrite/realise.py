"""Turn a replacement, written as an expression of new nodes, into named nodes and tensors."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import onnx
import onnx_graphsurgeon as gs

from trtnorm_cli.rewrite.pattern import describe
from trtnorm_cli.rewrite.rule import Match, NewConstant, NewNode


@dataclass(frozen=True)
class RealNode:
    """A node with the names it will have in the model."""

    op: str
    name: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    attrs: dict[str, Any]

    def proto(self) -> onnx.NodeProto:
        return onnx.helper.make_node(self.op, self.inputs, self.outputs, self.name, **self.attrs)


@dataclass
class Realised:
    """A replacement with names: nodes in topological order, new constants by name, and the tensors it takes as they are."""

    nodes: list[RealNode] = field(default_factory=list)
    constants: dict[str, np.ndarray] = field(default_factory=dict)
    taken: dict[str, gs.Tensor] = field(default_factory=dict)


def realise(expression: NewNode, match: Match, fresh: Callable[[str], str]) -> Realised:
    """Give names to what ``expression`` adds; ``fresh`` turns a wished name into one that the model does not use yet.

    The last node produces the tensor that the match's root produced.
    """
    result = Realised()
    _Namer(result, describe(match.root), fresh).node(expression, match.output.name)
    return result


class _Namer:
    def __init__(self, result: Realised, stem: str, fresh: Callable[[str], str]) -> None:
        self.result, self.stem, self.fresh = result, stem, fresh
        self.done: dict[int, str] = {}

    def node(self, new: NewNode, output: str | None = None) -> str:
        """Name ``new`` and all that feeds it; returns the name of its output."""
        if id(new) in self.done:
            return self.done[id(new)]
        inputs = tuple(self.input(item) for item in new.inputs)
        name = new.name or self.fresh(f"{self.stem}/{new.role or new.op}")
        produced = output or self.fresh(f"{name}_output")
        attrs = {key: value for key, value in new.attrs.items() if not _is_empty_list(value)}
        self.result.nodes.append(RealNode(new.op, name, inputs, (produced,), attrs))
        self.done[id(new)] = produced
        return produced

    def input(self, item: gs.Tensor | NewConstant | NewNode | None) -> str:
        if item is None:
            return ""
        if isinstance(item, NewNode):
            return self.node(item)
        if isinstance(item, NewConstant):
            return self._constant(item)
        self.result.taken[item.name] = item
        return str(item.name)

    def _constant(self, item: NewConstant) -> str:
        if id(item) not in self.done:
            name = self.fresh(f"{self.stem}/{item.role}")
            self.result.constants[name] = item.value
            self.done[id(item)] = name
        return self.done[id(item)]


def _is_empty_list(value: Any) -> bool:
    """ONNX cannot tell the type of an empty list, and means the attribute's default by it."""
    return isinstance(value, list | tuple) and not value
