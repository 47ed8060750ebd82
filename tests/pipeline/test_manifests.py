"""The manifests of real builds are read as they were written, to the byte."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.models import batchnorm, parse, random, saved
from trtnorm_cli.cli import run
from trtnorm_cli.record import json_lines
from trtnorm_cli.tensorrt.manifest import Manifest

pytestmark = pytest.mark.rtx

PIECES = (
    "g (float[N, 8, 6, 6] x) => (float[N, 8, 6, 6] y) { m = ReduceMean <axes=[1]> (x) d = Sub(x, m) q = Mul(d, d) "
    "v = ReduceMean <axes=[1]> (q) e = Add(v, eps) r = Sqrt(e) n = Div(d, r) y = Mul(n, s) }"
)
CONVOLUTION = (
    "g (float[N, 2, H, 9] x) => (float[N, 4, K, 7] y) { c = Conv(x, w) y = BatchNormalization(c, gamma, beta, mu, var) }"
)
RESHAPED = "g (float[N, 12] x, int64[2] to) => (float[P, Q] y) { z = Relu(x) y = Reshape(z, to) }"
MODELS = {
    "a static one": ("g (float[2, 4] x) => (float[2, 4] y) { y = Relu(x) }", {}, "{}"),
    "several profiles": (CONVOLUTION, {"w": random(4, 2, 3, 3), **batchnorm(4)},
                         "dims: {N: {min: 1, opt: 2, max: 4}}\noptimization_profiles: [{dims: {H: 8}}, {dims: {H: 16}}]"),
    "the fewest kernels": (CONVOLUTION, {"w": random(4, 2, 3, 3), **batchnorm(4)}, "dims: {N: 2, H: 9}\noptimize: kernels"),
    "a normalization in pieces": (PIECES, {"eps": random(1) ** 2, "s": random(8, 1, 1)}, "dims: {N: {min: 1, opt: 2, max: 4}}"),
    "sizes that are elements": (RESHAPED, {},
                "dims: {N: {min: 1, opt: 2, max: 4}}\nvalues: {to: {min: [1, 12], opt: [2, 12], max: [4, 12]}}"),
    "float64": ("g (double[2, 4] x) => (double[2, 4] y) { y = Add(x, x) }", {}, "tolerances: {y: {rtol: 1e-3}}"),
}  # fmt: skip


@pytest.mark.parametrize("name", MODELS)
def test_a_manifest_is_read_as_it_was_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    pytest.importorskip("tensorrt_rtx")
    monkeypatch.chdir(tmp_path)
    graph, weights, profile = MODELS[name]
    saved(parse(graph, weights), Path("m.onnx"))
    Path("cfg.yaml").write_text(profile)
    assert run(["build", "m.onnx", "--profile", "cfg.yaml"]) == 0
    written = Path("m.engine.json")
    manifest = Manifest.load(written)
    assert json_lines(manifest.to_json()) + "\n" == written.read_text()
    assert manifest.comparison is not None
    assert manifest.network.kernels


@pytest.mark.parametrize(
    "operators", ["k = Constant <value = float {1.5}> () y = Mul(x, k)", "s = Shape(x) c = Size(x) y = Softmax(x)"]
)
def test_a_comparison_is_one_in_float64_whatever_nodes_the_file_has(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, operators: str
) -> None:
    pytest.importorskip("tensorrt_rtx")
    monkeypatch.chdir(tmp_path)
    saved(parse(f"g (float[2, 4] x) => (float[2, 4] y) {{ {operators} }}", {}), Path("m.onnx"))
    assert run(["build", "m.onnx"]) == 0
    comparison = Manifest.load(Path("m.engine.json")).comparison
    assert comparison is not None
    assert (comparison.state, comparison.notes, comparison.skipped) == ("passed", (), ())
    assert all(output.exact is not None for candidate in comparison.candidates for output in candidate.outputs)
