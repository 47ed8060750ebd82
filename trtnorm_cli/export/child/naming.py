"""Names that the user knows, of nodes by module path, inputs and outputs by signature, and sizes by build profile."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Mapping, Sequence

import onnx_ir as ir

_SCOPES = "pkg.torch.onnx.name_scopes"
# What stays of a node's metadata; the rest names files of this machine.
_KEPT = (_SCOPES, "pkg.torch.onnx.class_hierarchy")


def name_nodes(model: ir.Model, prefix: str = "") -> None:
    """Call each node as in ``/encoder/norm1/LayerNormalization``. ``prefix`` is a module path to leave out."""
    taken: set[str] = set()
    for node in model.graph.all_nodes():
        path = "/".join(["", *_module_path(node, prefix), node.op_type])
        name, number = path, 0
        while name in taken:
            number += 1
            name = f"{path}_{number}"
        taken.add(name)
        node.name = name
        for key in [key for key in node.metadata_props if key not in _KEPT]:
            del node.metadata_props[key]


def _module_path(node: ir.Node, prefix: str) -> list[str]:
    """The keys of the modules on the way to ``node``, from dynamo's metadata or else from TorchScript's name."""
    scopes = node.metadata_props.get(_SCOPES)
    if scopes is not None:
        listed = ast.literal_eval(scopes)
        # The last scope is the operator; the ones before are whole module paths, each longer than the one before.
        modules = [scope for scope in listed[:-1] if scope]
        return modules[-1].split(".") if modules else []
    parts = [part for part in (node.name or "").split("/")[1:-1] if part]
    return _without_repeats(parts[1:] if parts[:1] == [prefix] else parts)


def _without_repeats(parts: Sequence[str]) -> list[str]:
    """The new end of each part. TorchScript calls the first child of ``layer1`` ``layer1.0``."""
    path: list[str] = []
    for part in parts:
        known = ".".join(path)
        while known and not part.startswith(known + "."):
            known = known.partition(".")[2]
        path += (part[len(known) + 1 :] if known else part).split(".")
    return path


def leave_out_prefix(model: ir.Model, prefix: str) -> None:
    """Take a module's own name out of the names of tensors, as of ``prefix.conv.weight`` and ``/prefix/conv/Conv_output_0``."""
    values = [*model.graph.initializers.values(), *(value for node in model.graph.all_nodes() for value in node.outputs)]
    taken = {value.name for value in values}
    for value in values:
        for start, short in ((f"{prefix}.", ""), (f"/{prefix}/", "/")):
            if value.name and value.name.startswith(start) and short + value.name[len(start) :] not in taken:
                value.name = short + value.name[len(start) :]
                taken.add(value.name)


def name_interface(model: ir.Model, inputs: Sequence[str], outputs: Sequence[str]) -> None:
    """Give inputs and outputs their names, in order. Other tensors that have one of these names are renamed."""
    wanted = [*inputs, *outputs]
    interface = [*model.graph.inputs, *model.graph.outputs]
    _make_way(model, set(wanted), interface)
    for index, value in enumerate(interface):
        value.name = f"trtnorm_interface_{index}"
    for value, name in zip(interface, wanted, strict=True):
        value.name = name


def _make_way(model: ir.Model, wanted: set[str], interface: Iterable[ir.Value]) -> None:
    kept = set(interface)
    values = [*model.graph.initializers.values(), *(output for node in model.graph.all_nodes() for output in node.outputs)]
    taken = {value.name for value in values} | wanted
    for value in values:
        if value not in kept and value.name in wanted:
            number = 1
            while f"{value.name}_{number}" in taken:
                number += 1
            value.name = f"{value.name}_{number}"
            taken.add(value.name)


def name_sizes(model: ir.Model, inputs: Mapping[str, Sequence[int | str]]) -> None:
    """Write the dimensions of the inputs by name. Sizes of other tensors are kept where they are equal to one of these."""
    known: dict[str, str] = {}
    for value in model.graph.inputs:
        wanted = inputs[value.name or ""]
        written = list(value.shape) if value.shape is not None else [None] * len(wanted)
        for held, dim in zip(written, wanted, strict=True):
            if isinstance(held, ir.SymbolicDim) and held.value is not None and isinstance(dim, str):
                known[str(held.value)] = dim
        value.shape = ir.Shape(list(wanted))
    for node in model.graph.all_nodes():
        for value in node.outputs:
            if value.shape is not None:
                value.shape = ir.Shape([_renamed(dim, known) for dim in value.shape])


def _renamed(dim: int | ir.SymbolicDim, known: Mapping[str, str]) -> int | str | None:
    return dim if isinstance(dim, int) else known.get(str(dim.value))
