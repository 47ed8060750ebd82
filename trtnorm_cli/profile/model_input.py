"""The inputs of a model, as a build profile needs to know them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import field

import onnx

from trtnorm_cli.light_dataclass import dataclass
from trtnorm_cli.onnx_model.placeholders import names_nothing, placeholders_of_inputs
from trtnorm_cli.onnx_model.shapes import format_shape, model_inputs
from trtnorm_cli.shapes.symbols import axis_symbol


@dataclass(frozen=True)
class ModelInput:
    """One input that the caller must feed, with its name, element type in words (``float32``), and shape.

    A dimension is an integer, the name of a symbolic dimension, or None where the model says nothing. A negative number and a
    name such as ``?``, both written by some exporters, say nothing as well.
    """

    name: str
    dtype: str
    shape: tuple[int | str | None, ...]
    # What stands in the file in the place of a name, by axis.
    placeholders: Mapping[int, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        object.__setattr__(self, "shape", tuple(None if _says_nothing(dim) else dim for dim in self.shape))

    @property
    def is_dynamic(self) -> bool:
        """True when some dimension is not an integer."""
        return any(not isinstance(dim, int) for dim in self.shape)

    @property
    def symbols(self) -> tuple[str, ...]:
        """The names of its symbolic dimensions, each once, in order."""
        return tuple(dict.fromkeys(dim for dim in self.shape if isinstance(dim, str)))

    @property
    def dimensions(self) -> tuple[int | str, ...]:
        """Its dimensions by number or name. One without a name is called by input and axis, ``x[2]``."""
        return tuple(axis_symbol(self.name, axis) if dim is None else dim for axis, dim in enumerate(self.shape))

    @property
    def takes_integers(self) -> bool:
        """True for signed, unsigned and boolean element types."""
        return self.dtype.lower().removeprefix("u").startswith(("int", "bool"))

    def __str__(self) -> str:
        return f"{self.name}: {self.dtype} {format_shape(self.shape)}"


def _says_nothing(dim: int | str | None) -> bool:
    return names_nothing(dim) if isinstance(dim, str) else dim is not None and dim < 0


def symbols_of(inputs: Iterable[ModelInput]) -> tuple[str, ...]:
    """The names of all symbolic dimensions, each once, in order."""
    return tuple(dict.fromkeys(symbol for model_input in inputs for symbol in model_input.symbols))


def dimensions_of(inputs: Iterable[ModelInput]) -> tuple[str, ...]:
    """The names of all dynamic dimensions, those without a name included, each once, in order."""
    found = (dim for model_input in inputs for dim in model_input.dimensions if isinstance(dim, str))
    return tuple(dict.fromkeys(found))


def meant_by(name: str, inputs: Iterable[ModelInput]) -> list[str]:
    """The names of the dimensions that ``name`` in a profile stands for.

    That is the one of this name, or all that the file gives this name though it names nothing, such as ``unk__7``.
    """
    inputs = list(inputs)
    if name in dimensions_of(inputs):
        return [name]
    return [axis_symbol(one.name, axis) for one in inputs for axis, word in one.placeholders.items() if word == name]


def inputs_of(model: onnx.ModelProto) -> list[ModelInput]:
    """The inputs of ``model`` as the profile code sees them. An input of unknown rank has an empty shape there."""
    words = placeholders_of_inputs(model)
    return [
        ModelInput(name, onnx.helper.tensor_dtype_to_np_dtype(kind.dtype).name, kind.shape or (), words.get(name, {}))
        for name, kind in model_inputs(model).items()
    ]
