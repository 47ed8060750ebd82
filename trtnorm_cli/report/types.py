"""The lines of a build's table on types that were replaced."""

from __future__ import annotations

from trtnorm_cli.records.types import NarrowedDoubles, NarrowingCheck, TypesRecord


def type_rows(types: TypesRecord | None) -> list[tuple[str, str]]:
    """One row for doubles, where the model has some."""
    if types is None or types.doubles is None:
        return []
    return [("double → float32", _doubles(types.doubles))]


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
