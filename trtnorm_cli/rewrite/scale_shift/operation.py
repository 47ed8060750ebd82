"""One operator of a graph as the rewriting of scales and shifts sees it, and what is to become of it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from trtnorm_cli.light_dataclass import dataclass
from trtnorm_cli.rewrite.pattern import describe
from trtnorm_cli.rewrite.rule import Match, NewNode
from trtnorm_cli.rewrite.scale_shift.affine import Affine, CannotMove

if TYPE_CHECKING:
    import onnx_graphsurgeon as gs


@dataclass(frozen=True)
class Operation:
    """A node with its constants, shapes and attributes."""

    node: gs.Node
    match: Match

    @property
    def op(self) -> str:
        return str(self.node.op)

    @property
    def name(self) -> str:
        return describe(self.node)

    @property
    def opset(self) -> int:
        return self.match.opset

    def attr(self, name: str, default: Any = None) -> Any:
        return self.node.attrs.get(name, default)

    def tensor(self, index: int) -> gs.Tensor | None:
        """Input ``index``; None when it is left out."""
        tensor = self.node.inputs[index] if index < len(self.node.inputs) else None
        return None if tensor is None or tensor.name == "" else tensor

    def is_constant(self, index: int) -> bool:
        tensor = self.tensor(index)
        return tensor is not None and self.match.surgery.is_constant(tensor)

    def constant(self, index: int) -> np.ndarray | None:
        """The value of input ``index``; None when it is left out. Raises ``CannotMove`` when it is computed at run time."""
        tensor = self.tensor(index)
        if tensor is None:
            return None
        value = self.match.surgery.constant(tensor)
        if value is None:
            raise CannotMove(f"{tensor.name}, input {index} of {self.name}, is computed at run time")
        return value

    def weight(self, index: int) -> np.ndarray:
        """The value of input ``index``, which must be given, in the type in which the file stores it."""
        value = self.constant(index)
        if value is None:
            raise CannotMove(f"input {index} of {self.name} is left out")
        return value

    def input_shape(self, index: int) -> tuple[int | str | None, ...]:
        return self._shape(self.tensor(index))

    def output_shape(self, index: int = 0) -> tuple[int | str | None, ...]:
        return self._shape(self.node.outputs[index])

    def axis(self, name: str, default: int, rank: int) -> int:
        """The attribute ``name`` as an axis counted from the front. Raises ``CannotMove`` where there is no such axis."""
        return self.counted([int(self.attr(name, default))], rank)[0]

    def counted(self, axes: Iterable[int], rank: int) -> list[int]:
        """``axes`` counted from the front. Raises ``CannotMove`` where there is no such axis."""
        stated = [int(axis) for axis in axes]
        for axis in stated:
            if not -rank <= axis < rank:
                raise CannotMove(f"{self.name} works on axis {axis} of a tensor with {rank} axes")
        return [axis % rank for axis in stated]

    def text(self, name: str, default: str) -> str:
        """A string attribute."""
        value = self.attr(name, default)
        return value.decode() if isinstance(value, bytes) else str(value)

    def axes(self, index: int) -> list[int] | None:
        """The axes of an operator that has them as an attribute in old opsets and as input ``index`` in new ones."""
        stated = self.constant(index)
        values = self.attr("axes") if stated is None else stated
        return None if values is None else [int(axis) for axis in np.atleast_1d(values)]

    def _shape(self, tensor: gs.Tensor | None) -> tuple[int | str | None, ...]:
        if tensor is None:
            raise CannotMove(f"an input of {self.name} is left out")
        kind = self.match.type_of(tensor)
        if kind is None and self.match.surgery.is_constant(tensor):
            return tuple(tensor.shape)
        if kind is None:
            raise CannotMove(f"the type of {tensor.name} is not known")
        shape = kind.shape
        if shape is None:
            raise CannotMove(f"the rank of {tensor.name} is not known")
        return shape


Build = Callable[[Sequence[Any]], NewNode]


@dataclass(frozen=True)
class Step:
    """The change of one operator that makes a scale and shift disappear.

    ``passes`` says what its inputs (going back) or outputs (going forth) have to provide, by number. ``build`` makes the new
    operator from its new inputs; ``more`` is the number of nodes that it adds, and ``also`` names further nodes that it
    replaces. Going back, ``absorbs`` is set where weights or constants take a part of the scale and shift.
    """

    node: gs.Node
    passes: Mapping[int, Affine]
    build: Build
    absorbs: bool = False
    more: int = 0
    also: tuple[gs.Node, ...] = ()

    @property
    def nodes(self) -> tuple[gs.Node, ...]:
        return (self.node, *self.also)

    @property
    def last(self) -> gs.Node:
        """The node whose outputs the new operator produces."""
        return self.nodes[-1]


def again(op: Operation) -> Build:
    """Build the operator again, as it was, from new inputs."""
    used = [i for i, tensor in enumerate(op.node.outputs) if tensor.outputs or op.match.borders.leaves(tensor)]
    # A Split has as many parts as outputs, also where nobody reads the last of them.
    outputs = len(op.node.outputs) if op.op == "Split" else max(used, default=0) + 1

    def build(inputs: Sequence[Any]) -> NewNode:
        attrs = dict(op.node.attrs)
        return NewNode(op.op, tuple(inputs), attrs, op.op.lower(), op.node.name, instead_of=op.node, outputs=outputs)

    return build


def followed(step: Callable[..., Step], node: gs.Node, *arguments: Any) -> Step:
    """``step`` of a node. Raises ``CannotMove`` where the shapes that the file states contradict the node's attributes."""
    try:
        return step(node, *arguments)
    except (ValueError, IndexError) as error:
        raise CannotMove(f"the stated shapes around {describe(node)} do not fit it: {error}") from error


def built(
    step: Step, made: dict[int, NewNode], step_of: Callable[[gs.Tensor], Step | None], new: Callable[[Step, int], Any]
) -> NewNode:
    """The new node of ``step``, after those that feed it: there may be as many as the graph is deep.

    ``made`` has the new nodes by the identity of the old one, and gets further ones. ``step_of`` gives the step that makes a
    tensor, ``new`` what takes the place of the input of a step with that number.
    """
    waiting = [step]
    while waiting:
        last = waiting[-1]
        feeders = [step_of(tensor) for tensor in last.node.inputs if tensor.name]
        unmade = [feeder for feeder in feeders if feeder is not None and id(feeder.node) not in made]
        if id(last.node) in made:
            waiting.pop()
        elif unmade:
            waiting += unmade
        else:
            made[id(last.node)] = last.build(
                [new(last, i) if tensor.name else None for i, tensor in enumerate(last.node.inputs)]
            )
    return made[id(step.node)]
