"""Other tools that convert a float32 model: ``python precision_peers.py TOOL fp16|bf16 MODEL.onnx OUT.onnx [DATA.npz]``.

Runs in an environment with onnxconverter-common and nvidia-modelopt[onnx], and needs nothing of trtnorm.
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper


def blind(path: Path, kind: str) -> onnx.ModelProto:
    """Every float32 of the top graph in the type, without a thought: what casting a module and exporting it does."""
    import ml_dtypes

    wanted = {"fp16": TensorProto.FLOAT16, "bf16": TensorProto.BFLOAT16}[kind]
    dtype = {"fp16": np.float16, "bf16": ml_dtypes.bfloat16}[kind]
    model = onnx.load(path)
    model.graph.ClearField("value_info")
    with np.errstate(over="ignore"):
        for tensor in model.graph.initializer:
            if tensor.data_type == TensorProto.FLOAT and not _is_scale_of_resize(model, tensor.name):
                tensor.CopyFrom(_low(numpy_helper.to_array(tensor).astype(dtype), tensor.name, wanted))
        for node in model.graph.node:
            for attribute in node.attribute:
                if attribute.name == "to" and attribute.i == TensorProto.FLOAT:
                    attribute.i = wanted
                if attribute.HasField("t") and attribute.t.data_type == TensorProto.FLOAT:
                    attribute.t.CopyFrom(_low(numpy_helper.to_array(attribute.t).astype(dtype), attribute.t.name, wanted))
    for value in (*model.graph.input, *model.graph.output):
        if value.type.tensor_type.elem_type == TensorProto.FLOAT:
            value.type.tensor_type.elem_type = wanted
    return model


def _low(array: np.ndarray, name: str, wanted: int) -> TensorProto:
    return helper.make_tensor(name, wanted, array.shape, array.tobytes(), raw=True)


def _is_scale_of_resize(model: onnx.ModelProto, name: str) -> bool:
    return any(node.op_type in ("Resize", "Upsample") and name in node.input[1:] for node in model.graph.node)


def converter_common(path: Path, kind: str) -> onnx.ModelProto:
    from onnxconverter_common import float16

    if kind != "fp16":
        raise SystemExit("onnxconverter-common has no bfloat16")
    return float16.convert_float_to_float16(onnx.load(path), keep_io_types=True)


def autocast(path: Path, kind: str, data: Path | None) -> onnx.ModelProto:
    from modelopt.onnx.autocast import convert_to_mixed_precision

    calibration = None if data is None else str(data)
    return convert_to_mixed_precision(str(path), low_precision_type=kind, keep_io_types=True, calibration_data=calibration)


def main(tool: str, kind: str, source: str, target: str, data: str | None = None) -> None:
    path = Path(source)
    if tool == "blind":
        model = blind(path, kind)
    elif tool == "onnxconverter-common":
        model = converter_common(path, kind)
    else:
        model = autocast(path, kind, None if data is None else Path(data))
    onnx.save(model, target)


if __name__ == "__main__":
    main(*sys.argv[1:])
