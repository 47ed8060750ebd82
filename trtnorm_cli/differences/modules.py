"""The normalization modules of two PyTorch models held against each other."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from difflib import SequenceMatcher

from trtnorm_cli.differences.record import ModuleChange, ModulesDiff, Renamed
from trtnorm_cli.records.export import NormModule

# What is compared of a module, and the kind of a difference in it.
_COMPARED = {
    "type": "norms", "family": "norms", "shape": "norms", "groups": "norms", "epsilon": "norms", "affine": "norms",
    "momentum": "norms", "statistics": "norms", "training": "norms", "dtypes": "types", "mean": "weights",
    "variance": "weights",
}  # fmt: skip


def modules_diff(first: Sequence[NormModule], second: Sequence[NormModule]) -> ModulesDiff:
    """The differences between the modules: matched by their paths, and where these differ by their order and form."""
    pairs = list(_pairs(first, second))
    taken = [{one.path for one, _ in pairs}, {other.path for _, other in pairs}]
    return ModulesDiff(
        matched=len(pairs),
        only_first=tuple(_described(one) for one in first if one.path not in taken[0]),
        only_second=tuple(_described(one) for one in second if one.path not in taken[1]),
        changed=tuple(change for pair in pairs for change in _changes(*pair)),
        renamed=tuple(Renamed("module", one.path, other.path) for one, other in pairs if one.path != other.path),
    )


def _pairs(first: Sequence[NormModule], second: Sequence[NormModule]) -> Iterator[tuple[NormModule, NormModule]]:
    by_path = {one.path: one for one in second}
    yield from ((one, by_path[one.path]) for one in first if one.path in by_path)
    known = {one.path for one in first}
    left = [one for one in first if one.path not in by_path]
    right = [one for one in second if one.path not in known]
    blocks = SequenceMatcher(None, [_form(one) for one in left], [_form(one) for one in right], autojunk=False)
    for block in blocks.get_matching_blocks():
        yield from zip(left[block.a : block.a + block.size], right[block.b : block.b + block.size], strict=True)


def _form(module: NormModule) -> tuple[object, ...]:
    return module.family, module.shape, module.groups


def _described(module: NormModule) -> str:
    return f"{module.path} ({module.type})"


def _changes(one: NormModule, other: NormModule) -> Iterator[ModuleChange]:
    for what, kind in _COMPARED.items():
        was, now = getattr(one, what), getattr(other, what)
        if was != now:
            yield ModuleChange(kind, one.path, other.path, what, _text(was), _text(now))


def _text(value: object) -> str:
    if isinstance(value, tuple):
        return "[" + ", ".join(_text(one) for one in value) + "]"
    return f"{value:.6g}" if isinstance(value, float) else str(value)
