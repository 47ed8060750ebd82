"""One evaluation of one operator, as every kernel sees it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from trtnorm_cli.light_dataclass import dataclass


@dataclass(frozen=True)
class Call:
    """``inputs`` holds arrays, lists (sequences) or None for what is absent; ``attributes`` has the schema's defaults.

    ``opset`` is the version of the operator's domain that the model imports, ``outputs`` the names, empty if not
    wanted.
    """

    op_type: str
    opset: int
    inputs: tuple[Any, ...]
    attributes: Mapping[str, Any]
    outputs: tuple[str, ...] = ("",)

    @property
    def x(self) -> np.ndarray:
        return self.inputs[0]

    def input(self, index: int) -> Any:
        return self.inputs[index] if index < len(self.inputs) else None

    def wants(self, output: int) -> bool:
        return output < len(self.outputs) and self.outputs[output] != ""

    def __getitem__(self, name: str) -> Any:
        """The attribute's value, its default, or None."""
        return self.attributes.get(name)

    def integers(self, name: str, index: int) -> list[int] | None:
        """A list that is an attribute in older opsets and the input number ``index`` in newer ones."""
        values = self.input(index) if self.input(index) is not None else self[name]
        return None if values is None else [int(value) for value in np.ravel(values)]


Kernel = Callable[[Call], tuple[Any, ...]]


class NotImplementedHere(Exception):
    """This kernel does not do what the node asks for; the text says what."""


def one(function: Callable[[Call], Any]) -> Kernel:
    """A kernel with one output."""
    return lambda call: (function(call),)
