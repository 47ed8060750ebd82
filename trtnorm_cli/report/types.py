"""The lines of a build's table on types that were replaced."""

from __future__ import annotations

from trtnorm_cli.records.types import NarrowedDoubles, NarrowedIntegers, NarrowingCheck, TypesRecord

_SHOWN = 3


def type_rows(types: TypesRecord | None) -> list[tuple[str, str]]:
    """One row for doubles and one for int64, where the model has some and they were wanted otherwise."""
    if types is None:
        return []
    rows = [] if types.doubles is None else [("double → float32", _doubles(types.doubles))]
    return rows if types.integers is None else [*rows, ("int64 → int32", _integers(types.integers))]


def _integers(integers: NarrowedIntegers) -> str:
    parts = [f"{len(integers.nodes)} nodes with {integers.casts} casts" if integers.nodes else "nothing"]
    if integers.undone:
        parts.append(f"undone, {integers.undone}")
    kept = [f"{one.tensor} at {one.node}: {one.reason}" for one in integers.kept[:_SHOWN]]
    if kept:
        more = f" and {len(integers.kept) - _SHOWN} more" if len(integers.kept) > _SHOWN else ""
        parts.append(f"int64 stays for {', '.join(kept)}{more}")
    return "; ".join(parts)


def _doubles(doubles: NarrowedDoubles) -> str:
    parts = []
    if doubles.inputs or doubles.outputs:
        parts.append(f"inputs and outputs: {len(doubles.inputs)} and {len(doubles.outputs)}")
    if doubles.constants:
        worst = max(doubles.constants, key=lambda constant: constant.worst_relative)
        parts.append(f"{len(doubles.constants)} constants, at most {worst.worst_relative:.1e} off")
    if doubles.check is not None:
        parts.append(_check(doubles.check))
    return "; ".join(parts) or f"{doubles.computed} nodes"


def _check(check: NarrowingCheck) -> str:
    if check.worst is None:
        return f"results not tried: {'; '.join(check.skipped)}"
    left = f", not at {'; '.join(check.skipped)}" if check.skipped else ""
    return f"results at most {check.worst:.1e} off in float32 ({check.output} at {check.at}{left})"
