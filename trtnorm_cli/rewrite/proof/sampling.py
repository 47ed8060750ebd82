"""The inputs on which a cut-out is run: shapes first, then values."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Mapping

import numpy as np
import onnx

from trtnorm_cli.evaluate.data.drawing import draw as draw_values
from trtnorm_cli.evaluate.data.input_ranges import Domain, InputRanges
from trtnorm_cli.onnx_model.light_copy import light_copy
from trtnorm_cli.onnx_model.shapes import TensorType
from trtnorm_cli.rewrite.rule import Unprovable

Shapes = dict[str, tuple[int, ...]]

# Above this many elements in one input, smaller sizes are tried first.
_LARGE = 1 << 20
# Above this many elements (1 GiB in float64) nothing is run.
_TOO_LARGE = 1 << 27
# Sizes of axes that shape inference leaves open: they come from data, or from an operator that it does not know.
_OPEN_BATCH, _OPEN_SIZE = 2, 16
_SMALLEST_HALVED = 32


def sample_shapes(kinds: Mapping[str, TensorType]) -> Iterator[Shapes]:
    """Shapes at which a region with inputs ``kinds`` can be run, the cheapest first.

    Large inputs are first made smaller, which is as good a proof where a region takes any size; the real sizes come second.
    A batch that is not known is two, and then one: shapes inside the region may be worked out for the smallest batch.
    Every rank is known. Raises ``Unprovable`` when an input has no elements.
    """
    real = real_shapes(kinds)
    small = {name: _shrunk(shape) for name, shape in real.items()}
    yield small
    if small != real and all(math.prod(shape) <= _TOO_LARGE for shape in real.values()):
        yield real
    single = {name: _filled(name, kind, batch=1) for name, kind in kinds.items()}
    if single != real:
        yield single


def real_shapes(kinds: Mapping[str, TensorType]) -> Shapes:
    """The file's shapes; axes that it leaves open have some length."""
    return {name: _filled(name, kind) for name, kind in kinds.items()}


def _filled(name: str, kind: TensorType, batch: int = _OPEN_BATCH) -> tuple[int, ...]:
    assert kind.shape is not None, "its rank is known"
    shape = tuple(size if isinstance(size, int) else (_OPEN_SIZE if axis else batch) for axis, size in enumerate(kind.shape))
    if any(size <= 0 for size in shape):
        raise Unprovable(f"{name} has no elements: its shape is {list(shape)}")
    return shape


def _shrunk(shape: tuple[int, ...]) -> tuple[int, ...]:
    """``shape`` with a batch of one and halved spatial axes, until it is no longer large."""
    sizes = list(shape)
    if math.prod(sizes) > _LARGE and len(sizes) > 1:
        sizes[0] = 1
    while math.prod(sizes) > _LARGE:
        axis = max(range(len(sizes)), key=lambda i: sizes[i] if i >= 2 else 0)
        if axis < 2 or sizes[axis] < _SMALLEST_HALVED:
            break
        sizes[axis] //= 2
    return tuple(sizes)


def fitting_domains(region: onnx.ModelProto, kinds: Mapping[str, TensorType], shapes: Shapes) -> dict[str, Domain]:
    """The values that the integer inputs of ``region`` may hold at ``shapes``, so that they fit what they index there."""
    counted = {name for name, kind in kinds.items() if not is_floating(kind.dtype)}
    if not counted:
        return {}
    light = light_copy(region)
    for value in light.graph.input:
        if value.name in shapes:
            value.CopyFrom(onnx.helper.make_tensor_value_info(value.name, kinds[value.name].dtype, shapes[value.name]))
    found = InputRanges(light).at(shapes)
    return {name: domain for name, domain in found.items() if name in counted}


def draw(
    rng: np.random.Generator,
    kinds: Mapping[str, TensorType],
    shapes: Shapes,
    positive: Collection[str] = (),
    domains: Mapping[str, Domain] | None = None,
) -> dict[str, np.ndarray]:
    """Standard normal values for floating types, their size for those in ``positive``; integers and booleans by ``domains``.

    Without a domain integers are small, and booleans coin tosses.
    """
    given = domains or {}
    values = {name: draw_values(kinds[name], shape, None, rng, given.get(name)) for name, shape in shapes.items()}
    return {name: np.abs(value) if name in positive else value for name, value in values.items()}


def is_floating(data_type: int) -> bool:
    dtype = onnx.helper.tensor_dtype_to_np_dtype(data_type)
    return dtype != np.bool_ and not np.issubdtype(dtype, np.integer)
