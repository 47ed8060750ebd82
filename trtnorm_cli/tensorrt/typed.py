"""Hold the types of the built engine against those of the model. Networks are strongly typed, so they must agree.

Older tools built a float32 engine where float16 was asked for, and said nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

import onnx

from trtnorm_cli.errors import TensorRTRefusal
from trtnorm_cli.onnx_model.walk import all_nodes, all_tensors
from trtnorm_cli.tensorrt.request import BuildResult

# ONNX element type -> the name of trt.DataType.
_TENSORRT_NAME = {
    "FLOAT": "FLOAT",
    "FLOAT16": "HALF",
    "BFLOAT16": "BF16",
    "INT8": "INT8",
    "UINT8": "UINT8",
    "INT32": "INT32",
    "INT64": "INT64",
    "BOOL": "BOOL",
    "FLOAT8E4M3FN": "FP8",
    "INT4": "INT4",
    "FLOAT4E2M1": "FP4",
}
_WITH_KERNEL = ("Conv", "ConvTranspose")


def require_types(model: onnx.ModelProto, result: BuildResult) -> None:
    """Raise ``TensorRTRefusal`` when an input, output or weight has another type than in ``model``, which was built."""
    faults = [*_interface_faults(model, result), *_weight_faults(model, result)]
    if faults:
        raise TensorRTRefusal(
            "the engine does not have the types of the model, so it is not kept",
            where="\n".join(faults),
            hint="this TensorRT does not follow the types of the file: try another release (`trtnorm doctor`) and report this "
            "together with the model",
        )


def _interface_faults(model: onnx.ModelProto, result: BuildResult) -> Iterator[str]:
    """Inputs and outputs of the parsed network, and of the compiled engine as far as the builder's log tells them."""
    compiled = {side: [entry for entry in result.bindings if entry.mode == side] for side in ("input", "output")}
    for side, values, parsed in (
        ("input", model.graph.input, result.inputs),
        ("output", model.graph.output, result.outputs),
    ):
        for what, entries in (("the network", parsed), ("the engine", compiled[side])):
            yield from _different(side, values, {entry.name: entry.dtype for entry in entries}, what)


def _different(side: str, values: Sequence[onnx.ValueInfoProto], found: Mapping[str, str], what: str) -> Iterator[str]:
    for value in values:
        wanted = _TENSORRT_NAME.get(_type_name(value.type.tensor_type.elem_type))
        if wanted is not None and value.name in found and found[value.name] != wanted:
            yield f"{side} {value.name}: {wanted} in the model, {found[value.name]} in {what}"


def _weight_faults(model: onnx.ModelProto, result: BuildResult) -> Iterator[str]:
    """Faults of weights, by the names that TensorRT's parser gives its layers.

    These are the initializer's, or the node's it feeds.
    """
    types = _unambiguous((tensor.name, _TENSORRT_NAME.get(_type_name(tensor.data_type))) for tensor in all_tensors(model))
    kernels = _unambiguous(
        (node.name, types[node.input[1]])
        for node in all_nodes(model)
        if node.op_type in _WITH_KERNEL and len(node.input) > 1 and node.input[1] in types
    )
    for layer in result.layers:
        if layer.type == "CONSTANT" and layer.outputs:
            wanted, what = types.get(layer.name), "weight"
            found: str | None = layer.outputs[0].dtype
        else:
            wanted, found, what = kernels.get(layer.name), layer.weights, "weights of"
        if wanted is not None and found is not None and wanted != found:
            yield f"{what} {layer.name}: {wanted} in the model, {found} in the network"


def _unambiguous(pairs: Iterable[tuple[str, str | None]]) -> dict[str, str | None]:
    """Type by name, without names that stand for several types, since branches and bodies may use one again."""
    found: dict[str, set[str | None]] = {}
    for name, kind in pairs:
        found.setdefault(name, set()).add(kind)
    return {name: next(iter(kinds)) for name, kinds in found.items() if name and len(kinds) == 1}


def _type_name(number: int) -> str:
    return onnx.TensorProto.DataType.Name(number) if number in onnx.TensorProto.DataType.values() else ""
