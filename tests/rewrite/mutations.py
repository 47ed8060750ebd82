"""Models of all tests of rules, and ways to spoil a model that a foreign file may have been spoilt in, too."""

from __future__ import annotations

import dataclasses
import importlib
import inspect
import pkgutil
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import onnx
from onnx import numpy_helper

from tests.rewrite import rules
from trtnorm_cli.onnx_model.walk import all_graphs, all_nodes

FLOATS = (onnx.TensorProto.FLOAT, onnx.TensorProto.FLOAT16, onnx.TensorProto.BFLOAT16, onnx.TensorProto.DOUBLE)
Spoil = Callable[[onnx.ModelProto], "bool | None"]


def models_of_rules() -> dict[str, onnx.ModelProto]:
    """Every model that the modules of tests hold as a value, a parameter of a test, or what a helper makes by default."""
    found: dict[bytes, tuple[str, onnx.ModelProto]] = {}
    for info in pkgutil.iter_modules(rules.__path__):
        if info.name.startswith("test_"):
            for model in _models_in(list(_values(importlib.import_module(f"{rules.__name__}.{info.name}")))):
                found.setdefault(model.SerializeToString(deterministic=True), (info.name.removeprefix("test_"), model))
    counts: dict[str, int] = {}
    models = {}
    for name, model in found.values():
        counts[name] = counts.get(name, 0) + 1
        models[f"{name}-{counts[name]}"] = model
    return models


def _values(module: Any) -> Iterator[Any]:
    for value in vars(module).values():
        if not inspect.isfunction(value):
            yield value
        elif value.__name__.startswith("test_"):
            marks = getattr(value, "pytestmark", ())
            yield from (list(mark.args[1]) for mark in marks if mark.name == "parametrize" and len(mark.args) > 1)
        elif value.__module__.startswith("tests.") and _needs_nothing(value):
            yield value()


def _needs_nothing(function: Callable[..., Any]) -> bool:
    signature = inspect.signature(function)
    variable = (inspect.Parameter.VAR_KEYWORD, inspect.Parameter.VAR_POSITIONAL)
    makes_model = "ModelProto" in str(signature.return_annotation)
    return makes_model and all(p.default is not p.empty or p.kind in variable for p in signature.parameters.values())


def _models_in(value: Any, depth: int = 4) -> Iterator[onnx.ModelProto]:
    if isinstance(value, onnx.ModelProto):
        yield value
    elif depth and isinstance(value, dict):
        yield from _models_in(list(value.values()), depth - 1)
    elif depth and isinstance(value, list | tuple):
        for inner in value:
            yield from _models_in(inner, depth - 1)
    elif depth and dataclasses.is_dataclass(value) and not isinstance(value, type):
        yield from _models_in([getattr(value, f.name) for f in dataclasses.fields(value)], depth - 1)


def _dims(model: onnx.ModelProto) -> list[Any]:
    """The shapes of the inputs that hold real numbers."""
    kinds = [value.type.tensor_type for value in model.graph.input]
    return [kind.shape.dim for kind in kinds if kind.elem_type in FLOATS]


def of_rank(rank: int) -> Spoil:
    def spoil(model: onnx.ModelProto) -> bool:
        """The data have ``rank`` axes, the last of those that they had."""
        for dims in _dims(model):
            del dims[: max(len(dims) - rank, 0)]
        _forget_shapes(model)
        return bool(_dims(model))

    return spoil


def without_axis(axis: int) -> Spoil:
    def spoil(model: onnx.ModelProto) -> bool:
        """The data lack one axis that they had."""
        for dims in _dims(model):
            del dims[axis : axis + 1]
        _forget_shapes(model)
        return bool(_dims(model))

    return spoil


def empty_along(axis: int) -> Spoil:
    def spoil(model: onnx.ModelProto) -> bool:
        """The data have no elements."""
        reached = [dims[axis] for dims in _dims(model) if len(dims) > axis]
        for dim in reached:
            dim.Clear()
            dim.dim_value = 0
        _forget_shapes(model)
        return bool(reached)

    return spoil


def _forget_shapes(model: onnx.ModelProto) -> None:
    """Drop what the file says of tensors behind the inputs."""
    for graph in all_graphs(model.graph):
        del graph.value_info[:]
    for value in model.graph.output:
        value.type.tensor_type.ClearField("shape")


def forgotten_shapes(model: onnx.ModelProto) -> None:
    _forget_shapes(model)


def nameless_axes(model: onnx.ModelProto) -> None:
    for dims in _dims(model):
        for dim in dims:
            dim.Clear()
    _forget_shapes(model)


def rankless_inputs(model: onnx.ModelProto) -> None:
    for value in model.graph.input:
        value.type.tensor_type.ClearField("shape")
    _forget_shapes(model)


def nameless_nodes(model: onnx.ModelProto) -> None:
    for node in all_nodes(model):
        node.name = ""


def one_name_for_all_nodes(model: onnx.ModelProto) -> None:
    for node in all_nodes(model):
        node.name = "node"


def odd_names(model: onnx.ModelProto) -> None:
    for node in all_nodes(model):
        node.name = f"/{node.op_type}\n[bold]%s{{0}}"


def without_attributes(model: onnx.ModelProto) -> None:
    for node in all_nodes(model):
        kept = [attribute for attribute in node.attribute if attribute.type == onnx.AttributeProto.GRAPH]
        del node.attribute[:]
        node.attribute.extend(kept)


def without_last_inputs(model: onnx.ModelProto) -> None:
    for node in all_nodes(model):
        del node.input[max(len(node.input) - 1, 1) :]


def with_last_inputs_left_out(model: onnx.ModelProto) -> None:
    for node in all_nodes(model):
        if len(node.input) > 1:
            node.input[len(node.input) - 1] = ""


def _reshaped(shape: Callable[[np.ndarray], tuple[int, ...]]) -> Spoil:
    def spoil(model: onnx.ModelProto) -> bool:
        """Constants of real numbers have another shape."""
        chosen = [tensor for tensor in model.graph.initializer if tensor.data_type in FLOATS]
        for tensor in chosen:
            value = numpy_helper.to_array(tensor)
            wanted = shape(value)
            size = int(np.prod(wanted))
            tensor.CopyFrom(numpy_helper.from_array(np.resize(value, size).reshape(wanted), tensor.name))
        _forget_shapes(model)
        return bool(chosen)

    return spoil


def of_type(data_type: int) -> Spoil:
    def spoil(model: onnx.ModelProto) -> None:
        """The data are of another type than the constants."""
        for value in model.graph.input:
            if value.type.tensor_type.elem_type in FLOATS:
                value.type.tensor_type.elem_type = data_type
        for value in model.graph.output:
            if value.type.tensor_type.elem_type in FLOATS:
                value.type.tensor_type.elem_type = data_type

    return spoil


SPOILT: dict[str, Spoil] = {
    **{f"data of rank {rank}": of_rank(rank) for rank in range(3)},
    **{f"data without axis {axis}": without_axis(axis) for axis in range(2)},
    **{f"no elements along axis {axis}": empty_along(axis) for axis in range(4)},
    "shapes that are not stated": forgotten_shapes,
    "axes without names": nameless_axes,
    "inputs of unknown rank": rankless_inputs,
    "nodes without names": nameless_nodes,
    "one name for all nodes": one_name_for_all_nodes,
    "odd names": odd_names,
    "no attributes": without_attributes,
    "last inputs missing": without_last_inputs,
    "last inputs left out": with_last_inputs_left_out,
    "empty constants": _reshaped(lambda value: (0,)),
    "scalar constants": _reshaped(lambda value: ()),
    "constants of one axis more": _reshaped(lambda value: (1, *value.shape)),
    "constants that are twice as long": _reshaped(lambda value: (2 * value.shape[0], *value.shape[1:]) if value.shape else ()),
    "data of half precision": of_type(onnx.TensorProto.FLOAT16),
    "data of double precision": of_type(onnx.TensorProto.DOUBLE),
    "data of integers": of_type(onnx.TensorProto.INT32),
}


def spoilt(model: onnx.ModelProto, spoil: Spoil) -> onnx.ModelProto | None:
    """A spoilt copy of ``model``; None where there is nothing to spoil."""
    copy = onnx.ModelProto()
    copy.CopyFrom(model)
    done = spoil(copy)
    return None if done is False or copy == model else copy
