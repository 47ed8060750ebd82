"""A module's arguments and results as named tensors. A call is taken apart here, and put together again."""

from __future__ import annotations

import dataclasses
import inspect
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from typing import Any

import torch
import torch.utils._pytree as pytree
from torch import nn

from trtnorm_cli.light_dataclass import dataclass

Path = tuple[Any, ...]


@dataclass(frozen=True)
class Leaf:
    """One value inside the arguments, with its path there and its name."""

    path: Path
    name: str
    value: Any

    @property
    def is_tensor(self) -> bool:
        return isinstance(self.value, torch.Tensor)


@dataclass(frozen=True)
class Call:
    """Arguments bound to the parameters of a module's ``forward``."""

    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    leaves: tuple[Leaf, ...]
    order: tuple[str, ...]
    """The leaves' names in the order in which ``(args, kwargs)`` flattens, which need not be that of the signature."""

    def tensors(self) -> dict[str, torch.Tensor]:
        """The tensors among the arguments by name, in the order of the signature."""
        return {leaf.name: leaf.value for leaf in self.leaves if leaf.is_tensor}

    def constants(self) -> dict[str, Any]:
        """The arguments that are no tensors, and become constants of the export. Arguments that are None are left out."""
        return {leaf.name: leaf.value for leaf in self.leaves if not leaf.is_tensor and leaf.value is not None}

    def with_tensors(self, tensors: Mapping[str, torch.Tensor]) -> Call:
        """The same call with other tensors."""
        flat, spec = pytree.tree_flatten((self.args, self.kwargs))
        filled = [tensors.get(name, value) for value, name in zip(flat, self.order, strict=True)]
        args, kwargs = pytree.tree_unflatten(filled, spec)
        leaves = tuple(dataclasses.replace(leaf, value=tensors.get(leaf.name, leaf.value)) for leaf in self.leaves)
        return Call(args, kwargs, leaves, self.order)


def bind(module: nn.Module, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Call:
    """Bind arguments to ``module.forward``. Raises ``TypeError`` when they do not fit its signature."""
    bound = arguments_by_parameter(module, args, kwargs)
    kwargs = {name: kwargs[name] for name in bound if name in kwargs}  # in the order of the signature
    found, _ = pytree.tree_flatten_with_path(bound)
    names = leaf_names([path for path, _ in found])
    leaves = tuple(Leaf(tuple(path), name, value) for (path, value), name in zip(found, names, strict=True))
    return Call(tuple(args), dict(kwargs), leaves, tuple(_order(module, args, kwargs, leaves)))


def _order(module: nn.Module, args: Sequence[Any], kwargs: Mapping[str, Any], leaves: Sequence[Leaf]) -> list[str]:
    by_keys = {tuple(_key(entry) for entry in leaf.path): leaf.name for leaf in leaves}
    positional, variable = _positional_parameters(module)
    flat, _ = pytree.tree_flatten_with_path((tuple(args), dict(kwargs)))
    names = []
    for path, _ in flat:
        kind, first, *rest = (_key(entry) for entry in path)
        head = [first]
        if kind == "0":
            index = int(first)
            head = [positional[index]] if index < len(positional) else [variable, str(index - len(positional))]
        names.append(by_keys[tuple(head + rest)])
    return names


def _positional_parameters(module: nn.Module) -> tuple[list[str], str]:
    """The parameters of ``forward`` that take positional arguments in order, and the one that takes the rest."""
    parameters = inspect.signature(module.forward).parameters.values()
    plain = [p.name for p in parameters if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
    return plain, next((p.name for p in parameters if p.kind is p.VAR_POSITIONAL), "")


def arguments_by_parameter(module: nn.Module, args: Sequence[Any], kwargs: Mapping[str, Any]) -> dict[str, Any]:
    """The argument of each parameter of ``forward``, with further keyword arguments by their own names."""
    signature = inspect.signature(module.forward)
    bound = dict(signature.bind(*args, **kwargs).arguments)
    for parameter in signature.parameters.values():
        if parameter.kind is inspect.Parameter.VAR_KEYWORD:
            bound.update(bound.pop(parameter.name, {}))
    return bound


def leaf_names(paths: Sequence[Sequence[Any]], single: str = "") -> list[str]:
    """A name for each leaf, which is the last key where that is a name of its own, or else the keys joined.

    A bare value is ``single``.
    """
    keys = [[_key(entry) for entry in path] for path in paths]
    last = Counter(path[-1] for path in keys if path)
    names: list[str] = []
    for path in keys:
        own = bool(path) and not path[-1].isdigit() and last[path[-1]] == 1
        name = path[-1] if own else "_".join(path)
        names.append(_identifier(name) or single)
    return _distinct(names)


def _key(entry: Any) -> str:
    for attribute in ("key", "idx", "name"):
        if hasattr(entry, attribute):
            return str(getattr(entry, attribute))
    return str(entry)


def _identifier(name: str) -> str:
    return "".join(char if char.isalnum() or char in "_.-" else "_" for char in name)


def _distinct(names: list[str]) -> list[str]:
    taken: set[str] = set()
    for index, name in enumerate(names):
        number = 0
        while names[index] in taken:
            number += 1
            names[index] = f"{name}_{number}"
        taken.add(names[index])
    return names


def result_leaves(result: Any, inputs: Collection[str] = ()) -> list[Leaf]:
    """The values in what ``forward`` returned.

    One alone is ``output``, those of a tuple are ``output_0`` …, and others have keys and field names.

    A name that is one of ``inputs`` too gets the prefix ``output_``.
    """
    register_dataclasses(result)
    found, _ = pytree.tree_flatten_with_path(result)
    paths = [path for path, _ in found]
    names = leaf_names(paths, "output")
    names = _distinct([f"output_{name}" if name[:1].isdigit() or name in inputs else name for name in names])
    return [Leaf(tuple(path), name, value) for (path, value), name in zip(found, names, strict=True)]


def named_results(result: Any, call: Call) -> dict[str, torch.Tensor]:
    """The tensors that ``forward`` returned when it was called so, by name."""
    inputs = {leaf.name for leaf in call.leaves}
    return {leaf.name: leaf.value for leaf in result_leaves(result, inputs) if leaf.is_tensor}


def register_dataclasses(value: Any) -> None:
    """Teach PyTorch to take apart the dataclasses in ``value``, and to name the parts of what libraries have registered."""
    if type(value) in pytree.SUPPORTED_NODES:
        _name_children(type(value))
        for item in pytree.SUPPORTED_NODES[type(value)].flatten_fn(value)[0]:
            register_dataclasses(item)
    elif isinstance(value, tuple | list):
        for item in value:
            register_dataclasses(item)
    elif dataclasses.is_dataclass(value) and not isinstance(value, type):
        torch.export.register_dataclass(type(value))
        for entry in dataclasses.fields(value):
            register_dataclasses(getattr(value, entry.name))


def _name_children(kind: type) -> None:
    """Name the parts of a type that a library has registered without such names, which PyTorch asks for on the way."""
    node = pytree.SUPPORTED_NODES[kind]
    if node.flatten_with_keys_fn is not None:
        return

    def with_keys(value: Any) -> tuple[list[tuple[Any, Any]], Any]:
        children, context = node.flatten_fn(value)
        names = list(context) if isinstance(context, list | tuple) else []
        if len(names) == len(children) and all(isinstance(name, str) for name in names):
            return [(pytree.MappingKey(name), child) for name, child in zip(names, children, strict=True)], context
        return [(pytree.SequenceKey(index), child) for index, child in enumerate(children)], context

    pytree.SUPPORTED_NODES[kind] = node._replace(flatten_with_keys_fn=with_keys)
