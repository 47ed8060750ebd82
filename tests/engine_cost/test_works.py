"""The work of kernels: bytes, operations, rows, and what nobody asked for."""

from __future__ import annotations

import numpy as np
import pytest

from tests.models import parse, random
from trtnorm_cli.cost.roofline import Rows
from trtnorm_cli.engine_cost.facts import ModelFacts, model_facts
from trtnorm_cli.engine_cost.kernels import KernelWork, kernel_work, listing
from trtnorm_cli.engine_cost.operations import operations
from trtnorm_cli.engine_cost.profiles import of_profile
from trtnorm_cli.engine_cost.reductions import Reduction, reduction
from trtnorm_cli.engine_cost.tensors import element_counts, key_of
from trtnorm_cli.records.engine_parts import Kernel, KernelTensor, NetworkLayer, NetworkTensor, UnreadKernel


def facts(text: str, weights: dict[str, np.ndarray] | None = None, **sizes: int) -> ModelFacts:
    return model_facts(parse(text, weights), sizes)


def tensor(name: str, *shape: int, dtype: str = "Float", layout: str = "Linear") -> KernelTensor:
    return KernelTensor(name, shape, dtype, layout)


def kernel(name: str, inputs: list[KernelTensor], outputs: list[KernelTensor], *nodes: str, **rest: object) -> Kernel:
    kind = "correlation" if not name.startswith("__myl") else "kgen"
    return Kernel(name, kind, "", tuple(inputs), tuple(outputs), nodes, **rest)  # type: ignore[arg-type]


def work(one: Kernel, model: ModelFacts, *others: Kernel) -> KernelWork:
    return kernel_work(one, listing([one, *others], model))


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("(float[1,8,6,6] x, float[4,2,3,3] w) => (float y) { [n] y = Conv <group=4> (x, w) }", 2 * 4 * 16 * 18),
        ("(float[1,8,6,6] x, float[8,3,2,2] w) => (float y) { [n] y = ConvTranspose (x, w) }", 2 * 8 * 36 * 12),
        ("(float[5,7,8] x, float[8,3] w) => (float y) { [n] y = MatMul (x, w) }", 2 * 35 * 3 * 8),
        ("(float[8,7] x, float[8,3] w) => (float y) { [n] y = Gemm <transA=1> (x, w) }", 2 * 7 * 3 * 8),
        (
            '(float[2,5,7] x, float[2,7,3] w) => (float y) { [n] y = Einsum <equation="bij,bjk->bik"> (x, w) }',
            2 * 2 * 5 * 7 * 3,
        ),
        ("(float[4,6] x) => (float y) { [n] y = Relu (x) }", 24),
        ("(float[4,6] x) => (float y) { [n] y = Transpose (x) }", 0),
    ],
)
def test_operations(text: str, expected: int) -> None:
    model = facts(f"g {text}")
    assert operations(model.nodes["n"], model) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (
            "(float[2,3,4,5] x, float[3] s, float[3] b) => (float y) { [n] y = InstanceNormalization (x, s, b) }",
            Reduction(6, 20, True),
        ),
        (
            "(float[2,6,4,5] x, float[6] s, float[6] b) => (float y) { [n] y = GroupNormalization <num_groups=2> (x, s, b) }",
            Reduction(4, 60, True),
        ),
        ("(float[2,3,8] x, float[8] s) => (float y) { [n] y = LayerNormalization (x, s) }", Reduction(6, 8, True)),
        ("(float[2,3,8] x) => (float y) { [n] y = Softmax <axis=1> (x) }", Reduction(16, 3, False)),
        ("(float[2,3,4,5] x) => (float y) { [n] y = GlobalAveragePool (x) }", Reduction(6, 20, True)),
        ("(float[2,3,4] x, int64[1] axes) => (float y) { [n] y = ReduceMean <axes=[1]> (x) }", Reduction(8, 3, False)),
        ("(float[2,3] x) => (float y) { [n] y = Relu (x) }", None),
        ("(float[2,3,1,1] x) => (float y) { [n] y = GlobalAveragePool (x) }", None),
    ],
)
def test_reductions(text: str, expected: Reduction | None) -> None:
    model = facts(f"g {text}")
    assert reduction(model.nodes["n"], model) == expected


CONV = "g (float[N,3,H,W] x) => (float[N,8,H,W] y) { [conv] c = Conv <pads=[1,1,1,1]> (x, w) [relu] y = Relu (c) }"


def test_open_sizes_are_told_by_name_by_node_by_their_neighbours_and_by_their_readers() -> None:
    model = facts(CONV, {"w": random(8, 3, 3, 3)}, N=2, H=6, W=10)
    first = kernel("__myl_Move_myl0_1", [tensor("x", -1, 3, -1, -1)], [tensor("__arg_myl0", -1, 3, -1, -1)])
    conv = kernel("conv_myl0_2", [first.outputs[0]], [tensor("c.1_7_myl0", -1, 8, -1, -1), tensor("t", -1, 9, -1, -1)], "conv")
    flat = kernel("__myl_Relu_myl0_3", [conv.outputs[0]], [tensor("__flat_myl0", -1, 8, -1)], "relu")
    counts = element_counts([first, conv, flat], model)
    assert [counts[key_of(one)] for one in (first.inputs[0], *first.outputs, *conv.outputs, *flat.outputs)] == [
        360, 360, 960, 1080, 960,
    ]  # fmt: skip


def test_a_part_of_a_tensor_is_not_the_whole() -> None:
    model = facts("g (float[N,4] x, float[4,6] w) => (float y) { [n] y = MatMul (x, w) }", N=5)
    whole = kernel("n_myl0_1", [tensor("x", -1, 4)], [tensor("both", -1, 12)], "n")
    part = kernel("__myl_Add_myl0_2", [tensor("both", -1, 6)], [tensor("y", -1, 6)])
    counts = element_counts([whole, part], model)
    assert counts[("both", (-1, 12))] == 60
    assert counts[("both", (-1, 6))] == 30


def test_a_tensor_in_another_shape_is_as_large_whatever_its_readers_have() -> None:
    text = """g (float[N,7,7,6] x, float[6] s, float[6] b) => (float[N,7,7,24] y)
    { [norm] n = LayerNormalization (x, s, b) [product] p = MatMul (n, w) [gelu] y = Gelu (p) }"""
    model = facts(text, {"w": random(6, 24)}, N=2)
    norm = kernel(
        "__myl_Mean_myl0_1", [tensor("x", -1, 7, 7, 6)], [tensor("nb.1_myl0", -1, 7, 7, 6), tensor("m", -1, 1)], "norm"
    )
    fused = kernel("__myl_FcErf_myl0_2", [tensor("nb.1_myl0", -1, 6)], [tensor("__mye1_myl0", -1, 24)], "gelu", "product")
    move = kernel("__myl_Tran_myl0_3", [tensor("nb.1_myl0", -1, 6, 7, 7)], [tensor("__arg1_myl0", -1, 6, 1, 1)])
    counts = element_counts([norm, fused, move], model)
    assert [counts[key_of(one)] for one in (*fused.inputs, *fused.outputs, *move.inputs)] == [588, 2352, 588]


def test_a_number_marks_an_operand_of_the_tensor_of_that_name() -> None:
    text = """g (float[N,8,H,W] x) => (float[N,8,h,w] y)
    { [first] c = Conv (x, w) [norm] y = Conv <strides=[2,2]> (c, w) }"""
    model = facts(text, {"w": random(8, 8, 1, 1)}, N=1, H=8, W=8)
    first = kernel("first_myl0_1", [tensor("x", -1, 8, -1, -1)], [tensor("y.1_7_myl0", -1, 8, -1, -1)], "first")
    second = kernel("second_myl0_2", [first.outputs[0]], [tensor("y.1_myl0", -1, 8, -1, -1)], "norm")
    counts = element_counts([first, second], model)
    assert [counts[key_of(one)] for one in (*first.outputs, *second.outputs)] == [512, 128]


def test_a_variance_fits_where_centred_data_goes_and_counters_are_few() -> None:
    text = """g (float[N,4,S] x) => (float[N,4,S] y) { [m] m = ReduceMean <axes=[2]> (x) [c] c = Sub (x, m)
    [q] q = Mul (c, c) [v] v = ReduceMean <axes=[2]> (q) [d] y = Div (c, v) }"""
    model = facts(text, N=2, S=9)
    moves = kernel("__myl_Move_myl0_1", [], [tensor("__arg0_myl0", -1, dtype="Int32")], "m", "v", "q", "c")
    outputs = [tensor("__arg1_myl0", -1, 4, -1), tensor("__arg2_myl0", -1, 4, 1)]
    mean = kernel("__myl_MeanSubMulMean_myl0_2", [moves.outputs[0], tensor("x", -1, 4, -1)], outputs, "m", "v", "q", "c")
    counts = element_counts([moves, mean], model)
    assert [counts[key_of(one)] for one in (*moves.outputs, *mean.outputs)] == [8, 72, 8]


def test_products_side_by_side_are_as_large_as_all_of_them() -> None:
    text = "g (float[N,S,6] x) => (float[N,S,6] p, float[N,S,6] q) { [one] p = MatMul (x, w) [two] q = MatMul (x, w) }"
    model = facts(text, {"w": random(6, 6)}, N=2, S=5)
    both = kernel("one+two_myl0_1", [tensor("x", -1, 6)], [tensor("__mye1_myl0", 2, -1, 6)], "one", "two")
    assert element_counts([both], model)[key_of(both.outputs[0])] == 120


def test_weights_that_are_computed_are_no_data() -> None:
    text = """g (float[N,4,6] x) => (float[N,4,3] y)
    { [turn] t = Transpose (w) [one] y = MatMul (x, t) }"""
    model = facts(text, {"w": random(3, 6)}, N=2)
    assert {"w", "t"} <= model.constants
    one = kernel("one_myl0_1", [tensor("x", -1, 6)], [tensor("__mye1_myl0", -1, 3)], "turn", "one")
    assert element_counts([one], model)[key_of(one.outputs[0])] == 24


def test_bytes_weights_and_operations_of_a_convolution() -> None:
    model = facts(CONV, {"w": random(8, 3, 3, 3)}, N=1, H=4, W=4)
    constants = (tensor("w", 8, 3, 3, 3, dtype="Half"),)
    conv = kernel(
        "conv_myl0_1", [tensor("x", 1, 3, 4, 4, dtype="Half")], [tensor("c", 1, 8, 4, 4)], "conv", constants=constants
    )
    found = work(conv, model)
    assert (found.works[0].read, found.weights, found.works[0].written) == (96 + 432, 432, 512)
    assert found.works[0].operations == 2 * 128 * 27
    assert (found.works[0].type, found.unasked, found.works[0].rows) == ("float32", None, None)


def test_weights_of_releases_that_list_no_constants_come_from_the_nodes() -> None:
    model = facts(CONV, {"w": random(8, 3, 3, 3)}, N=1, H=4, W=4)
    halves = [kernel(f"conv_{i}_myl0_1", [tensor("x", 1, 3, 4, 4)], [tensor(f"c{i}", 1, 4, 4, 4)], "conv") for i in (0, 1)]
    assert [work(halves[0], model, halves[1]).weights, work(halves[0], model).weights] == [432, 864]


def test_a_product_is_made_by_the_kernel_that_multiplies() -> None:
    model = facts(CONV, {"w": random(8, 3, 3, 3)}, N=1, H=4, W=4)
    conv = kernel("conv_myl0_1", [tensor("x", 1, 3, 4, 4)], [tensor("c", 1, 8, 4, 4)], "conv")
    relu = kernel("__myl_Relu_myl0_2", [tensor("c", 1, 8, 4, 4)], [tensor("y", 1, 8, 4, 4)], "conv", "relu")
    assert [work(one, model, *{conv, relu} - {one}).works[0].operations for one in (conv, relu)] == [2 * 128 * 27, 128]


def test_a_transposed_convolution_is_a_product_as_well() -> None:
    model = facts("g (float[1,8,6,6] x, float[8,3,2,2] w) => (float y) { [n] c = ConvTranspose (x, w) [r] y = Relu (c) }")
    made = Kernel("n_myl0_1", "deconv", "", (tensor("x", 1, 8, 6, 6),), (tensor("c", 1, 3, 7, 7),), ("n",))
    relu = kernel("__myl_Relu_myl0_2", [tensor("c", 1, 3, 7, 7)], [tensor("y", 1, 3, 7, 7)], "n", "r")
    assert [work(one, model, *{made, relu} - {one}).works[0].operations for one in (made, relu)] == [2 * 8 * 36 * 12, 147]


def test_a_table_is_read_in_part() -> None:
    model = facts("g (int64[2] i) => (float y) { [n] y = Gather (t, i) }", {"t": random(1000, 4)})
    constants = (tensor("t", 1000, 4),)
    found = kernel("__myl_Gath_myl0_1", [tensor("i", 2, dtype="Int64")], [tensor("y", 2, 4)], "n", constants=constants)
    assert work(found, model).works[0].read == 16 + 32


NORM = "g (float[2,8,4,4] x, float[8] s, float[8] b) => (float y) { [n] y = InstanceNormalization (x, s, b) [r] z = Relu (y) }"


def test_rows_lie_apart_where_channels_lie_side_by_side_and_are_shared_where_blocks_are_counted() -> None:
    model = facts(NORM)
    linear = kernel("__myl_Inor_myl0_1", [tensor("x", 2, 8, 4, 4)], [tensor("y", 2, 8, 4, 4)], "n")
    assert work(linear, model).works[0].rows == Rows(16, 16, 4.0, True, None)
    last = kernel("__myl_Mean_myl0_1", [tensor("x", 2, 8, 4, 4, layout="NHWC")], [tensor("m", 2, 8, 1, 1)], "n")
    assert work(last, model).works[0].rows == Rows(16, 16, 4.0, False, None)
    counter = tensor("count", 64, dtype="Int32")
    shared = kernel(
        "__myl_Mean_myl0_1", [counter, tensor("x", 2, 8, 4, 4)], [tensor("part", 64, 8), tensor("m", 2, 8, 1, 1)], "n"
    )
    assert work(shared, model).works[0].rows == Rows(16, 16, 4.0, True, True)


def test_counters_set_to_zero_are_no_copy() -> None:
    zeros = kernel("__myl_Move_myl0_0", [], [tensor("count", 16, dtype="Int32")], "n")
    assert work(zeros, facts(NORM)).unasked is None
    copied = kernel("__myl_Move_myl0_0", [tensor("x", 2, 8, 4, 4)], [tensor("y", 2, 8, 4, 4)], "n")
    assert work(copied, facts(NORM)).unasked == "copy"


def test_inputs_of_a_model_have_sizes_where_those_of_its_network_are_used() -> None:
    layers = (NetworkLayer("n", "NORMALIZATION", (NetworkTensor("y", "FLOAT", (2, 8, 4, 4)),)),)
    model = parse(NORM.replace("float[2,8,4,4]", "float[N,8,H,4]"))
    assert model_facts(model, {"N": 2, "H": 4}, layers).shape("x") == (2, 8, 4, 4)
    assert model_facts(model, {"N": 2}, layers).shape("x") is None


def test_reductions_that_follow_each_other_in_one_kernel_are_counted() -> None:
    model = facts(NORM)
    whole = kernel("__myl_MeanSubMulMeanAddSqrtDivMulAdd_myl0_1", [tensor("x", 2, 8, 4, 4)], [tensor("y", 2, 8, 4, 4)], "n")
    assert work(whole, model).works[0].rows == Rows(16, 16, 4.0, True, None, reductions=2)
    behind = kernel("__myl_Relu_myl0_2", [tensor("y", 2, 8, 4, 4)], [tensor("z", 2, 8, 4, 4)], "n", "r")
    assert work(behind, model).works[0].rows is None


@pytest.mark.parametrize(
    ("name", "nodes", "expected"),
    [
        ("__myl_Tran_myl0_1", (), "transposition"),
        ("__myl_Move_myl0_1", ("r",), "copy"),
        ("__myl_CastMove_myl0_1", (), "cast"),
        ("__myl_ReluTran_myl0_1", (), None),
        ("__myl_Tran_myl0_1", ("t",), None),
        ("conv_myl0_1", (), None),
    ],
)
def test_what_nobody_asked_for(name: str, nodes: tuple[str, ...], expected: str | None) -> None:
    model = facts("g (float[4,6] x) => (float y) { [r] z = Relu (x) [t] y = Transpose (z) }")
    assert work(kernel(name, [tensor("x", 4, 6)], [tensor("z", 6, 4)], *nodes), model).unasked == expected


def test_kernels_of_the_second_profile_are_told_from_the_first() -> None:
    kernels = (
        kernel("__myl_Relu_myl0_1", [tensor("x", -1)], [tensor("y", -1)], "r"),
        kernel("__myl_Relu_myl1_1", [tensor("x [profile 1]", -1)], [tensor("y", -1)], "r [profile 1]"),
        kernel("__myl_Move_myl1_2", [tensor("y", -1)], [tensor("z", -1)]),
        UnreadKernel("odd"),
    )
    first, second = (of_profile(kernels, index) for index in (0, 1))
    assert first == (kernels[0], kernels[3])
    assert [one.type for one in second] == ["kgen", "kgen", "unread"]
    assert isinstance(second[0], Kernel)
    assert (second[0].onnx_nodes, second[0].inputs[0].name) == (("r",), "x")
    assert of_profile(kernels[:1], 1) == kernels[:1], "where nothing is marked, every profile launches all"
