"""Read a file of weights as training scripts leave it, with the tensors that are meant under the names that the model uses.

This serves the weights of a PyTorch module and those given beside an ONNX file. No code in a file is executed.
"""

from __future__ import annotations

import json
import zipfile
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from trtnorm_cli.errors import UsageProblem
from trtnorm_cli.light_dataclass import dataclass
from trtnorm_cli.suggest import listing

if TYPE_CHECKING:
    from torch import Tensor

SUFFIXES = {".safetensors": "safetensors", ".pt": "torch", ".pth": "torch", ".bin": "torch", ".ckpt": "torch"}
INDEX = ".index.json"
# Where training scripts keep the weights, the one that is meant first.
_USUAL = ("state_dict", "model_state_dict", "model", "params", "net", "network", "weights")
# What DataParallel, Lightning and similar put before every name; torch.compile puts its word anywhere.
_PREFIXES = ("module.", "model.")
_COMPILED = "_orig_mod."


def kind_of_weights(path: Path) -> str:
    """``safetensors`` or ``torch``, by the suffix. Raises ``UsageProblem`` for other files and for one that is missing."""
    if not path.is_file():
        raise UsageProblem("there is no such file of weights", str(path), "check the path after --weights")
    kind = SUFFIXES.get(path.suffix.lower())
    if kind is None:
        raise UsageProblem(
            f"weights cannot be read from a {path.suffix or 'file without a suffix'}",
            str(path),
            f"give a file ending in {listing([*SUFFIXES, INDEX])}",
        )
    return kind


def parts_of(index: Path) -> list[Path]:
    """The files that an index names, which must lie beside it."""
    if not index.is_file():
        raise UsageProblem("there is no such file of weights", str(index), "check the path after --weights")
    try:
        names = sorted(set(json.loads(index.read_text(encoding="utf-8"))["weight_map"].values()))
    except (ValueError, KeyError, TypeError, AttributeError, OSError, RecursionError) as error:
        raise UsageProblem(f"this is not an index of weights: {error}", str(index), "it needs a weight_map") from error
    outside = [name for name in names if not isinstance(name, str) or Path(name).name != name or name.endswith(INDEX)]
    if outside:
        raise UsageProblem("the index names files that are not beside it", str(index), f"it names {listing(map(str, outside))}")
    return [index.with_name(name) for name in names]


def torch_tensors(path: Path) -> tuple[dict[str, Tensor], list[str]]:
    """The state dict in what a training script saved, and notes that say which one it is.

    Raises ``UsageProblem`` for anything that could run code, and where several are there of which none has a usual name.
    """
    import torch

    content, notes = _torch_content(path), list[str]()
    while isinstance(content, Mapping):
        choices = [key for key, value in content.items() if isinstance(key, str) and _holds_tensors(value)]
        if not choices:
            break
        key = next((name for name in _USUAL if name in choices), choices[0] if len(choices) == 1 else None)
        if key is None:
            hint = "save the one that is meant: torch.save(checkpoint['…'], 'weights.pt')"
            raise UsageProblem(f"the checkpoint holds several sets of weights: {listing(choices)}", str(path), hint)
        others = [name for name in choices if name != key]
        notes.append(f"took {key!r} of the checkpoint{f', not {listing(others)}' if others else ''}")
        content = content[key]
    found = content if isinstance(content, Mapping) else {}
    tensors = {name: value for name, value in found.items() if isinstance(name, str) and isinstance(value, torch.Tensor)}
    if not tensors:
        raise UsageProblem("the checkpoint holds no tensors by name", str(path), "save the state_dict: a dict of tensors")
    return tensors, notes


def _torch_content(path: Path) -> Any:
    """The content that ``torch.save`` wrote, tensors and plain values alone."""
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


def _holds_tensors(value: Any) -> bool:
    """A mapping with tensors by name in it, or with another such mapping."""
    import torch

    return isinstance(value, Mapping) and any(
        isinstance(name, str) and (isinstance(inner, torch.Tensor) or _holds_tensors(inner)) for name, inner in value.items()
    )


@dataclass(frozen=True)
class Naming:
    """``names`` maps what the tensors of a file may be meant to be called to what they are called there."""

    names: Mapping[str, str]
    notes: tuple[str, ...] = ()


def namings(names: Iterable[str]) -> list[Naming]:
    """The names as they stand in a file, and without what wrappers put before them, one wrapper after the other."""
    meant = {name: name for name in names}
    found = [Naming(meant)]
    if any(_COMPILED in name for name in meant):
        meant = {name.replace(_COMPILED, ""): own for name, own in meant.items()}
        found.append(Naming(meant, (f"took {_COMPILED!r}, which torch.compile writes, out of the names",)))
    while prefix := next((prefix for prefix in _PREFIXES if meant and all(name.startswith(prefix) for name in meant)), None):
        meant = {name.removeprefix(prefix): own for name, own in meant.items()}
        found.append(Naming(meant, (*found[-1].notes, f"took the prefix {prefix!r} off every name")))
    return found


def missing_package(package: str, extra: str, path: Path) -> UsageProblem:
    return UsageProblem(
        f"{package} is not installed, and is needed to read these weights", str(path), f"pip install 'trtnorm[{extra}]'"
    )
