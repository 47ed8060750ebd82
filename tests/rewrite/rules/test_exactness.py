"""For any shape the folded model is the original one, to the last digits of float64."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.models import batchnorm, parse, random
from tests.oracle import worst_relative_error

EXACT = 1e-12
# Enough values per channel that the largest is not small by chance: errors are measured against it.
BATCH = 16
examples = settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
slow_examples = settings(parent=examples, max_examples=1500)


@dataclass(frozen=True)
class Case:
    """A model, the rule that must take it, and input shapes to compare at."""

    graph: str
    weights: dict[str, np.ndarray]
    rule: str
    pins: dict[str, tuple[int, ...]]

    def check(self, rewrite) -> None:
        model = parse(self.graph, self.weights, opset=17)
        result = rewrite(model, pins=self.pins)
        assert result.rules == [self.rule]
        assert worst_relative_error(model, result.model, self.pins) < EXACT


def ints(draw, low: int, high: int, count: int) -> list[int]:
    return draw(st.lists(st.integers(low, high), min_size=count, max_size=count))


def weights_of(draw, channels: int, **others: np.ndarray) -> dict[str, np.ndarray]:
    return {**batchnorm(channels, np.float64, seed=draw(st.integers(0, 99))), **others}


def norm_and_convolution(op: str, attributes: str, bias: bool) -> str:
    operands = "x, w, b" if bias else "x, w"
    return f"{{ c = {op} <{attributes}>({operands}) y = BatchNormalization(c, gamma, beta, mu, var) }}"


@st.composite
def convolutions(draw) -> Case:
    rank, groups = draw(st.integers(1, 3)), draw(st.integers(1, 4))
    per_group_in, per_group_out = draw(st.integers(1, 3)), draw(st.integers(1, 3))
    kernel, strides = ints(draw, 1, 3, rank), ints(draw, 1, 3, rank)
    dilations, pads = ints(draw, 1, 3, rank), ints(draw, 0, 2, 2 * rank)
    spatial = [(k - 1) * d + 1 + extra for k, d, extra in zip(kernel, dilations, ints(draw, 0, 4, rank), strict=True)]
    channels, bias = groups * per_group_out, draw(st.booleans())
    attributes = f"group={groups}, strides={strides}, dilations={dilations}, pads={pads}, kernel_shape={kernel}"
    shape = (BATCH, groups * per_group_in, *spatial)
    weights = weights_of(
        draw,
        channels,
        w=random(channels, per_group_in, *kernel, dtype=np.float64),
        **({"b": random(channels, dtype=np.float64)} if bias else {}),
    )
    dims = ", ".join(["N", *map(str, shape[1:])])
    graph = f"g (double[{dims}] x) => (double[] y) {norm_and_convolution('Conv', attributes, bias)}"
    return Case(graph, weights, "fold-batchnorm-conv", {"x": shape})


@st.composite
def transposed_convolutions(draw) -> Case:
    rank, groups = draw(st.integers(1, 3)), draw(st.integers(1, 4))
    per_group_in, per_group_out = draw(st.integers(1, 3)), draw(st.integers(1, 3))
    kernel, dilations = ints(draw, 1, 3, rank), ints(draw, 1, 2, rank)
    output_padding = ints(draw, 0, 2, rank)
    # ONNX asks for a stride or a dilation above the output padding.
    strides = [padding + extra for padding, extra in zip(output_padding, ints(draw, 1, 2, rank), strict=True)]
    spatial = ints(draw, 2, 4, rank)
    pads = [draw(st.integers(0, (k - 1) * d // 2)) for k, d in zip(kernel * 2, dilations * 2, strict=True)]
    channels, bias = groups * per_group_out, draw(st.booleans())
    attributes = (
        f"group={groups}, strides={strides}, dilations={dilations}, pads={pads}, output_padding={output_padding}, "
        f"kernel_shape={kernel}"
    )
    shape = (BATCH, groups * per_group_in, *spatial)
    weights = weights_of(
        draw,
        channels,
        w=random(groups * per_group_in, per_group_out, *kernel, dtype=np.float64),
        **({"b": random(channels, dtype=np.float64)} if bias else {}),
    )
    dims = ", ".join(["N", *map(str, shape[1:])])
    graph = f"g (double[{dims}] x) => (double[] y) {norm_and_convolution('ConvTranspose', attributes, bias)}"
    return Case(graph, weights, "fold-batchnorm-conv-transpose", {"x": shape})


@st.composite
def matrix_products(draw) -> Case:
    rows, (inner, columns) = BATCH, ints(draw, 1, 5, 2)
    trans_a, trans_b = draw(st.integers(0, 1)), draw(st.integers(0, 1))
    alpha, beta = draw(st.sampled_from([0.5, 1.0, -2.0])), draw(st.sampled_from([0.0, 0.5, 1.0, -2.0]))
    bias = draw(st.sampled_from([None, (), (1,), (columns,), (1, columns), (rows, 1), (rows, columns)]))
    attributes = f"transA={trans_a}, transB={trans_b}, alpha={alpha}, beta={beta}"
    shape = (inner, rows) if trans_a else (rows, inner)
    weights = weights_of(
        draw,
        columns,
        w=random(*((columns, inner) if trans_b else (inner, columns)), dtype=np.float64),
        **({} if bias is None else {"b": random(*bias, dtype=np.float64)}),
    )
    graph = f"g (double[{shape[0]}, {shape[1]}] x) => (double[] y) {norm_and_convolution('Gemm', attributes, bias is not None)}"
    return Case(graph, weights, "fold-batchnorm-gemm", {"x": shape})


@st.composite
def lone_batchnorms(draw) -> Case:
    shape = (BATCH, *ints(draw, 1, 4, draw(st.integers(1, 5))))
    dims = ", ".join("?" if axis != 1 and draw(st.booleans()) else str(size) for axis, size in enumerate(shape))
    graph = f"g (double[{dims}] x) => (double[] y) {{ y = BatchNormalization(x, gamma, beta, mu, var) }}"
    return Case(graph, weights_of(draw, shape[1]), "batchnorm-to-scale-shift", {"x": shape})


ALL = st.one_of(convolutions(), transposed_convolutions(), matrix_products(), lone_batchnorms())


@examples
@given(case=convolutions())
def test_convolutions(rewrite, case):
    case.check(rewrite)


@examples
@given(case=transposed_convolutions())
def test_transposed_convolutions(rewrite, case):
    case.check(rewrite)


@examples
@given(case=matrix_products())
def test_matrix_products(rewrite, case):
    case.check(rewrite)


@examples
@given(case=lone_batchnorms())
def test_lone_batchnorms(rewrite, case):
    case.check(rewrite)


@pytest.mark.slow
@slow_examples
@given(case=ALL)
def test_many_more(rewrite, case):
    case.check(rewrite)
