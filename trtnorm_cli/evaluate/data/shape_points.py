"""The input shapes at which models are compared, which are the corners of every optimization profile and shapes in between."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from typing import TYPE_CHECKING

import numpy as np

from trtnorm_cli.light_dataclass import dataclass
from trtnorm_cli.onnx_model.shapes import TensorType

# Who draws data without a build profile needs nothing of pydantic, which takes long to import.
if TYPE_CHECKING:
    from trtnorm_cli.profile.fit import FittedProfile
    from trtnorm_cli.profile.prove import Proof

_MOST_TRIES = 32
Shapes = Mapping[str, tuple[int, ...]]


@dataclass(frozen=True)
class ShapePoint:
    """One set of input shapes. ``label`` says where in which profile it lies.

    ``values`` are the elements of inputs that hold sizes. ``optional`` points are drawn at random, and a model may refuse their
    shapes.
    """

    label: str
    shapes: Shapes
    values: Shapes = field(default_factory=dict)
    optional: bool = False

    @property
    def elements(self) -> int:
        """The number of values that the inputs hold together."""
        return sum(int(np.prod(shape, dtype=np.int64)) for shape in self.shapes.values())


def shape_points(proof: Proof, inputs: Mapping[str, TensorType], in_between: int, rng: np.random.Generator) -> list[ShapePoint]:
    """Min, opt and max of each profile, then ``in_between`` random shapes of each that fit the model. No shape comes twice.

    A size of zero is raised to one, since without elements there is nothing to compare.
    """
    from trtnorm_cli.profile.dims import CORNERS

    found: dict[tuple[tuple[str, tuple[int, ...]], ...], ShapePoint] = {}
    for profile in proof.fitted.profiles:
        points = [
            ShapePoint(f"{profile.name} {corner}", _at_least_one(profile.at(corner)), profile.values_at(corner))
            for corner in CORNERS
        ]
        drawn = [_fitting_shapes(proof, profile, inputs, rng) for _ in range(in_between)]
        usual = profile.values_at("opt")
        points += [
            ShapePoint(f"{profile.name} random {n}", shapes, usual, optional=True)
            for n, shapes in enumerate(drawn, 1)
            if shapes is not None
        ]
        for point in points:
            found.setdefault((*sorted(point.shapes.items()), *sorted(point.values.items())), point)
    return list(found.values())


def _at_least_one(shapes: Shapes) -> Shapes:
    return {name: tuple(max(size, 1) for size in shape) for name, shape in shapes.items()}


def _fitting_shapes(
    proof: Proof, profile: FittedProfile, inputs: Mapping[str, TensorType], rng: np.random.Generator
) -> Shapes | None:
    """Random shapes that break nothing that the model demands, or None where none were found."""
    tries = (_random_shapes(proof, profile, inputs, rng) for _ in range(_MOST_TRIES))
    return next((shapes for shapes in tries if proof.fits(shapes)), None)


def _random_shapes(proof: Proof, profile: FittedProfile, inputs: Mapping[str, TensorType], rng: np.random.Generator) -> Shapes:
    """Sizes between min and max. Dimensions of one name get one size, and multiples are kept."""
    low, high = profile.at("min"), profile.at("max")
    drawn: dict[str, int] = {}
    shapes: dict[str, tuple[int, ...]] = {}
    for name in low:
        symbols = inputs[name].shape or ()
        sizes = []
        for axis, (least, most) in enumerate(zip(low[name], high[name], strict=True)):
            symbol = symbols[axis] if axis < len(symbols) else None
            key = symbol if isinstance(symbol, str) and symbol else f"{name}[{axis}]"
            if key not in drawn:
                step = profile.dims[key].multiple_of if key in profile.dims else None
                size = _draw_size(max(least, 1), max(most, 1), step or 1, rng)
                drawn[key] = proof.nearest_legal(key, size, max(least, 1), max(most, 1))
            sizes.append(drawn[key])
        shapes[name] = tuple(sizes)
    return shapes


def _draw_size(least: int, most: int, step: int, rng: np.random.Generator) -> int:
    first, last = -(-least // step), most // step
    return least if last < first else int(rng.integers(first, last + 1)) * step
