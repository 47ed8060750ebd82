"""Whatever lies between weights and a scale and shift: the rewritten model is the original one, to the last digits."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from tests.models import parse
from tests.oracle import worst_relative_error
from tests.rewrite.rules import paths
from tests.rewrite.rules.paths import Graph
from trtnorm_cli.onnx_model.infer import add_inferred_shapes

EXACT = 1e-12
examples = settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
slow_examples = settings(parent=examples, max_examples=2000)


def check(rewrite, g: Graph) -> list[str]:
    """The rules that were applied to a model that stays the same."""
    model = parse(g.text(), g.weights)
    add_inferred_shapes(model, set())
    pins = dict(g.inputs)
    result = rewrite(model, pins=pins)
    assert result.outcome.failed == result.outcome.undone == []
    assert worst_relative_error(model, result.model, pins) < EXACT
    add_inferred_shapes(result.model, set())
    second = rewrite(result.model, pins=pins)
    assert second.rules == []
    assert len(result.operators) <= len(model.graph.node) + result.rules.count("batchnorm-to-scale-shift")
    return result.rules


@st.composite
def upstream(draw) -> Graph:
    """Weights, up to four other operators, and what is to be folded."""
    g = Graph(draw)
    draw(st.sampled_from(paths.PRODUCERS))(g)
    for step in draw(st.lists(st.sampled_from(paths.LAYOUT), max_size=4)):
        if len(g.shape) >= 2 and max(g.shape) < 400:
            step(g)
    assume(2 <= len(g.shape) <= 5)
    for _ in range(draw(st.integers(1, 3))):
        scale_and_shift(g)
    return g


def scale_and_shift(g: Graph) -> None:
    kind = g.draw(st.sampled_from(["BatchNormalization", "Mul", "Add", "Sub", "Div", "scalar"]))
    if kind == "BatchNormalization":
        g.batchnorm()
        return
    axis = g.draw(st.integers(1, len(g.shape) - 1))
    shape = [size if i == axis else 1 for i, size in enumerate(g.shape)]
    value = paths.real(*shape[1:] if g.draw(st.booleans()) else shape) if kind != "scalar" else np.array(0.3)
    name = g.constant(np.asarray(np.sign(value) * (np.abs(value) + 0.5)))
    turned = kind in ("Mul", "Add", "Sub") and g.draw(st.booleans())
    op = "Mul" if kind == "scalar" else kind
    g.node(f"{op}({name}, $)" if turned else f"{op}($, {name})", g.shape)


@st.composite
def downstream(draw) -> Graph:
    """A BatchNormalization, up to three other operators, and weights."""
    g = Graph(draw)
    g.input(paths.BATCH, draw(st.sampled_from([2, 4])), *[4] * draw(st.integers(0, 2)))
    g.batchnorm()
    for step in draw(st.lists(st.sampled_from(paths.LAYOUT), max_size=3)):
        if len(g.shape) >= 2 and max(g.shape) < 400:
            step(g)
    here, shape = g.at, g.shape
    for _ in range(draw(st.integers(1, 2))):
        g.at, g.shape = here, shape
        consumer(g)
        g.outputs.append(g.at)
    return g


def consumer(g: Graph) -> None:
    if len(g.shape) == 2:
        paths.gemm(g)
    elif g.draw(st.booleans()) or len(g.shape) > 4:
        paths.matmul(g)
    else:
        paths.convolution(g, padded=g.draw(st.booleans()))


@st.composite
def parallel(draw) -> Graph:
    """Convolutions and a BatchNormalization of one tensor, added up."""
    g = Graph(draw)
    groups = draw(st.sampled_from([1, 2]))
    data = g.input(paths.BATCH, 4, 5, 5)
    strides = draw(st.sampled_from([1, 1, 2]))
    branches = []
    for kernel in draw(st.lists(st.sampled_from([1, 3, 5]), min_size=1, max_size=3)):
        # Different values: what cancels out leaves nothing to measure errors against.
        weight = g.constant(paths.real(4, 4 // groups, kernel, kernel, seed=len(branches)))
        bias = f", {g.constant(paths.real(4, seed=len(branches)))}" if draw(st.booleans()) else ""
        pads = f"pads={[kernel // 2] * 4}" if kernel == 1 or draw(st.booleans()) else 'auto_pad="SAME_UPPER"'
        text = f"Conv<group={groups}, strides=[{strides}, {strides}], {pads}>({data}, {weight}{bias})"
        branches.append(g.node(text, (paths.BATCH, 4, -(-5 // strides), -(-5 // strides))))
    if strides == 1 and draw(st.booleans()):
        g.at, g.shape = data, (paths.BATCH, 4, 5, 5)
        branches.append(g.batchnorm())
    for branch in branches[1:]:
        g.node(f"{draw(st.sampled_from(['Add', 'Sub']))}({branches[0]}, {branch})", (paths.BATCH, 4, 5, 5))
        branches[0] = g.at
    return g


@examples
@given(g=upstream())
def test_upstream(rewrite, g):
    check(rewrite, g)


@examples
@given(g=downstream())
def test_downstream(rewrite, g):
    check(rewrite, g)


@examples
@given(g=parallel())
def test_parallel(rewrite, g):
    check(rewrite, g)


@pytest.mark.slow
@slow_examples
@given(g=st.one_of(upstream(), downstream(), parallel()))
def test_many_more(rewrite, g):
    check(rewrite, g)
