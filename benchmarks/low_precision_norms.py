"""Kernels of normalizations in half, in each form that they can be written in: low throughout, and float32 as a whole.

    python -m benchmarks.low_precision_norms

Prints a Markdown table. Needs tensorrt-rtx, no GPU.
"""

from __future__ import annotations

import tempfile
from pathlib import Path

import onnx

from benchmarks.normalization_form_kernels import (
    BLOCK,
    CHANNELS,
    CONVOLVED,
    FIRST,
    INSTANCES,
    LAST,
    MULTIPLIED,
    WIDTH,
    model,
)
from trtnorm_cli.child_process import Limits
from trtnorm_cli.onnx_model.stored import brought_in
from trtnorm_cli.precision.convert import convert
from trtnorm_cli.precision.low_types import FP16, LowType
from trtnorm_cli.precision.plan import TypePlan, kept, key_of
from trtnorm_cli.precision.static import static_kept
from trtnorm_cli.precision.units import units_of
from trtnorm_cli.records.engine_parts import launched
from trtnorm_cli.tensorrt.launch import launch
from trtnorm_cli.tensorrt.request import BuildRequest

PLACES = (
    ("between convolutions", CONVOLVED, (2, CHANNELS, 56, 56), INSTANCES),
    ("in a ConvNeXt block", BLOCK, (2, CHANNELS, 28, 28), FIRST),
    ("between products", MULTIPLIED, (2, 197, WIDTH), LAST),
)
FORMS = [
    (f"{name}, {where}", around.format(norm=form), shape)
    for where, around, shape, forms in PLACES
    for name, form in forms.items()
]


def in_types(proto: onnx.ModelProto, low: LowType, how: str) -> onnx.ModelProto:
    """The model in ``low``: ``all`` of it, without ``norms``, or as trtnorm makes it (``chosen``)."""
    proto = onnx.shape_inference.infer_shapes(proto)
    parts, types = units_of(proto, None)
    norms = {key for unit in parts if unit.is_norm for key in unit.keys}
    plans = {
        "all": {},
        "norms": {key_of(node): kept(node, "norm", "measured") for node in proto.graph.node if key_of(node) in norms},
        "chosen": static_kept(proto, None, types, parts, low),
    }
    done = convert(proto, None, TypePlan(low, plans[how]), parts, types)
    return brought_in(done.model)


def kernels(proto: onnx.ModelProto) -> str:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "m.onnx").write_bytes(proto.SerializeToString())
        result = launch(BuildRequest("m.onnx", f"{name}/engine", "tensorrt-rtx"), folder, lambda event: None, Limits(120))
    return str(len(launched(result.kernels))) if result.ok else "–"


def main() -> None:
    print("| normalization | float32 | half throughout | float32 norm in half | as trtnorm keeps it |\n|---|---|---|---|---|")
    for name, body, shape in FORMS:
        proto = model(body, shape, False)
        cells = [kernels(proto), *(kernels(in_types(proto, FP16, how)) for how in ("all", "norms", "chosen"))]
        print(f"| {name} | {' | '.join(cells)} |", flush=True)


if __name__ == "__main__":
    main()
