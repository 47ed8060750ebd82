"""Read the weights of a PyTorch model from a file. No code in it is executed.

A file of several parts is named by its index (``model.safetensors.index.json``), as large models are published.
"""

from __future__ import annotations

from pathlib import Path

from torch import Tensor

from trtnorm_cli.errors import UsageProblem
from trtnorm_cli.light_dataclass import dataclass
from trtnorm_cli.weights_file import INDEX, kind_of_weights, missing_package, parts_of, torch_tensors


@dataclass(frozen=True)
class StateDict:
    """Tensors by name, the files they come from, and what was chosen on the way."""

    tensors: dict[str, Tensor]
    files: tuple[Path, ...]
    notes: tuple[str, ...] = ()


def read_state_dict(path: Path) -> StateDict:
    """The tensors in ``path``, which is a ``.safetensors`` file, one of ``torch.save``, or the index of several of them.

    Raises ``UsageProblem`` when it cannot be read, holds more than tensors and plain values, or several state dicts of which
    none has a usual name.
    """
    if path.name.endswith(INDEX):
        parts = [read_state_dict(part) for part in parts_of(path)]
        tensors = {name: tensor for part in parts for name, tensor in part.tensors.items()}
        notes = tuple(dict.fromkeys(note for part in parts for note in part.notes))
        return StateDict(tensors, (path, *(file for part in parts for file in part.files)), notes)
    if kind_of_weights(path) == "safetensors":
        return StateDict(_safetensors(path), (path,))
    tensors, chosen = torch_tensors(path)
    return StateDict(tensors, (path,), tuple(chosen))


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
