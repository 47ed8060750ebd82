"""Who makes each tensor of a graph, and who reads it."""

from __future__ import annotations

import numpy as np

from tests.models import parse
from trtnorm_cli.onnx_model.links import Links


def test_makers_readers_constants_and_results():
    text = "g (float[2] x) => (float[2] y, float[2] r) { [relu] r = Relu(x) [twice] d = Add(r, r) [last] y = Mul(d, w) }"
    links = Links.of(parse(text, {"w": np.ones(2, np.float32)}).graph)
    assert {name: node.name for name, node in links.makers.items()} == {"r": "relu", "d": "twice", "y": "last"}
    assert {name: [node.name for node in nodes] for name, nodes in links.readers.items()} == {
        "x": ["relu"], "r": ["twice"], "d": ["last"], "w": ["last"],
    }  # fmt: skip
    assert (list(links.constants), links.results) == (["w"], frozenset({"y", "r"}))


def test_the_only_reader():
    text = (
        "g (float[2] x) => (float[2] y, float[2] r) { r = Relu(x) [a] d = Neg(r) [b] e = Neg(d) [c] f = Neg(d) y = Add(e, f) }"
    )
    links = Links.of(parse(text).graph)
    found = {name: links.only_reader(name) for name in ("x", "r", "d", "e", "y", "nobody")}
    assert {name for name, node in found.items() if node is not None} == {"x", "e"}, "r is a result, d has two, y has none"
