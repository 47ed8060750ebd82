"""Normalizations that have a single position in every shape that the engine takes, though the file leaves it open."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import onnx

from trtnorm_cli.onnx_model.domains import DEFAULT_DOMAINS
from trtnorm_cli.onnx_model.shapes import TensorType, pinned_types
from trtnorm_cli.onnx_model.walk import all_nodes

Shapes = Mapping[str, tuple[int, ...]]

_OVER_POSITIONS = ("InstanceNormalization", "GroupNormalization")


def single_positions(model: onnx.ModelProto, declared: Mapping[str, TensorType], corners: Sequence[Shapes]) -> list[str]:
    """The data of normalizations, of open shape, whose axes after the channels are 1 at all ``corners``.

    ``corners`` are input shapes: min, opt and max of every optimization profile.
    """
    data = [node.input[0] for node in all_nodes(model) if node.op_type in _OVER_POSITIONS and node.domain in DEFAULT_DOMAINS]
    unsure = [name for name in dict.fromkeys(data) if name in declared and _is_open(declared[name])]
    if not unsure or not corners:
        return []
    at_corners = [pinned_types(model, corner) for corner in corners]
    return [name for name in unsure if all(_has_one_position(types.get(name)) for types in at_corners)]


def with_single_positions(declared: Mapping[str, TensorType], names: Sequence[str]) -> dict[str, TensorType]:
    """``declared`` with a one for each axis after the channels of the tensors ``names``."""
    types = dict(declared)
    for name in names:
        shape = types[name].shape
        assert shape is not None, "its rank is known"
        types[name] = TensorType(types[name].dtype, (*shape[:2], *[1] * (len(shape) - 2)))
    return types


def _is_open(kind: TensorType) -> bool:
    return kind.shape is not None and len(kind.shape) > 2 and not all(isinstance(size, int) for size in kind.shape[2:])


def _has_one_position(kind: TensorType | None) -> bool:
    return kind is not None and kind.shape is not None and all(size == 1 for size in kind.shape[2:])
