"""The nodes that must stay float32 whatever the data: seen in the model alone, before it runs."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Protocol

import onnx

from trtnorm_cli.errors import ProfileError
from trtnorm_cli.onnx_model.shapes import TensorType
from trtnorm_cli.precision.author_guards import author_kept
from trtnorm_cli.precision.capabilities import why_refused
from trtnorm_cli.precision.exact_arguments import kept_exact
from trtnorm_cli.precision.fragile_constants import FragileConstants
from trtnorm_cli.precision.low_constants import Constants
from trtnorm_cli.precision.low_types import LowType
from trtnorm_cli.precision.masks import Masks
from trtnorm_cli.precision.plan import kept, name_of
from trtnorm_cli.precision.ports import Role, TypedNode, kept_fixed, typed_nodes
from trtnorm_cli.precision.tensor_types import complete_types
from trtnorm_cli.precision.units import Unit
from trtnorm_cli.profile.rewriting import is_of
from trtnorm_cli.records.precision import Kept
from trtnorm_cli.suggest import did_you_mean


class Asked(Protocol):
    """The nodes that the user wants in float32: patterns of their names, and operators."""

    @property
    def nodes(self) -> tuple[str, ...]: ...

    @property
    def operators(self) -> tuple[str, ...]: ...


def static_kept(
    model: onnx.ModelProto,
    folder: Path | None,
    types: Mapping[str, TensorType],
    units: Sequence[Unit],
    low: LowType,
    asked: Asked | None = None,
) -> dict[str, Kept]:
    """The nodes that stay float32, by their keys, with the first reason that applies.

    A unit of which one node stays float32 stays so as a whole. Raises ``ProfileError`` where ``asked`` names nothing.
    """
    types = complete_types(model, types)
    constants = Constants(model, folder)
    nodes = [node for node in typed_nodes(model, types, constants, low) if node.role is not Role.NONE]
    found: dict[str, Kept] = {}
    reasons: Iterable[Iterable[Kept]] = (
        _asked(nodes, asked),
        _refused(nodes, low),
        author_kept(model, types, constants),
        _in_pieces(nodes, units, low),
        Masks(model, types, units, constants).kept(low),
        kept_exact(model, types, low),
        FragileConstants(model, constants, units, low).kept(_open(nodes, found)),
    )
    for reason in reasons:
        for one in reason:
            found.setdefault(one.key, one)
    _complete(found, nodes, units)
    typed = {node.key for node in nodes}
    return {key: one for key, one in found.items() if key in typed}


def _open(nodes: Iterable[TypedNode], found: Mapping[str, Kept]) -> Iterator[TypedNode]:
    """The nodes that are not kept yet: the constants of the others stay float32 as well."""
    return (node for node in nodes if node.role is Role.TYPED and node.key not in found)


def _asked(nodes: Sequence[TypedNode], asked: Asked | None) -> Iterator[Kept]:
    if asked is None:
        return
    names = [name_of(node.node) for node in nodes]
    operators = sorted({node.node.op_type for node in nodes})
    for pattern in asked.nodes:
        fitting = [node for node in nodes if _fits(node, pattern)]
        if not fitting:
            raise _no_such("a node", "nodes", pattern, names)
        for node in fitting:
            yield kept(node.node, "asked", f"the build profile keeps {pattern} in float32")
    for operator in asked.operators:
        fitting = [node for node in nodes if node.node.op_type == operator]
        if not fitting:
            raise _no_such("an operator", "operators", operator, operators)
        for node in fitting:
            yield kept(node.node, "asked", f"the build profile keeps every {operator} in float32")


def _fits(node: TypedNode, pattern: str) -> bool:
    """True where ``pattern`` names the node, its first output, or a node that it was made in the place of."""
    return any(fnmatchcase(name, pattern) or is_of(name, pattern) for name in (node.node.name, node.key) if name)


def _no_such(what: str, key: str, pattern: str, names: Sequence[str]) -> ProfileError:
    return ProfileError(
        f"keep_fp32 names {what} that computes nothing in this model: {pattern}{did_you_mean(pattern, names)}",
        f"the build profile, precision.keep_fp32.{key}",
        "trtnorm rewrite MODEL -o FIXED.onnx shows the nodes as they are after the rewriting; patterns know * and ?",
    )


def _refused(nodes: Iterable[TypedNode], low: LowType) -> Iterator[Kept]:
    for node in nodes:
        why = why_refused(node.node.op_type, low) if node.role is Role.TYPED else None
        if why is not None:
            yield kept(node.node, "type", f"TensorRT does not build {node.node.op_type} in {low.name}: {why}")
        elif node.role is Role.FIXED:
            yield kept_fixed(node, low)


def _in_pieces(nodes: Iterable[TypedNode], units: Iterable[Unit], low: LowType) -> Iterator[Kept]:
    by_key = {node.key: node for node in nodes}
    for unit in units:
        if unit.is_norm and not unit.native:
            reason = f"TensorRT computes a {unit.kind} in pieces in {low.name} throughout, its mean and variance too"
            for key in sorted(unit.keys & by_key.keys()):
                yield kept(by_key[key].node, "norm", reason, unit.data)


def _complete(found: dict[str, Kept], nodes: Iterable[TypedNode], units: Iterable[Unit]) -> None:
    """Keep the whole of each unit of which a part is kept, in place."""
    by_key = {node.key: node for node in nodes}
    for unit in units:
        first = next((found[key] for key in sorted(unit.keys) if key in found), None)
        if first is not None:
            for key in sorted((unit.keys & by_key.keys()) - found.keys()):
                reason = f"it is one {unit.kind} with {first.node}: {first.reason}"
                found[key] = kept(by_key[key].node, first.cause, reason, first.tensor, first.value, first.limit)
