"""One position in every shape of the build profile is as good as one that the file states."""

from __future__ import annotations

import onnx
import pytest

from tests.models import loaded, parse, random
from tests.rewritings import rewrite
from trtnorm_cli.onnx_model.shapes import TensorType, declared_types
from trtnorm_cli.profile.rewriting import RewriteSettings
from trtnorm_cli.rewrite.fixed_positions import single_positions, with_single_positions

WEIGHTS = {"s": random(4), "b": random(4, seed=1)}
POOLED = parse(
    "g (float[N, 4, H, W] x) => (float[] y) { [pool] a = MaxPool <kernel_shape=[2, 2], strides=[2, 2]> (x)"
    " [norm] y = InstanceNormalization(a, s, b) }",
    WEIGHTS,
)
ONE = ({"x": (1, 4, 2, 2)}, {"x": (4, 4, 3, 3)})
SEVERAL = ({"x": (1, 4, 2, 2)}, {"x": (4, 4, 3, 4)})


@pytest.mark.parametrize(("corners", "found"), [(ONE, ["a"]), (SEVERAL, []), ((), [])])
def test_found_where_it_is_so_at_every_corner(corners, found):
    types = declared_types(inferred())
    assert single_positions(inferred(), types, corners) == found


def inferred():
    return onnx.shape_inference.infer_shapes(POOLED)


def test_data_whose_rank_the_corners_do_not_tell():
    body = "{ a = Squeeze(x, k) y = InstanceNormalization(a, s, b) }"
    model = parse(f"g (float[N, 4] x, int64[R] k) => (float[] y) {body}", WEIGHTS)
    declared = {"a": TensorType(onnx.TensorProto.FLOAT, ("N", 4, "H", "W"))}
    assert single_positions(model, declared, ({"x": (1, 4), "k": (1,)},)) == []


def test_batch_and_channels_stay_open():
    types = with_single_positions(declared_types(inferred()), ["a"])
    assert types["a"].shape == ("N", 4, 1, 1)


@pytest.mark.parametrize(("corners", "rules"), [(ONE, ["normalization-of-one-element"]), (SEVERAL, [])])
def test_the_rewriting_builds_upon_it_and_says_so(tmp_path, corners, rules):
    result = rewrite(loaded(POOLED, tmp_path), corners[0], RewriteSettings(corners=corners))
    assert [change.rule for change in result.changes] == rules
    said = [note for note in result.notes if "a has one position in every shape of the build profile" in note]
    assert len(said) == len(rules)
