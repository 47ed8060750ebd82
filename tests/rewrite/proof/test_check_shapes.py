"""The shapes at which changes are proved, where ONNX infers less than the file says."""

from __future__ import annotations

import pytest

from tests.models import parse
from trtnorm_cli.rewrite.proof.check_shapes import check_types, size_of


@pytest.mark.parametrize(("stated", "size"), [
    ("s0", 7), (5, 5), (None, None), ("2*s0", 14), ("((s0//2))*((s1//2))", 12), ("s0 + s1 - 1", 15), ("s1 % 3", 0),
    ("s2", None), ("s0//0", None), ("max(s0, s1)", 9), ("s0 ** 99", None), ("unk 0", None), ("-s0", None), ("2.5*s0", None),
])  # fmt: skip
def test_sizes_are_arithmetic_of_symbols(stated, size):
    assert size_of(stated, {"s0": 7, "s1": 9}) == size


def test_what_inference_leaves_open_is_taken_from_the_file():
    model = parse(
        "g (float[N, 4, H, W] x, int64[3] s) => (float[N, 4, P] y) <float[N, 4, L] r> { r = Reshape(x, s) y = Relu(r) }"
    )
    model.graph.output[0].type.tensor_type.shape.dim[2].dim_param = "H*W"
    types = check_types(model, {"x": (2, 4, 3, 5), "s": (3,)})
    assert types["y"].shape == (2, 4, 15)
    assert types["r"].shape is not None
    assert not isinstance(types["r"].shape[2], int)
