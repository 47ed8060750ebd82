"""Folding: what may be evaluated, what must not be, and what the folding library gets wrong when it is let."""

from __future__ import annotations

import errno
import resource
import time
import warnings

import numpy as np
import onnx
import pytest

from tests.models import batchnorm, operators, parse, random
from tests.onnx_model.running import assert_same, initializers
from trtnorm_cli.onnx_model import ir_constants
from trtnorm_cli.onnx_model.clean import clean
from trtnorm_cli.onnx_model.shelf import Shelf
from trtnorm_cli.onnx_model.stored import is_external

# Normalizations

PARAMETERS = {"s": random(2), "b": random(2), "m": random(2), "v": np.abs(random(2)) + 1}
NORMALIZATIONS = [
    "t = BatchNormalization(w, s, b, m, v)",
    "t, mean, var = BatchNormalization<training_mode = 1>(w, s, b, m, v)",
    "t = BatchNormalization<training_mode = 0, epsilon = 0.001>(w, s, b, m, v)",
    "t = InstanceNormalization(w, s, b)",
    "t = GroupNormalization<num_groups = 2>(w, s, b)",
    "t, mean, inverse = LayerNormalization(w, s)",
    "t = RMSNormalization(w, s)",
    "t = MeanVarianceNormalization<axes = [0]>(w)",
    "t = LpNormalization(w)",
    "t = LRN<size = 3>(w)",
]


@pytest.mark.parametrize("line", NORMALIZATIONS)
def test_a_normalization_of_constants_survives_with_a_note(line):
    model = parse(
        f"g (float[N, 2] x) => (float[N, 2] y) {{ {line} y = Mul(x, t) }}", {"w": random(2, 2), **PARAMETERS}, opset=23
    )
    result = clean(model)
    kept = result.model.graph.node[0]
    assert (kept.op_type, list(kept.input), list(kept.output), list(kept.attribute)) == (
        model.graph.node[0].op_type,
        list(model.graph.node[0].input),
        list(model.graph.node[0].output),
        list(model.graph.node[0].attribute),
    )
    assert result.notes == (f"{kept.op_type} t: computed from constants only, and left to the rules",)


def test_normalizations_in_branches_survive_too():
    model = parse(
        """g (float[N, 2] x, bool c) => (float[N, 2] y) {
        t = If (c) <then_branch = t () => (float[2, 2] p) { p, a, b = BatchNormalization<training_mode = 1>(w, s, b, m, v) },
                    else_branch = e () => (float[2, 2] p) { p = Exp(w) }>
        y = MatMul(x, t) }""".replace("p, a, b =", "p, a, q ="),
        {"w": random(2, 2), **PARAMETERS},
    )
    result = clean(model)
    branches = {a.name: a.g for a in result.model.graph.node[0].attribute}
    assert [n.op_type for n in branches["then_branch"].node] == ["BatchNormalization"]
    assert [n.op_type for n in branches["else_branch"].node] == []
    for choice in (True, False):
        assert_same(model, result.model, {"x": random(3, 2), "c": np.array(choice)})


def test_parameters_of_a_normalization_are_folded():
    model = parse(
        """g (float[N, 3, H, W] x) => (float[N, 3, H, W] y) {
        one = Constant<value_float = 1.0>() gain = Add(gamma, one) two = Mul(var, var)
        y = BatchNormalization(x, gain, beta, mu, two) }""",
        batchnorm(3),
    )
    result = clean(model)
    assert operators(result.model) == ["BatchNormalization"]
    assert {"gain", "two"} <= initializers(result.model).keys()
    assert_same(model, result.model)


def test_numbers_that_are_infinite_are_folded_without_a_word():
    """T5 takes the logarithm of distances, and of one that is zero."""
    model = parse("g (float[2] x) => (float[2] y) { l = Log(d) y = Add(x, l) }", {"d": np.array([0, 1], np.float32)})
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        result = clean(model)
    assert not said
    assert operators(result.model) == ["Add"]
    assert initializers(result.model)["l"].tolist() == [-np.inf, 0]


# What must not be evaluated


@pytest.mark.parametrize("line", ["RandomNormal<shape = [3]>()", "RandomUniformLike(w)", "Bernoulli(w)"])
def test_random_numbers_stay_random(line):
    result = clean(parse(f"g (float[3] x) => (float[3] y) {{ r = {line} y = Add(x, r) }}", {"w": np.full(3, 0.5, np.float32)}))
    assert operators(result.model)[-1] == "Add"
    assert len(result.model.graph.node) == 2


def test_the_quantization_of_weights_stays():
    model = parse(
        "g (float[N, 2] x) => (float[N, 2] y) { f = DequantizeLinear(w, s) y = MatMul(x, f) }",
        {"w": np.array([[1, 2], [3, 4]], np.int8), "s": np.array(0.5, np.float32)},
    )
    assert operators(clean(model).model) == ["DequantizeLinear", "MatMul"]


@pytest.mark.parametrize(
    "line",
    [
        "r = ConstantOfShape<value = int64[1] {1}>(n1)",
        "r = Range(zero, n, one)",
        "r = Expand(one1, n1)",
        "r = Tile(one1, n1)",
        "big = ConstantOfShape<value = int64[1] {1}>(n1) f = Cast<to = 1>(big) r = Cast<to = 7>(f)",
    ],
)
def test_huge_results_are_not_made(line):
    size = 1 << 33
    model = parse(
        f"g (int64[1] x) => (int64[1] y) {{ {line} z = Slice(r, zero1, one1) y = Add(x, z) }}",
        {
            "n": np.array(size),
            "n1": np.array([size]),
            "zero": np.array(0),
            "zero1": np.array([0]),
            "one": np.array(1),
            "one1": np.array([1]),
        },
    )
    start = time.perf_counter()
    result = clean(model)
    assert time.perf_counter() - start < 30
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss < 4 << 20  # KiB
    assert len(result.model.graph.node) == len(model.graph.node)
    assert "too large to be stored" in result.notes[0]
    shapes = {v.name: [d.dim_value for d in v.type.tensor_type.shape.dim] for v in result.model.graph.value_info}
    assert shapes["r"] == [size]


def test_a_result_larger_than_its_inputs_is_not_stored():
    graph = "g (float[N, 1] x) => (float[N, M] y) { big = Expand(w, s) y = Mul(x, big) }"
    large = {"w": random(1, 1), "s": np.array([1, (1 << 18) + 1])}
    assert operators(clean(parse(graph, large)).model) == ["Expand", "Mul"]
    small = {**large, "s": np.array([1, 1 << 18])}
    assert operators(clean(parse(graph, small)).model) == ["Mul"]


def test_a_large_weight_is_folded_only_when_nothing_else_reads_it():
    weights = {"w": random(513, 512)}
    alone = "g (float[N, 512] x) => (float[N, 513] y) { t = Transpose(w) y = MatMul(x, t) }"
    assert operators(clean(parse(alone, weights)).model) == ["MatMul"]
    shared = "g (float[N, 512] x) => (float[N, 512] y) { t = Transpose(w) z = MatMul(x, t) y = MatMul(z, w) }"
    assert operators(clean(parse(shared, weights)).model) == ["Transpose", "MatMul", "MatMul"]


def test_a_model_of_2_6_gb_passes_without_its_weights_being_read(tmp_path):
    count, width = 40, 4096
    with (tmp_path / "weights.bin").open("wb") as stream:
        stream.truncate(count * width * width * 4)  # a sparse file: it takes no disk space
    lines = " ".join(f"c{i} = Transpose(w{i}) d{i} = Identity(c{i}) z{i + 1} = MatMul(z{i}, d{i})" for i in range(count))
    model = parse(f"g (float[N, {width}] z0) => (float[N, {width}] z{count}) {{ {lines} }}")
    for index in range(count):
        tensor = model.graph.initializer.add(name=f"w{index}", data_type=1, dims=[width, width])
        tensor.data_location = onnx.TensorProto.EXTERNAL
        for key, value in (("location", "weights.bin"), ("offset", index * width**2 * 4), ("length", width**2 * 4)):
            tensor.external_data.add(key=key, value=str(value))
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    result = clean(model, tmp_path)
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 200 << 10  # KiB
    assert operators(result.model) == ["Transpose", "MatMul"] * count
    assert list(result.model.graph.initializer) == list(model.graph.initializer)


# Where the library is held back


def test_softmax_of_old_opsets_is_flattened():
    model = parse(
        "g (float[N, 3] x) => (float[2, 3, 3] y) { k = Softmax<axis = 1>(w) y = Add(k, zero) z = Relu(x) }",
        {"w": random(2, 3, 3), "zero": np.zeros(1, np.float32)},
        opset=11,
    )
    result = clean(model)
    assert operators(result.model) == ["Identity"]
    assert_same(model, result.model)


def test_absolute_values_in_shape_arithmetic_are_kept():
    model = parse("g (float[N] x) => (int64[1] y) <int64[1] m = {-9}> { s = Shape(x) t = Add(s, m) y = Abs(t) }")
    assert_same(model, clean(model).model)


def test_equal_names_of_dimensions_are_not_taken_for_equal_sizes():
    model = parse(
        """g (float[U, U, 4] x) => (float[P, Q, 4] y) <int64 axis0 = {0}, int64 axis1 = {1}, int64[1] four = {4}> {
        s = Shape(x) a = Shape<start = 1, end = 2>(x) b = Shape<start = 0, end = 1>(x)
        t = Concat<axis = 0>(a, b, four) y = Reshape(x, t) }"""
    )
    assert_same(model, clean(model).model, {"x": random(2, 3, 4)})


def test_shapes_in_the_file_are_not_believed():
    model = parse(
        """g (float[N, 3] x) => (float[P] y) <int64 zero = {0}> {
        r = Relu(x) s = Shape(r) n = Gather(s, zero) shape = Unsqueeze(n, axes) y = Expand(one, shape) }""",
        {"axes": np.array([0]), "one": np.ones(1, np.float32)},
    )
    model.graph.value_info.append(onnx.helper.make_tensor_value_info("r", onnx.TensorProto.FLOAT, [1, 3]))
    result = clean(model)
    assert_same(model, result.model, {"x": random(5, 3)})
    assert result.notes == (
        "the shapes in the file are out of date and were dropped: r is [1, 3] in the file and [N, 3] by inference",
    )


@pytest.mark.parametrize(
    ("opset", "split", "expected"),
    [
        (17, np.array(2), ["Slice"]),
        (18, np.array(2), ["Split"]),
        (13, np.array([2, 2]), ["Split"]),
        (11, np.array([2, 2]), ["Slice"]),
    ],
)
def test_split_to_sequence_becomes_a_split_where_the_opset_has_one_and_a_slice_elsewhere(opset, split, expected):
    graph = (
        "g (float[N, 4] x) => (float[N, 2] y) <int64 i = {1}> { s = SplitToSequence<axis = 1>(x, split) y = SequenceAt(s, i) }"
    )
    model = parse(graph, {"split": split}, opset=opset)
    result = clean(model)
    assert operators(result.model) == expected
    assert result.notes == ()
    assert_same(model, result.model)


def test_a_split_of_unknown_size_is_left_to_slices():
    model = parse(
        """g (float[N, 4] x, int64 n) => (float[P, 4] y) <int64 i = {0}> {
        c = Neg(w) k = Add(x, c) s = SplitToSequence<axis = 0>(k, n) y = SequenceAt(s, i) }""",
        {"w": random(4)},
        opset=18,
    )
    result = clean(model)
    assert operators(result.model) == ["Add", "Reshape", "Mul", "Mul", "Slice"]
    assert result.notes == ()


def test_a_cast_that_does_not_saturate_stays_one():
    model = parse(
        "g (float[2] x) => (float[2] y) { k = CastLike<saturate = 0>(w, like) f = Cast<to = 1>(k) y = Add(x, f) }",
        {"w": np.array([1e5, 1.0], np.float32)},
        opset=19,
        ir=9,
    )
    model.graph.initializer.append(onnx.helper.make_tensor("like", onnx.TensorProto.FLOAT8E4M3FN, [1], [1.0]))
    before = model.graph.node[0].attribute[0]
    assert [a for n in clean(model).model.graph.node if n.op_type == "CastLike" for a in n.attribute] == [before]


def test_nodes_with_several_outputs_are_folded():
    model = parse(
        """g (float[N, 2] x) => (float[N, 2] y) {
        a, b = Split<axis = 0>(w) values, places = TopK<axis = 0>(b, two) c = Mul(a, values) y = Mul(x, c) }""",
        {"w": random(4), "two": np.array([2])},
    )
    result = clean(model)
    assert operators(result.model) == ["Mul"]
    assert_same(model, result.model)


def test_sums_of_squares_keep_their_type():
    model = parse(
        "g (int32[N] x) => (int32[N] y) { k = ReduceSumSquare<keepdims = 0>(w) y = Mul(x, k) }",
        {"w": np.array([1, 2], np.int32)},
    )
    result = clean(model)
    assert operators(result.model) == ["Mul"]
    assert initializers(result.model)["k"].dtype == np.int32


def test_what_onnx_runtime_cannot_evaluate_is_left_with_a_note():
    model = parse("g (bfloat16[N, 2] x) => (bfloat16[N, 2] y) { a, b = Split<axis = 0>(w) c = Mul(x, a) y = Add(c, b) }")
    model.graph.initializer.append(onnx.helper.make_tensor("w", onnx.TensorProto.BFLOAT16, [4], [1.0, 2.0, 3.0, 4.0]))
    result = clean(model)
    assert operators(result.model) == ["Split", "Mul", "Add"]
    assert result.notes == ("Split a: constant, but ONNX Runtime cannot evaluate it",)


def test_biases_of_quantisers_become_floats_and_quantized_weights_stay():
    """TensorRT's DequantizeLinear takes no integers of 32 bits, which is how ONNX Runtime's quantiser writes every bias."""
    model = parse(
        """g (float[N, 2] x) => (float[N, 3] y) {
        w = DequantizeLinear(q, ws, wz) b = DequantizeLinear<axis = 0>(i, bs) y = Gemm(x, w, b) }""",
        {
            "q": np.arange(6, dtype=np.int8).reshape(2, 3),
            "ws": np.array(0.5, np.float32),
            "wz": np.array(0, np.int8),
            "i": np.array([100, -7, 3], np.int32),
            "bs": np.array([0.25, 0.5, 1e-3], np.float32),
        },
    )
    result = clean(model)
    assert operators(result.model) == ["DequantizeLinear", "Gemm"]
    bias = initializers(result.model)[result.model.graph.node[1].input[2]]
    np.testing.assert_array_equal(bias, np.array([25, -3.5, 3e-3], np.float32))
    assert_same(model, result.model, {"x": random(4, 2)})


def test_quantized_scalars_become_floats_and_vectors_stay():
    """TensorRT takes no quantized constant without axes, as the exponents that ONNX Runtime's quantiser writes."""
    model = parse(
        """g (float[N, 2] x) => (float[N, 2] y) {
        e = DequantizeLinear(two, s, zero) p = Pow(x, e) f = DequantizeLinear(two_each, s, zero) y = Mul(p, f) }""",
        {
            "two": np.array(127, np.int8),
            "two_each": np.array([127, 64], np.int8),
            "s": np.array(2 / 127, np.float32),
            "zero": np.array(0, np.int8),
        },
    )
    result = clean(model)
    assert operators(result.model) == ["Pow", "DequantizeLinear", "Mul"]
    assert_same(model, result.model, {"x": random(4, 2)})


def test_parameters_of_normalizations_and_biases_that_are_quantized_are_floats_again():
    """ONNX Runtime's quantiser writes the scale of a BatchNormalization as integers of 8 bits, too."""
    model = parse(
        """g (float[N, 2, 4, 4] x) => (float[] y) {
        w = DequantizeLinear(q, s) b = DequantizeLinear(i, s) c = Conv(x, w, b)
        g = DequantizeLinear<axis = 0>(k, t) y = BatchNormalization(c, g, b, m, v) }""",
        {
            "q": np.arange(4, dtype=np.int8).reshape(2, 2, 1, 1),
            "s": np.float32(0.5),
            "i": np.array([3, -4], np.int8),
            "k": np.array([100, 50], np.int8),
            "t": np.array([0.25, 0.5], np.float32),
            "m": np.zeros(2, np.float32),
            "v": np.ones(2, np.float32),
        },
    )
    result = clean(model)
    assert operators(result.model) == ["DequantizeLinear", "Conv", "BatchNormalization"]
    assert initializers(result.model)["g"].tolist() == [25, 25]
    assert initializers(result.model)["b"].tolist() == [1.5, -2]


def test_an_integer_bias_that_somebody_else_reads_stays():
    model = parse(
        "g (float[N, 2, 4, 4] x) => (float[] y, float[2] r) { b = DequantizeLinear(i, s) y = Conv(x, w, b) r = Relu(b) }",
        {"i": np.array([3, -4], np.int8), "s": np.float32(0.5), "w": np.ones((2, 2, 1, 1), np.float32)},
    )
    assert "DequantizeLinear" in operators(clean(model).model)


# Large values

LARGE, SMALL = random(160, 128), random(8, 128)


def transposed_weights() -> onnx.ModelProto:
    """Products with a large weight that is transposed twice, with a small one, and with a large one that branches compute."""
    inner = "(float[160, 128] p) { b = Neg(w) p = Abs(b) }"
    nodes = f"""
        t = Transpose(w) s = Transpose(t) q = MatMul(x, s)
        i = If (c) <then_branch = one () => {inner}, else_branch = other () => {inner}> z = MatMul(x, i)
        u = Transpose(v) r = MatMul(z, u) y = Concat<axis = 1>(q, r)"""
    return parse(f"g (float[N, 160] x, bool c) => (float[N, 136] y) {{ {nodes} }}", {"w": LARGE, "v": SMALL})


def test_large_values_of_the_graph_are_in_a_file_and_others_in_the_message():
    result = clean(transposed_weights())
    held = {tensor.name: is_external(tensor) for tensor in result.model.graph.initializer}
    assert held == {"s": True, "u": False}
    np.testing.assert_array_equal(initializers(result.model)["s"], LARGE)
    np.testing.assert_array_equal(initializers(result.model)["u"], SMALL.T)
    (branching,) = (node for node in result.model.graph.node if node.op_type == "If")
    branches = [attribute.g for attribute in branching.attribute]
    assert not any(is_external(tensor) for branch in branches for tensor in branch.initializer)
    again = clean(result.model)
    np.testing.assert_array_equal(initializers(again.model)["s"], LARGE)


def test_large_values_are_in_the_message_where_there_is_no_room(monkeypatch):
    def full(*given: object) -> None:
        raise OSError(errno.ENOSPC, "no space left on device")

    monkeypatch.setattr(Shelf, "_write", full)
    result = clean(transposed_weights())
    assert not any(map(is_external, result.model.graph.initializer))
    np.testing.assert_array_equal(initializers(result.model)["s"], LARGE)


def test_values_on_the_way_are_put_into_no_file(monkeypatch):
    put: list[str] = []
    keep = Shelf.put
    monkeypatch.setattr(Shelf, "put", lambda shelf, value, name: put.append(name) or keep(shelf, value, name))
    nodes = " ".join(f"w{i + 1} = Neg(w{i})" for i in range(8))
    result = clean(parse(f"g (float[N, 160] x) => (float[N, 128] y) {{ {nodes} y = MatMul(x, w8) }}", {"w0": LARGE}))
    assert operators(result.model) == ["MatMul"]
    assert put == ["w8"]


def test_large_values_do_not_wait_in_memory_for_the_end(monkeypatch):
    """Those that have waited longest are put into the file where many are read only later."""
    monkeypatch.setattr(ir_constants, "_MOST_WAITING_BYTES", 2 * LARGE.nbytes)
    put: list[str] = []
    keep = Shelf.put
    monkeypatch.setattr(Shelf, "put", lambda shelf, value, name: put.append(name) or keep(shelf, value, name))
    nodes = " ".join(f"t{i} = Neg(w{i})" for i in range(4))
    products = " ".join(f"p{i} = MatMul(x, t{i})" for i in range(4))
    text = f"g (float[N, 160] x) => (float[N, 512] y) {{ {nodes} {products} y = Concat<axis = 1>(p0, p1, p2, p3) }}"
    before_the_end: list[str] = []
    put_away = ir_constants.ConstantMaker.put_away
    monkeypatch.setattr(ir_constants.ConstantMaker, "put_away", lambda maker: before_the_end.extend(put) or put_away(maker))
    result = clean(parse(text, {f"w{i}": LARGE + i for i in range(4)}))
    assert before_the_end == ["t0", "t1"]
    assert sorted(put) == ["t0", "t1", "t2", "t3"]
    for i in range(4):
        np.testing.assert_array_equal(initializers(result.model)[f"t{i}"], -(LARGE + i))
