"""The normalizations of a saved exported program, as the modules that its calls stand for.

A program is a graph of operators. It shows what it was exported with, also where forward() calls a function, and none of it can
be put right any more. Each call becomes a module of ``torch.nn`` with the same tensors, to be looked at like one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import torch
from torch import Tensor, fx, nn

from trtnorm_cli.export.child.norms.batchnorm import BatchNorm

# The arguments of an operator by name, as its schema has them.
_Arguments = Mapping[str, Any]
_STATISTICS = ("running_mean", "running_var", "num_batches_tracked")


class ProgramNorms(nn.Module):
    """A module for each normalization at its path, and the program's other tensors where they were.

    ``types`` holds for each path a module's class, or the operator and the module whose forward() calls it.
    """

    def __init__(self, program: torch.export.ExportedProgram) -> None:
        super().__init__()
        self.types: dict[str, str] = {}
        tensors = _Tensors(program)
        for node in program.graph.nodes:
            make = _MAKERS.get(str(node.target)) if node.op == "call_function" else None
            if make is not None:
                path = self._free_path(node)
                self._modules[path] = _with_batches(make(_arguments(node, tensors)), tensors, _module_of(node)[0])
                self.types[path] = _type_of(node)
        for name, tensor in tensors.unused():
            self._keep(*_split(name), tensor)
        self.training = False

    def _free_path(self, node: fx.Node) -> str:
        """The path of the module that calls it, with the operator where that is no normalization, and numbered if taken."""
        path, kind = _module_of(node)
        if "norm" not in kind.rpartition(".")[2].lower():
            path = f"{path}.{_operator(node)}".lstrip(".")
        number = 1
        while (free := path if number == 1 else f"{path}#{number}") in self._modules:
            number += 1
        return free

    def _keep(self, path: str, name: str, tensor: Tensor) -> None:
        owner = self if not path else self._modules.setdefault(path, nn.Module().eval())
        assert owner is not None
        kind = "_parameters" if isinstance(tensor, nn.Parameter) else "_buffers"
        getattr(owner, kind)[name] = tensor


class _Tensors:
    """The program's parameters, buffers and constants by the name of their placeholder."""

    def __init__(self, program: torch.export.ExportedProgram) -> None:
        signature = program.graph_signature
        self.names = {
            **signature.inputs_to_parameters,
            **signature.inputs_to_buffers,
            **signature.inputs_to_lifted_tensor_constants,
        }
        self.values: dict[str, Any] = {**program.constants, **program.state_dict}
        self.used: set[str] = set()

    def of(self, argument: Any) -> Any:
        """The tensor that a node of the graph stands for. Other arguments stay as they are."""
        if not isinstance(argument, fx.Node):
            return argument
        name = self.names.get(argument.name)
        return None if name is None else self.take(name)

    def take(self, name: str) -> Any:
        self.used.add(name)
        return self.values.get(name)

    def unused(self) -> Iterator[tuple[str, Tensor]]:
        return ((n, value) for n, value in self.values.items() if n not in self.used and isinstance(value, Tensor))


def _arguments(node: fx.Node, tensors: _Tensors) -> _Arguments:
    """The call's arguments by name, defaults filled in. The data that it normalizes are left out."""
    schema = node.target._schema
    given = dict(zip((argument.name for argument in schema.arguments), node.args, strict=False)) | dict(node.kwargs)
    return {
        argument.name: tensors.of(given[argument.name]) if argument.name in given else argument.default_value
        for argument in schema.arguments[1:]
    }


def _batch(a: _Arguments) -> nn.Module:
    return _with_statistics(BatchNorm(_length(a), a["eps"], a["momentum"], False, False), a, bool(a["training"]))


def _instance(a: _Arguments) -> nn.Module:
    return _with_statistics(nn.InstanceNorm2d(_length(a), a["eps"], a["momentum"]), a, bool(a["use_input_stats"]))


def _group(a: _Arguments) -> nn.Module:
    channels = a["weight"].numel() if a["weight"] is not None else a["num_groups"]
    return _with_affine(nn.GroupNorm(a["num_groups"], channels, a["eps"], affine=False), a)


def _layer(a: _Arguments) -> nn.Module:
    return _with_affine(nn.LayerNorm(a["normalized_shape"], a["eps"], elementwise_affine=False), a)


def _rms(a: _Arguments) -> nn.Module:
    return _with_affine(nn.RMSNorm(a["normalized_shape"], a["eps"], elementwise_affine=False), a)


_MAKERS: dict[str, Callable[[_Arguments], nn.Module]] = {
    "aten.batch_norm.default": _batch,
    "aten.instance_norm.default": _instance,
    "aten.group_norm.default": _group,
    "aten.layer_norm.default": _layer,
    "aten.rms_norm.default": _rms,
}


def _length(a: _Arguments) -> int:
    return next((a[name].numel() for name in ("weight", "running_mean") if a[name] is not None), 0)


def _with_statistics(norm: nn.Module, a: _Arguments, of_the_data: bool) -> nn.Module:
    """``norm`` with its running statistics. In training mode they are there and not used."""
    norm._buffers.update({name: a[name] for name in _STATISTICS[:2]})
    norm.track_running_stats = a["running_mean"] is not None
    return _with_affine(norm, a).train(of_the_data and a["running_mean"] is not None)


def _with_affine(norm: nn.Module, a: _Arguments) -> nn.Module:
    norm._parameters.update({name: a[name] for name in ("weight", "bias") if name in a})
    return norm.eval()


def _with_batches(norm: nn.Module, tensors: _Tensors, path: str) -> nn.Module:
    """The count of batches is no argument of the call, but stands beside the statistics."""
    name = f"{path}.num_batches_tracked".lstrip(".")
    if norm._buffers.get("running_mean") is not None and name in tensors.values:
        norm._buffers["num_batches_tracked"] = tensors.take(name)
    return norm


def _module_of(node: fx.Node) -> tuple[str, str]:
    """Path and class of the innermost module whose forward() made the call."""
    stack = list((node.meta.get("nn_module_stack") or {}).values())
    path, kind = stack[-1] if stack else ("", "")
    return str(path), kind if isinstance(kind, str) else f"{kind.__module__}.{kind.__qualname__}"


def _operator(node: fx.Node) -> str:
    return str(node.target).split(".")[1]


def _type_of(node: fx.Node) -> str:
    kind = _module_of(node)[1]
    name = kind.rpartition(".")[2]
    if "norm" not in name.lower():
        return f"{_operator(node)} in {name}" if name else _operator(node)
    return f"torch.nn.{name}" if kind.startswith("torch.nn.modules.") else kind


def _split(name: str) -> tuple[str, str]:
    path, _, last = name.rpartition(".")
    return path, last
