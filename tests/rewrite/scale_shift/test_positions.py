"""What makes the positions of a GridSample stays as it is written."""

from __future__ import annotations

import numpy as np
import onnx
import pytest

from tests.models import parse, random

PIXELS = np.stack(np.meshgrid(np.arange(64), np.arange(64)), axis=-1)[None].astype(np.float32)
NUMBERS = {
    "grid": PIXELS,
    "two": np.float32(2),
    "one": np.float32(1),
    "last": np.float32(63),
    "zeros": np.array(0),
    "ones": np.array(1),
}
SCALED = "d = Mul (p, two) q = Div (d, last) n = Sub (q, one)"
# The axes apart, as optical flow networks have them.
APART = """a = Gather <axis = 3> (p, zeros) b = Gather <axis = 3> (p, ones)
    c = Mul (a, two) e = Div (c, last) f = Sub (e, one) g = Mul (b, two) h = Div (g, last) i = Sub (h, one)
    j = Unsqueeze (f, axis) k = Unsqueeze (i, axis) n = Concat <axis = 3> (j, k)"""


def warped(positions: str, behind: str) -> onnx.ModelProto:
    text = f"""g (float[1, 3, 64, 64] x, float[1, 64, 64, 2] flow) => (float y) {{
        p = Add (grid, flow) {positions} {behind} }}"""
    return parse(text, {**NUMBERS, "axis": np.array([3])}, opset=16)


@pytest.mark.parametrize("positions", [SCALED, APART], ids=["together", "apart"])
def test_positions_stay_as_they_are_written(rewrite, positions: str) -> None:
    source = warped(positions, "y = GridSample <align_corners = 1> (x, n)")
    result = rewrite(source)
    assert result.outcome.changes == []
    assert result.operators == [node.op_type for node in source.graph.node]


def test_the_same_arithmetic_is_merged_elsewhere(rewrite) -> None:
    assert len(rewrite(warped(SCALED, "y = Relu (n)")).operators) < 5


def test_what_is_sampled_is_no_position(rewrite) -> None:
    text = """g (float[1, 3, 8, 8] x, float[1, 8, 8, 2] n) => (float y) {
        c = Conv (x, w) s = Mul (c, scale) y = GridSample (s, n) }"""
    source = parse(text, {"w": random(4, 3, 1, 1), "scale": random(4, 1, 1)}, opset=16)
    assert rewrite(source).operators == ["Conv", "GridSample"]
