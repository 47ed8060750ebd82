"""The values that a model expects of an input: those around the mean that it subtracts first.

A standardization, (x − μ)/σ, tells where its data lie. Random numbers around zero would not show that float32 cannot tell such
data apart where μ is much larger than σ.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

import numpy as np
import onnx

from trtnorm_cli.light_dataclass import dataclass
from trtnorm_cli.onnx_model.stored import tensor_array

# With fewer units of the scale between zero and the centre float32 has digits enough for both.
_FAR = 2.0**10
_PASSES = frozenset(("Cast", "Dropout", "Identity"))


@dataclass(frozen=True)
class Centre:
    """The input ``name`` lies around ``centre``, about ``scale`` away from it, as ``node`` says."""

    name: str
    node: str
    centre: np.ndarray
    scale: np.ndarray

    @property
    def is_far(self) -> bool:
        """True where float32 keeps few digits of what distinguishes the values."""
        with np.errstate(divide="ignore", invalid="ignore"):
            return bool(np.any(np.abs(self.centre) > _FAR * np.abs(self.scale)))

    def draw(self, like: np.ndarray, rng: np.random.Generator) -> np.ndarray | None:
        """Values of the shape and type of ``like``; None where the constants do not fit that shape."""
        try:
            centre, scale = np.broadcast_to(self.centre, like.shape), np.broadcast_to(self.scale, like.shape)
        except ValueError:
            return None
        drawn = centre + scale * rng.standard_normal(like.shape)
        return np.asarray(np.rint(drawn) if like.dtype.kind in "iu" else drawn).astype(like.dtype)


def centres(model: onnx.ModelProto, folder: Path | None, inputs: Mapping[str, object]) -> list[Centre]:
    """The far centres of ``inputs`` that the first operators on them tell of, at most one an input."""
    walk = _Walk(model, folder)
    return [found for name in inputs if (found := walk.centre(name)) is not None and found.is_far]


class _Walk:
    def __init__(self, model: onnx.ModelProto, folder: Path | None) -> None:
        self._folder = folder
        self._stored = {tensor.name: tensor for tensor in model.graph.initializer}
        self._readers: dict[str, list[onnx.NodeProto]] = {}
        for node in model.graph.node:
            if node.op_type == "Constant" and node.attribute and node.attribute[0].name == "value":
                self._stored[node.output[0]] = node.attribute[0].t
            for name in node.input:
                self._readers.setdefault(name, []).append(node)

    def centre(self, name: str) -> Centre | None:
        for source, node in self._uses(name):
            if node.op_type not in ("Add", "Sub"):
                continue
            other = self._constant(node.input[1 if node.input[0] == source else 0])
            scale = self._scale(node)
            if other is None or not np.isfinite(other).all() or (node.op_type == "Add" and scale is None):
                continue  # whoever adds an offset and goes on need not mean to take one away
            centre = other if node.op_type == "Sub" else -other
            return Centre(name, node.name or f"-> {node.output[0]}", centre, np.ones(()) if scale is None else scale)
        return None

    def _uses(self, name: str) -> Iterator[tuple[str, onnx.NodeProto]]:
        """The nodes that read the tensor, also behind those that pass it on, each with the name under which it does."""
        waiting, seen = [name], set()
        while waiting:
            source = waiting.pop()
            for node in self._readers.get(source, ()):
                yield source, node
                if node.op_type in _PASSES and node.output[0] not in seen:
                    seen.add(node.output[0])
                    waiting.append(node.output[0])

    def _scale(self, node: onnx.NodeProto) -> np.ndarray | None:
        """The constant that the difference is divided by next."""
        for source, reader in self._uses(node.output[0]):
            place = list(reader.input).index(source)
            other = self._constant(reader.input[1 - place]) if reader.op_type in ("Div", "Mul") else None
            if other is None or not np.isfinite(other).all() or not np.all(other):
                continue
            if reader.op_type == "Mul":
                return np.asarray(1.0 / other)
            if place == 0:
                return other
        return None

    def _constant(self, name: str) -> np.ndarray | None:
        tensor = self._stored.get(name)
        if tensor is None or tensor.data_type not in (onnx.TensorProto.DOUBLE, onnx.TensorProto.FLOAT):
            return None
        return tensor_array(tensor, self._folder).astype(np.float64)
