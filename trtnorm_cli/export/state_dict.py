"""Read the weights of a PyTorch model from a file. No code in it is executed.

A file of several parts is named by its index (``model.safetensors.index.json``), as large models are published.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from trtnorm_cli.errors import UsageProblem
from trtnorm_cli.profile.suggest import listing
from trtnorm_cli.rewrite.checkpoint import kind_of_weights, missing_package, no_tensors, torch_content

_INDEX = ".index.json"
# Where training scripts keep the weights, the one that is meant first.
_USUAL = ("state_dict", "model_state_dict", "model", "params", "net", "network", "weights")


@dataclass(frozen=True)
class StateDict:
    """Tensors by name, the files they come from, and what was chosen on the way."""

    tensors: dict[str, Tensor]
    files: tuple[Path, ...]
    notes: tuple[str, ...] = ()


def read_state_dict(path: Path) -> StateDict:
    """The tensors in ``path``: ``.safetensors``, a file of ``torch.save``, or the index of several of them.

    Raises ``UsageProblem`` when it cannot be read, holds more than tensors and plain values, or several state dicts of which
    none has a usual name.
    """
    if path.name.endswith(_INDEX):
        parts = [read_state_dict(part) for part in _parts(path)]
        tensors = {name: tensor for part in parts for name, tensor in part.tensors.items()}
        return StateDict(tensors, (path, *(file for part in parts for file in part.files)))
    if kind_of_weights(path) == "safetensors":
        return StateDict(_safetensors(path), (path,))
    tensors, notes = _chosen(torch_content(path), path)
    return StateDict(tensors, (path,), tuple(notes))


def _parts(index: Path) -> list[Path]:
    """The files that an index names; they must lie beside it."""
    try:
        names = sorted(set(json.loads(index.read_text(encoding="utf-8"))["weight_map"].values()))
    except FileNotFoundError:
        raise UsageProblem("there is no such file of weights", str(index), "check the path after --weights") from None
    except (ValueError, KeyError, TypeError, AttributeError, OSError) as error:
        raise UsageProblem(f"this is not an index of weights: {error}", str(index), "it needs a weight_map") from error
    outside = [name for name in names if not isinstance(name, str) or Path(name).name != name or name.endswith(_INDEX)]
    if outside:
        raise UsageProblem("the index names files that are not beside it", str(index), f"it names {listing(map(str, outside))}")
    return [index.with_name(name) for name in names]


def _safetensors(path: Path) -> dict[str, Tensor]:
    try:
        from safetensors import SafetensorError
        from safetensors.torch import load_file
    except ImportError:
        raise missing_package("safetensors", "weights", path) from None
    try:
        return dict(load_file(path))
    except (SafetensorError, OSError) as error:
        raise UsageProblem(f"this is not a safetensors file: {error}", str(path)) from error


def _chosen(content: Any, path: Path) -> tuple[dict[str, Tensor], list[str]]:
    """The state dict in what a training script saved, and which one it is."""
    notes: list[str] = []
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
    tensors = {name: value for name, value in found.items() if isinstance(name, str) and isinstance(value, Tensor)}
    if not tensors:
        raise no_tensors(path)
    return tensors, notes


def _holds_tensors(value: Any) -> bool:
    """A mapping with tensors by name in it, or with another such mapping."""
    return isinstance(value, Mapping) and any(
        isinstance(name, str) and (isinstance(inner, torch.Tensor) or _holds_tensors(inner)) for name, inner in value.items()
    )
