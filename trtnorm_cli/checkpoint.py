"""Weights that a user gives beside the model: safetensors files or a PyTorch checkpoint. No code in it is executed."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import field
from functools import cached_property
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np

from trtnorm_cli.errors import UsageProblem
from trtnorm_cli.light_dataclass import dataclass
from trtnorm_cli.weights_file import INDEX, Naming, kind_of_weights, missing_package, namings, parts_of, torch_tensors


@dataclass(frozen=True)
class Checkpoint:
    """Tensors by name. Each is read when it is asked for. ``sizes`` are numbers of values.

    ``path`` is the file that was named, ``parts`` are those that it names. ``notes`` say what was chosen in a file that holds
    more than one set of weights.
    """

    path: Path
    sizes: Mapping[str, int]
    _read: Callable[[str], np.ndarray] = field(repr=False)
    notes: tuple[str, ...] = ()
    parts: tuple[Path, ...] = ()

    @property
    def files(self) -> tuple[Path, ...]:
        return (self.path, *self.parts)

    def size(self, name: str) -> int | None:
        """The number of values of the tensor that an exported model calls ``name``, or None when there is none."""
        key = self._key(name)
        return None if key is None else self.sizes[key]

    def values(self, name: str) -> np.ndarray:
        """The tensor that an exported model calls ``name``. Raises ``KeyError`` when there is none."""
        key = self._key(name)
        if key is None:
            raise KeyError(name)
        return self._read(key)

    def _key(self, name: str) -> str | None:
        return next((naming.names[name] for naming in self._namings if name in naming.names), None)

    @cached_property
    def _namings(self) -> list[Naming]:
        return namings(self.sizes)


def load_checkpoint(path: Path) -> Checkpoint:
    """Open ``path``: a ``.safetensors`` file, one of ``torch.save``, or the index of several of them.

    Raises ``UsageProblem`` when it cannot be read, when the package that reads it is missing, for a PyTorch file that holds
    more than tensors (reading that could run code), and for one with several sets of weights of which none has a usual name.
    """
    if path.name.endswith(INDEX):
        return _joined(path, [load_checkpoint(part) for part in parts_of(path)])
    return _safetensors(path) if kind_of_weights(path) == "safetensors" else _torch(path)


def _joined(path: Path, parts: list[Checkpoint]) -> Checkpoint:
    holder = {name: part for part in parts for name in part.sizes}
    sizes = {name: part.sizes[name] for name, part in holder.items()}
    notes = tuple(dict.fromkeys(note for part in parts for note in part.notes))
    return Checkpoint(path, sizes, lambda name: holder[name]._read(name), notes, tuple(part.path for part in parts))


def _safetensors(path: Path) -> Checkpoint:
    try:
        from safetensors import SafetensorError, safe_open
    except ImportError:
        raise missing_package("safetensors", "weights", path) from None
    try:
        opened = safe_open(str(path), framework="np")
        sizes = {name: int(np.prod(opened.get_slice(name).get_shape(), dtype=np.int64)) for name in opened.keys()}  # noqa: SIM118
    except (SafetensorError, OSError) as error:
        raise UsageProblem(f"this is not a safetensors file: {error}", str(path)) from error
    return Checkpoint(path, sizes, lambda name: np.asarray(opened.get_tensor(name)))


def _torch(path: Path) -> Checkpoint:
    try:
        import torch  # noqa: F401
    except ImportError:
        raise missing_package("torch", "torch", path) from None
    tensors, notes = torch_tensors(path)
    sizes = {name: value.numel() for name, value in tensors.items()}
    return Checkpoint(path, sizes, lambda name: _array(tensors[name]), tuple(notes))


def _array(tensor: Any) -> np.ndarray:
    import torch

    if tensor.dtype == torch.bfloat16:
        return tensor.detach().float().numpy().astype(ml_dtypes.bfloat16)
    return np.asarray(tensor.detach().numpy())
