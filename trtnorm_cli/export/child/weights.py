"""``--weights`` of a PyTorch model. Load a file of weights into the module, or say what does not fit."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from pathlib import Path

from torch import Tensor, nn

from trtnorm_cli.errors import ModelError
from trtnorm_cli.export.child.state_dict import read_state_dict
from trtnorm_cli.files import sha256_of
from trtnorm_cli.records.export import LoadedWeights
from trtnorm_cli.suggest import listing
from trtnorm_cli.weights_file import namings

_NO_STRICT = "--no-strict loads what fits and leaves the rest as the callable made it"


def load_weights(module: nn.Module, path: Path, strict: bool = True) -> LoadedWeights:
    """Load ``path`` into ``module``, in place.

    Raises ``UsageProblem`` when the file cannot be read, and ``ModelError`` when shapes differ or no name fits and, with
    ``strict``, when a name is missing on either side.
    """
    state = read_state_dict(path)
    tensors, renamed = without_prefixes(state.tensors, module.state_dict().keys())
    notes = [*state.notes, *renamed, *_casts(module, tensors)]
    missing, unexpected = _load(module, tensors, path)
    loaded = len(tensors) - len(unexpected)
    if (strict and (missing or unexpected)) or loaded == 0:
        raise _misfit(path, len(tensors), missing, unexpected)
    return LoadedWeights(path.name, sha256_of(state.files), loaded, tuple(missing), tuple(unexpected), tuple(notes))


def without_prefixes(tensors: Mapping[str, Tensor], wanted: Iterable[str]) -> tuple[dict[str, Tensor], list[str]]:
    """The tensors without what wrappers put before their names, where more of the ``wanted`` names are met without."""
    known = set(wanted)
    naming = max(namings(tensors), key=lambda naming: len(known & naming.names.keys()))
    return {name: tensors[own] for name, own in naming.names.items()}, list(naming.notes)


def _casts(module: nn.Module, tensors: Mapping[str, Tensor]) -> list[str]:
    """The types that loading converts, with the number of tensors."""
    own = module.state_dict()
    pairs = Counter(
        (_type(tensors[name]), _type(tensor))
        for name, tensor in own.items()
        if name in tensors and tensors[name].dtype != tensor.dtype and not tensor.is_meta
    )
    return [f"converted {count} tensors from {theirs} to {ours}" for (theirs, ours), count in pairs.items()]


def _type(tensor: Tensor) -> str:
    return str(tensor.dtype).removeprefix("torch.")


def _load(module: nn.Module, tensors: dict[str, Tensor], path: Path) -> tuple[list[str], list[str]]:
    """Names that the file lacks and that the model lacks. Tied parameters are there when one of their names is."""
    on_meta = any(parameter.is_meta for parameter in module.parameters())
    tied = _tied(module)
    try:
        result = module.load_state_dict(tensors, strict=False, assign=on_meta)
    except RuntimeError as error:
        raise _refused(module, tensors, path, error) from error
    missing = [name for name in result.missing_keys if not any(other in tensors for other in tied.get(name, ()))]
    return missing, list(result.unexpected_keys)


def _tied(module: nn.Module) -> dict[str, list[str]]:
    """All names of each parameter that has several. Files without tied weights hold one of them."""
    names: dict[int, list[str]] = {}
    for name, parameter in module.named_parameters(remove_duplicate=False):
        names.setdefault(id(parameter), []).append(name)
    return {name: group for group in names.values() if len(group) > 1 for name in group}


def _refused(module: nn.Module, tensors: Mapping[str, Tensor], path: Path, error: RuntimeError) -> ModelError:
    """The error for PyTorch's refusal, with the shapes that differ or whatever else it says."""
    own = module.state_dict(keep_vars=True)
    differ = [
        f"{name} is {list(tensors[name].shape)} in the file and {list(tensor.shape)} in the model"
        for name, tensor in own.items()
        if name in tensors and not nn.parameter.is_lazy(tensor) and tensors[name].shape != tensor.shape
    ]
    if differ:
        hint = "make the model with the sizes that it was trained with, or give the weights of this one"
        return ModelError(f"the weights have other shapes than the model: {len(differ)} tensors", _lines(path, differ), hint)
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return ModelError("PyTorch refuses the weights", _lines(path, lines[1:] or lines))


def _misfit(path: Path, count: int, missing: list[str], unexpected: list[str]) -> ModelError:
    found = [f"missing in the file: {listing(missing)}"] if missing else []
    found += [f"not in the model: {listing(unexpected)}"] if unexpected else []
    meant = renaming(missing, unexpected)
    hints = [meant] if meant else []
    if len(unexpected) < count:
        hints.append(_NO_STRICT)
        summary = f"the weights do not fit the model: {len(missing)} missing, {len(unexpected)} not in the model"
    else:
        hints.append("give the weights of this model")
        summary = f"none of the {count} names in the file is one of the model's"
    return ModelError(summary, _lines(path, found), "\n".join(hints))


def _lines(path: Path, found: list[str]) -> str:
    more = [f"and {len(found) - 12} more"] if len(found) > 12 else []
    return "\n".join([f"{path}:", *found[:12], *more])


def renaming(missing: Iterable[str], unexpected: Iterable[str]) -> str | None:
    """The renaming of whole groups of names, as in ``backbone.* looks like encoder.*``, or None when none seem renamed."""
    by_suffix: dict[str, list[str]] = {}
    for name in missing:
        for suffix in _suffixes(name):
            by_suffix.setdefault(suffix, []).append(name)
    pairs: Counter[tuple[str, str]] = Counter()
    for name in unexpected:
        suffix = next((suffix for suffix in _suffixes(name) if suffix in by_suffix), "")
        for other in by_suffix.get(suffix, ()):
            pairs[name.removesuffix(suffix), other.removesuffix(suffix)] += 1
    if not pairs:
        return None
    (theirs, ours), count = pairs.most_common(1)[0]
    return (
        f"the file's {theirs}* looks like the model's {ours}* ({count} names): rename them in the file" if count > 1 else None
    )


def _suffixes(name: str) -> list[str]:
    """The name and its ends, for ``a.b.c`` also ``b.c`` and ``c``."""
    parts = name.split(".")
    return [".".join(parts[start:]) for start in range(len(parts))]
