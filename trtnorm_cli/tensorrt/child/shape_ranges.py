"""Min, opt and max of a network's inputs in TensorRT's optimization profiles, and what TensorRT thinks of them."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any

from trtnorm_cli.tensorrt.request import ShapeTriple

_NOT_SELF_CONSISTENT = re.compile(r"Profile k(MIN|OPT|MAX) values are not self-consistent\.?\s*(.*)", re.DOTALL)


def set_range(profile: Any, network: Any, name: str, corners: ShapeTriple) -> None:
    """Give an input the range of its shape, or of its elements where these decide shapes (TensorRT's shape tensors).

    Elements of an input that turned out to decide none are left out, because TensorRT takes no range for them. Raises
    ``ValueError``, ``TypeError`` or ``RuntimeError`` where TensorRT does.
    """
    tensor = _inputs(network).get(name)
    if tensor is not None and tensor.is_shape_tensor:
        profile.set_shape_input(name, *map(list, corners))
    elif tensor is None or -1 in tuple(tensor.shape):
        profile.set_shape(name, *map(tuple, corners))


def without_elements(network: Any, given: Iterable[str]) -> list[str]:
    """The shape tensors among the inputs that are not ``given`` a range."""
    names = set(given)
    return [name for name, tensor in _inputs(network).items() if tensor.is_shape_tensor and name not in names]


def _inputs(network: Any) -> Mapping[str, Any]:
    tensors = [network.get_input(index) for index in range(network.num_inputs)]
    return {tensor.name: tensor for tensor in tensors}


def inconsistent(warnings: Iterable[str]) -> list[str]:
    """The warnings that min or max of a profile does not fit the network.

    TensorRT builds all the same, and fails there at run time.
    """
    return [warning for warning in dict.fromkeys(warnings) if _NOT_SELF_CONSISTENT.search(warning)]
