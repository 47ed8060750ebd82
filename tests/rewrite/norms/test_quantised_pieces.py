"""Q/DQ pairs in and around normalizations: nothing moves across one, and none gets lost."""

from __future__ import annotations

import numpy as np
import onnx
import pytest

from tests.models import batchnorm, operators, parse, random
from trtnorm_cli.evaluate.float64 import evaluate_float64
from trtnorm_cli.rewrite.rules import fold_batchnorm_upstream

LAYERNORM = [
    "m = ReduceMean<axes=[-1]>(x)",
    "d = Sub(x, m)",
    "p = Pow(d, two)",
    "v = ReduceMean<axes=[-1]>(p)",
    "e = Add(v, eps)",
    "r = Sqrt(e)",
    "n = Div(d, r)",
    "g = Mul(n, gamma)",
    "y = Add(g, beta)",
]
INSTANCENORM = [
    "a = Reshape(x, groups)",
    "i = InstanceNormalization(a, one, zero)",
    "b = Reshape(i, back)",
    "c = Mul(b, gamma)",
    "y = Add(c, beta)",
]
WEIGHTS = {
    "layer norm": {"two": np.float32(2), "eps": np.float32(1e-5), "gamma": random(8), "beta": random(8, seed=1)},
    "group norm": {
        "groups": np.array([2, 2, -1], np.int64),
        "back": np.array([2, 4, 3, 8], np.int64),
        "one": np.ones(2, np.float32),
        "zero": np.zeros(2, np.float32),
        "gamma": random(4, 1, 1),
        "beta": random(4, 1, 1, seed=1),
    },
}
PIECES = {"layer norm": LAYERNORM, "group norm": INSTANCENORM}


def quantised(kind: str, place: int) -> onnx.ModelProto:
    """The pieces, with a Q/DQ pair on what the piece ``place`` makes."""
    lines = []
    for number, line in enumerate(PIECES[kind]):
        name = line.split(" = ")[0]
        if number == place and name != "y":
            lines += [
                line.replace(f"{name} =", "raw =", 1),
                "quant = QuantizeLinear(raw, s, z)",
                f"{name} = DequantizeLinear(quant, s, z)",
            ]
        elif number == place:
            lines += [line.replace("y =", "raw =", 1), "quant = QuantizeLinear(raw, s, z)", "y = DequantizeLinear(quant, s, z)"]
        else:
            lines.append(line)
    weights = {**WEIGHTS[kind], "s": np.float32(0.03), "z": np.int8(0)}
    return parse(f"g (float[2, 4, 3, 8] x) => (float[] y) {{ {' '.join(lines)} }}", weights)


@pytest.mark.parametrize(("kind", "place"), [(kind, place) for kind, lines in PIECES.items() for place in range(len(lines))])
def test_a_pair_among_the_pieces_stays_where_it_is(rewrite, kind, place):
    source = quantised(kind, place)
    result = rewrite(source).model
    assert operators(result).count("QuantizeLinear") == 1
    assert operators(result).count("DequantizeLinear") == 1
    fed = {"x": random(2, 4, 3, 8)}
    wanted, got = (evaluate_float64(one, fed).outputs["y"] for one in (source, result))
    assert np.mean(np.abs(wanted - got) > 1e-5) < 0.01, "but for values next to a tie"


def test_a_batch_normalization_behind_a_pair_stays(rewrite):
    source = parse(
        "g (float[1, 3, 6, 6] x) => (float[] y) { c = Conv(x, w) q = QuantizeLinear(c, s, z) d = DequantizeLinear(q, s, z)"
        " y = BatchNormalization(d, gamma, beta, mu, var) }",
        {"w": random(4, 3, 3, 3), "s": np.float32(0.1), "z": np.int8(0), **batchnorm(4)},
    )
    result = rewrite(source, rules=(fold_batchnorm_upstream.RULE,))
    assert result.outcome.changes == []
    assert "DequantizeLinear, which takes no scale and shift" in result.reason(fold_batchnorm_upstream.RULE.name)
    assert operators(rewrite(source).model)[:3] == ["Conv", "QuantizeLinear", "DequantizeLinear"]
