"""Notes on types that were replaced."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from trtnorm_cli.records.types import NarrowedConstant, NarrowedDoubles, NarrowingCheck, TypesRecord

# Constants are named one by one up to so many.
_SHOWN = 4
_HARMLESS_SPREAD = 1e-3


def with_check(types: TypesRecord | None, check: NarrowingCheck | None) -> TypesRecord | None:
    """``types`` with the check of its narrowing."""
    if types is None or types.doubles is None or check is None:
        return types
    return replace(types, doubles=replace(types.doubles, check=check))


def type_notes(types: TypesRecord | None) -> list[str]:
    """Notes on inputs and outputs of another type than in the file, and on constants that lost more than digits."""
    if types is None or types.doubles is None:
        return []
    return [*_interface(types.doubles), *_constants(types.doubles.constants)]


def _interface(doubles: NarrowedDoubles) -> Iterator[str]:
    named = [*(f"input {name}" for name in doubles.inputs), *(f"output {name}" for name in doubles.outputs)]
    if named:
        yield f"float64 in the model, float32 in the engine: {', '.join(named)}; TensorRT has no float64"


def _constants(constants: tuple[NarrowedConstant, ...]) -> Iterator[str]:
    clamped = [c for c in constants if c.clamped]
    raised = [c for c in constants if c.raised]
    alike = [c for c in constants if c.spread > _HARMLESS_SPREAD]
    if clamped:
        yield f"constants beyond float32 became its largest number, 3.4e38: {_named(clamped)}"
    if raised:
        yield f"constants too small for float32 became its smallest number, 1.2e-38, and not zero: {_named(raised)}"
    if alike:
        yield f"constants whose values float32 hardly tells apart: {_named(alike)}"


def _named(constants: list[NarrowedConstant]) -> str:
    shown = [f"{c.name} of {c.reader}" if c.reader else c.name for c in constants[:_SHOWN]]
    more = f" and {len(constants) - _SHOWN} more" if len(constants) > _SHOWN else ""
    return ", ".join(shown) + more
