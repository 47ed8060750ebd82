"""Weights that a user gives beside the model: a safetensors file or a PyTorch checkpoint. No code in it is executed."""

from __future__ import annotations

import zipfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np

from trtnorm_cli.errors import UsageProblem
from trtnorm_cli.profile.suggest import listing

SUFFIXES = {".safetensors": "safetensors", ".pt": "torch", ".pth": "torch", ".bin": "torch", ".ckpt": "torch"}
# Where training scripts put the weights when they save more than those, and what wrappers put before each name.
_INNER = ("state_dict", "model_state_dict", "model")
_WRAPPERS = ("module.", "_orig_mod.")


@dataclass(frozen=True)
class Checkpoint:
    """Tensors by name; each is read when it is asked for. ``sizes`` are numbers of values."""

    path: Path
    sizes: Mapping[str, int]
    _read: Callable[[str], np.ndarray] = field(repr=False)

    def size(self, name: str) -> int | None:
        """The number of values of the tensor that an exported model calls ``name``; None when there is none."""
        key = self._key(name)
        return None if key is None else self.sizes[key]

    def values(self, name: str) -> np.ndarray:
        """The tensor that an exported model calls ``name``; raises ``KeyError`` when there is none."""
        key = self._key(name)
        if key is None:
            raise KeyError(name)
        return self._read(key)

    def _key(self, name: str) -> str | None:
        return next((key for key in (name, *(wrapper + name for wrapper in _WRAPPERS)) if key in self.sizes), None)


def load_checkpoint(path: Path) -> Checkpoint:
    """Open ``path``, a ``.safetensors`` file or one of ``torch.save``.

    Raises ``UsageProblem`` when it cannot be read, when the package that reads it is missing, and for a PyTorch file that
    holds more than tensors: reading that could run code.
    """
    return _safetensors(path) if kind_of_weights(path) == "safetensors" else _torch(path)


def kind_of_weights(path: Path) -> str:
    """``safetensors`` or ``torch``, by the suffix; raises ``UsageProblem`` for other files and for one that is missing."""
    if not path.is_file():
        raise UsageProblem("there is no such file of weights", str(path), "check the path after --weights")
    kind = SUFFIXES.get(path.suffix.lower())
    if kind is None:
        raise UsageProblem(
            f"weights cannot be read from a {path.suffix or 'file without a suffix'}",
            str(path),
            f"give a file ending in {listing(SUFFIXES)}",
        )
    return kind


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
        import torch
    except ImportError:
        raise missing_package("torch", "torch", path) from None
    content = torch_content(path)
    tensors = {name: value for name, value in _state_dict(content).items() if isinstance(value, torch.Tensor)}
    if not tensors:
        raise no_tensors(path)
    return Checkpoint(path, {name: value.numel() for name, value in tensors.items()}, lambda name: _array(tensors[name]))


def torch_content(path: Path) -> Any:
    """What ``torch.save`` wrote, tensors and plain values alone; raises ``UsageProblem`` for anything that could run code."""
    import torch

    try:
        # Mapped, the file is not read into memory as a whole; only the newer, zipped form can be.
        return torch.load(path, map_location="cpu", weights_only=True, mmap=zipfile.is_zipfile(path))
    except Exception as error:  # UnpicklingError, RuntimeError, EOFError and others, by what the file is
        raise UsageProblem(
            f"the checkpoint cannot be read as tensors alone: {str(error).splitlines()[0]}",
            str(path),
            "save the state_dict alone: torch.save(model.state_dict(), 'weights.pt'); trtnorm runs no code from a checkpoint",
        ) from error


def no_tensors(path: Path) -> UsageProblem:
    return UsageProblem("the checkpoint holds no tensors by name", str(path), "save the state_dict: a dict of tensors")


def _state_dict(content: Any) -> Mapping[str, Any]:
    """The innermost mapping that holds the weights."""
    while isinstance(content, Mapping):
        inner = next((content[key] for key in _INNER if isinstance(content.get(key), Mapping)), None)
        if inner is None:
            return content
        content = inner
    return {}


def _array(tensor: Any) -> np.ndarray:
    import torch

    if tensor.dtype == torch.bfloat16:
        return tensor.detach().float().numpy().astype(ml_dtypes.bfloat16)
    return np.asarray(tensor.detach().numpy())


def missing_package(package: str, extra: str, path: Path) -> UsageProblem:
    return UsageProblem(
        f"{package} is not installed, and is needed to read these weights", str(path), f"pip install 'trtnorm[{extra}]'"
    )
