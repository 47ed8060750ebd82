"""One node as the rules for axes see it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from trtnorm_cli.light_dataclass import dataclass
from trtnorm_cli.rewrite.proof.axes import Axes, NotShortened
from trtnorm_cli.rewrite.proof.lengths import Numbers, Stated

Tensor = list[int]


def _states_nothing(number: Stated, axis: int) -> None:
    """Do nothing: there is no constant that states the length of an axis."""


@dataclass(frozen=True)
class Use:
    """One node: the axes of its inputs (None for one that is left out), its attributes, and the values of constants.

    The lengths of each of ``work``, multiplied, are how many multiplications it takes. ``numbers`` are the inputs that hold
    lengths of axes or other integers, None for the rest, and ``outputs`` is how many outputs it has. ``states`` is told of a
    number that is the length of an axis.
    """

    axes: Axes
    inputs: Sequence[Tensor | None]
    values: Sequence[np.ndarray | None]
    attributes: Mapping[str, Any]
    work: list[Tensor]
    numbers: Sequence[Numbers | None] = ()
    outputs: int = 1
    states: Callable[[Stated, int], None] = _states_nothing

    def given(self, index: int) -> Tensor:
        tensor = self.inputs[index] if index < len(self.inputs) else None
        if tensor is None:
            raise NotShortened
        return tensor

    def integers(self, name: str, index: int) -> list[int] | None:
        """A list of integers: an attribute in older opsets, a constant input in newer ones."""
        if index < len(self.inputs) and self.inputs[index] is not None:
            value = self.values[index]
            if value is None:
                raise NotShortened
            return [int(one) for one in value.ravel()]
        stated = self.attributes.get(name)
        return None if stated is None else [int(one) for one in np.ravel(stated)]

    def sizes(self, tensor: Sequence[int]) -> list[int]:
        return [self.axes.sizes[axis] for axis in tensor]
