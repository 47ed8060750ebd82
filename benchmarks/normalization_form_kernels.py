"""Kernels of one normalization between convolutions, or between matrix products, in each form that it can be written in.

    python -m benchmarks.normalization_form_kernels

Prints a Markdown table. Needs tensorrt-rtx, no GPU.
"""

from __future__ import annotations

import re
import tempfile
from pathlib import Path

import numpy as np
import onnx
import onnx.parser
from onnx import numpy_helper

from trtnorm_cli.child_process import Limits
from trtnorm_cli.records.engine_parts import launched
from trtnorm_cli.tensorrt.launch import launch
from trtnorm_cli.tensorrt.request import BuildRequest

CHANNELS, GROUPS, WIDTH = 64, 32, 768
AFFINE = "a = Mul(z, g) y = Add(a, b)"


def reductions(data: str, axes: str, result: str) -> str:
    return (
        f"m = ReduceMean <axes=[{axes}]> ({data}) c = Sub({data}, m) p = Mul(c, c) v = ReduceMean <axes=[{axes}]> (p)"
        f" e = Add(v, eps) s = Sqrt(e) {result} = Div(c, s)"
    )


def rows(shape: str, core: str) -> str:
    return f"t = Shape(x) r = Reshape(x, {shape}) {core} z = Reshape(z0, t) {AFFINE}"


INSTANCES = {
    "InstanceNorm by reductions": f"{reductions('x', '2, 3', 'z')} {AFFINE}",
    "InstanceNormalization": "y = InstanceNormalization(x, gv, bv)",
    "InstanceNorm along rows": rows("channels", reductions("r", "2", "z0")),
    "GroupNorm by reductions of rank 5": rows("five", reductions("r", "2, 3, 4", "z0")),
    "GroupNorm around InstanceNormalization": rows("groups", "z0 = InstanceNormalization(r, ones, zeros)"),
    "GroupNormalization (opset 21)": f"y = GroupNormalization <num_groups={GROUPS}> (x, gv, bv)",
    "GroupNorm along rows": rows("groups", reductions("r", "2", "z0")),
}
FIRST = {
    "LayerNorm channels first by reductions": f"{reductions('x', '1', 'z')} {AFFINE}",
    "LayerNormalization between Transposes": "t = Transpose <perm=[0, 2, 3, 1]> (x) u = LayerNormalization(t, gv, bv)"
    " y = Transpose <perm=[0, 3, 1, 2]> (u)",
    "reductions between Transposes": f"t = Transpose <perm=[0, 2, 3, 1]> (x) {reductions('t', '3', 'z')}"
    " a = Mul(z, gv) u = Add(a, bv) y = Transpose <perm=[0, 3, 1, 2]> (u)",
}
LAST = {
    "LayerNorm by reductions": f"{reductions('x', '2', 'z')} a = Mul(z, gv) y = Add(a, bv)",
    "LayerNormalization": "y = LayerNormalization(x, gv, bv)",
    "RMSNorm by reductions": "p = Mul(x, x) v = ReduceMean <axes=[2]> (p) e = Add(v, eps) s = Sqrt(e) z = Div(x, s)"
    " y = Mul(z, gv)",
    "RMSNormalization (opset 23)": "y = RMSNormalization(x, gv)",
    "F.normalize": "l = ReduceL2 <axes=[2]> (x) c = Clip(l, eps) t = Shape(x) d = Expand(c, t) y = Div(x, d)",
    "F.normalize without Expand": "l = ReduceL2 <axes=[2]> (x) c = Clip(l, eps) y = Div(x, c)",
}
CONVOLVED = "x = Conv <pads=[1, 1, 1, 1]> (i, w) {norm} k = Relu(y) o = Conv <pads=[1, 1, 1, 1]> (k, w)"
READ = "x = Identity(i) {norm} o = Conv <pads=[1, 1, 1, 1]> (y, w)"
BLOCK = "x = Conv <pads=[1, 1, 1, 1]> (i, w) {norm} q = Transpose <perm=[0, 2, 3, 1]> (y) o = MatMul(q, mm)"
MULTIPLIED = "x = MatMul(i, wide) {norm} o = MatMul(y, wide)"


def model(body: str, shape: tuple[int, ...], dynamic: bool) -> onnx.ModelProto:
    """A network of ``body`` from i to o; with ``dynamic``, batch and plane are known at run time only."""
    rng, size = np.random.default_rng(0), shape[-1]
    last = len(shape) == 3

    def weights(*sizes: int) -> np.ndarray:
        return (rng.standard_normal(sizes) / 20).astype(np.float32)

    vector = WIDTH if last else CHANNELS
    known = {
        "w": weights(CHANNELS, CHANNELS, 3, 3), "mm": weights(CHANNELS, CHANNELS), "wide": weights(WIDTH, WIDTH),
        "g": weights(CHANNELS, 1, 1), "b": weights(CHANNELS, 1, 1), "gv": weights(vector), "bv": weights(vector),
        "eps": np.array(1e-5, np.float32), "ones": np.ones(GROUPS, np.float32), "zeros": np.zeros(GROUPS, np.float32),
        "channels": np.array([0, CHANNELS, -1]), "groups": np.array([0, GROUPS, -1]),
        "five": np.array([-1, GROUPS, CHANNELS // GROUPS, size, size]),
    }  # fmt: skip
    used = set(re.findall(r"\w+", body))
    opset = 23 if "RMSNormalization" in body else 21 if "GroupNormalization" in body else 17
    sizes = ("N", *shape[1:2], "H", "W") if dynamic and not last else ("N", "S", *shape[2:]) if dynamic else shape
    text = f"g (float[{', '.join(map(str, sizes))}] i) => (float[] o) {{ {body} }}"
    made = onnx.parser.parse_model(f'<ir_version: 8, opset_import: ["" : {opset}]> {text}')
    made.graph.initializer.extend(numpy_helper.from_array(value, name) for name, value in known.items() if name in used)
    return made


def kernels(body: str, shape: tuple[int, ...], dynamic: bool) -> str:
    """How many layers of the compiled engine launch something; a dash where it does not build."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "m.onnx").write_bytes(model(body, shape, dynamic).SerializeToString())
        profiles = ({"i": (shape, shape, (shape[0] * 2, *shape[1:]))},) if dynamic else ()
        request = BuildRequest("m.onnx", str(folder / "m.engine"), "tensorrt-rtx", profiles, {})
        result = launch(request, folder, lambda event: None, Limits(120))
    return str(len(launched(result.kernels))) if result.ok else "–"


def main() -> None:
    sizes = (28, 56, 112, 256)
    print(f"| between convolutions, plane of | {' | '.join(f'{s}×{s}' for s in sizes)} | 28×28, dynamic |")
    print(f"|---|{'---|' * (len(sizes) + 1)}")
    for name, form in INSTANCES.items():
        body = CONVOLVED.format(norm=form)
        cells = [kernels(body, (2, CHANNELS, size, size), False) for size in sizes]
        dynamic = "–" if "five" in form else kernels(body, (2, CHANNELS, 28, 28), True)
        print(f"| {name} | {' | '.join([*cells, dynamic])} |", flush=True)
    print(
        "\n| channels first | input, norm, Conv | Conv, norm, Relu, Conv | Conv, norm, Transpose, MatMul |\n|---|---|---|---|"
    )
    for name, form in FIRST.items():
        cells = [kernels(around.format(norm=form), (2, CHANNELS, 28, 28), False) for around in (READ, CONVOLVED, BLOCK)]
        print(f"| {name} | {' | '.join(cells)} |", flush=True)
    print("\n| last axis, between matrix products | static | dynamic |\n|---|---|---|")
    for name, form in LAST.items():
        cells = [kernels(MULTIPLIED.format(norm=form), (2, 197, WIDTH), dynamic) for dynamic in (False, True)]
        print(f"| {name} | {' | '.join(cells)} |", flush=True)


if __name__ == "__main__":
    main()
