"""Changes after which an engine is likely to tell that none of them needs to be left out, known before it is built."""

from __future__ import annotations

from typing import Any

import onnx
import pytest

from tests.models import batchnorm, parse, random
from trtnorm_cli.tensorrt.may_tell import is_doubtful, may_tell

SQUEEZED = "q = GlobalAveragePool(r) y = Mul(r, q)"


@pytest.mark.parametrize(
    ("rules", "nodes", "likely"),
    [
        ("fold-batchnorm-conv batchnorm-to-scale-shift", "y = Relu(n)", True),
        ("fold-batchnorm-conv merge-parallel-convolutions", "y = Relu(n)", True),
        ("fold-batchnorm-conv fold-batchnorm-gemm", "y = Relu(n)", False),
        ("fold-batchnorm-conv fold-scale-shift-upstream", "y = Relu(n)", True),
        ("fold-scale-shift-upstream", "r = MatMul(n, n) s = Mul(r, n) z = Transpose(s) y = Softmax(z)", True),
        ("fold-scale-shift-upstream merge-scale-shift", "y = Relu(n)", True),
        ("", "y = PRelu(n, gamma4)", True),
        ("drop-expand batchnorm-to-scale-shift", "y = PRelu(n, gamma4)", True),
        ("fold-batchnorm-conv", "y = PRelu(n, gamma4)", False),
        ("fold-batchnorm-conv", f"r = Relu(n) {SQUEEZED}", False),
        ("fold-batchnorm-conv", "r = GlobalAveragePool(n) y = Mul(r, n)", False),
        ("fold-batchnorm-conv", f"s = Sigmoid(n) r = Mul(n, s) {SQUEEZED}", True),
        ("fold-batchnorm-conv", "r = Relu(n) y = GlobalAveragePool(r)", True),
    ],
    ids=[
        "folds",
        "merged",
        "others",
        "products without attention",
        "products of an attention",
        "arithmetic alone",
        "scales in passing alone",
        "changes that leave the kernels",
        "an activation apart",
        "a squeeze",
        "one of what is not activated",
        "one that is fused",
        "the last pooling",
    ],
)
def test_it_is_known_beforehand_where_an_engine_is_likely_to_tell(rules: str, nodes: str, likely: bool) -> None:
    text = f"c = Conv(x, w) n = BatchNormalization(c, gamma, beta, mu, var) {nodes}"
    weights = {"w": random(4, 4, 1, 1), "gamma4": random(4, 1, 1), **batchnorm(4)}
    assert may_tell(rules.split(), parse(f"g (float[N,4,8,8] x) => (float[N,4,A,B] y) {{ {text} }}", weights)) is likely


CONVOLVED_NORM = "c = Conv(x, w) y = InstanceNormalization (c, g, b)"


@pytest.mark.parametrize(
    ("rules", "shape", "nodes", "likely"),
    [
        ("normalization-in-rows normalization-to-scale-shift", (2, 4, 8, 8), CONVOLVED_NORM, True),
        ("fold-batchnorm-conv normalization-in-rows", (2, 4, 8, 8), CONVOLVED_NORM, True),
        ("normalization-in-rows", (1, 4, 8, 8), CONVOLVED_NORM, False),
        ("normalization-in-rows", ("N", 4, 8, 8), CONVOLVED_NORM, False),
        ("normalization-in-rows", None, CONVOLVED_NORM, False),
        ("normalization-in-rows", (2, 4, 8, 8), "c = Relu(x) y = InstanceNormalization (c, g, b)", False),
        ("normalization-in-rows", (2, 4, 8, 8), "c = Conv(x, w) y = GroupNormalization <num_groups=2> (c, g, b)", False),
        ("normalization-in-rows", (2, 4, 8, 8), f"{CONVOLVED_NORM} z = GroupNormalization <num_groups=2> (c, g, b)", False),
    ],
    ids=[
        *("several samples", "and folds", "one sample", "an open number", "an unknown shape", "of no convolution", "groups"),
        "groups, too",
    ],
)
def test_instance_norms_of_several_samples_are_likely_to_be_told(rules: str, shape: Any, nodes: str, likely: bool) -> None:
    one = parse(f"g (float[N,4,8,8] x) => (float[N,4,8,8] y) {{ {nodes} }}", opset=21)
    if shape is not None:
        one.graph.value_info.append(onnx.helper.make_tensor_value_info("c", onnx.TensorProto.FLOAT, shape))
    assert may_tell(rules.split(), one) is likely


GROUPS = "GroupNormalization <num_groups=16>"


@pytest.mark.parametrize(
    ("nodes", "likely"),
    [
        (f"c = Conv(x, w) n = {GROUPS} (c, v, v) y = Conv(n, w)", True),
        (f"c = Conv(x, w) n = {GROUPS} (c, v, v) y = Add(n, x)", True),
        (f"c = Conv(x, w) n = {GROUPS} (c, v, v) y = HardSwish(n)", False),
        (f"c = Conv(x, w) n = {GROUPS} (c, v, v) d = Conv(n, w) y = InstanceNormalization(d, v, v)", False),
        ("c = Conv(x, w) n = GroupNormalization <num_groups=64> (c, v, v) y = Conv(n, w)", False),
        ("c = Conv(x, w) y = Relu(c)", False),
    ],
    ids=["for a convolution", "to be added", "activated otherwise", "and instances", "one of each", "none"],
)
def test_usual_groups_are_likely_to_be_told(nodes: str, likely: bool) -> None:
    one = parse(
        f"g (float[2,64,8,8] x) => (float[2,64,8,8] y) {{ {nodes} }}", {"w": random(64, 64, 1, 1), "v": random(64)}, opset=21
    )
    one.graph.value_info.append(onnx.helper.make_tensor_value_info("c", onnx.TensorProto.FLOAT, (2, 64, 8, 8)))
    assert may_tell(["recompose-group-norm", "fold-batchnorm-conv"], one) is likely


@pytest.mark.parametrize(("others", "likely"), [(1, True), (2, False)])
def test_groups_are_likely_to_be_told_where_few_of_them_are_unusual(others: int, likely: bool) -> None:
    read = ["Conv(n{0}, w)"] * 6 + ["HardSwish(n{0})"] * others
    nodes = [f"c{at} = Conv(x, w) n{at} = {GROUPS} (c{at}, v, v) y{at} = {one.format(at)}" for at, one in enumerate(read)]
    text = f"g (float[2,64,8,8] x) => (float[2,64,8,8] y0) {{ {' '.join(nodes)} }}"
    one = parse(text, {"w": random(64, 64, 1, 1), "v": random(64)}, opset=21)
    names = [f"c{at}" for at in range(len(read))]
    one.graph.value_info.extend(
        onnx.helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, (2, 64, 8, 8)) for name in names
    )
    assert may_tell(["recompose-group-norm"], one) is likely


@pytest.mark.parametrize(
    ("rules", "nodes", "doubtful"),
    [
        ("fold-batchnorm-conv batchnorm-to-scale-shift", "y = Relu(c)", False),
        ("fold-batchnorm-downstream fold-batchnorm-conv", "y = Relu(c)", True),
        ("batchnorm-to-scale-shift fold-batchnorm-upstream", "y = Relu(c)", True),
        ("fold-scale-shift-upstream", "y = Softmax(c)", False),
        ("fold-scale-shift-upstream", "s, y = Split <axis=1, num_outputs=2> (c)", True),
        ("fold-scale-shift-upstream", "y = Slice(c, i, j)", True),
        ("fold-scale-shift-upstream fold-batchnorm-conv", "y = Softmax(c)", True),
        ("fold-scale-shift-upstream drop-expand", "y = Softmax(c)", False),
        ("fold-batchnorm-conv", "s, y = Split <axis=1, num_outputs=2> (c)", False),
        ("fold-batchnorm-conv merge-parallel-convolutions", "y = Relu(c)", True),
        ("", "y = InstanceNormalization(c, g, b)", True),
        ("normalization-in-rows", "y = InstanceNormalization(c, g, b)", False),
    ],
    ids=[
        *("folds", "folds downstream", "folds upstream", "scaled products", "taken apart", "sliced", "products of both kinds"),
        *("what leaves the kernels", "convolutions that are taken apart", "merged", "norms that stay", "norms that do not"),
    ],
)
def test_it_is_known_where_an_engine_may_as_well_not_tell(rules: str, nodes: str, doubtful: bool) -> None:
    one = parse(f"g (float[N,4,8,8] x) => (float[N,4,8,8] y) {{ c = Conv(x, w) {nodes} }}", opset=21)
    assert is_doubtful(rules.split(), one) is doubtful
