"""When an engine of every optional change tells that none of them needs to be left out."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from tests.tensorrt.told import FOLD, MB, built, cost, kernel, moving, tells
from trtnorm_cli.cost.device import DEFAULT, DEVICES
from trtnorm_cli.records.engine_parts import CompiledLayer, UnreadKernel
from trtnorm_cli.tensorrt.kernel_list import NodeGraph
from trtnorm_cli.tensorrt.nothing_to_gain import _costing_nothing
from trtnorm_cli.tensorrt.part_search import WORTH

FIRST, SITE, NEXT = kernel("a", "x", "a", "kgen"), kernel("c r", "a", "r"), kernel("d", "r", "d")


def test_a_fold_between_kernels_that_work_leaves_nothing_to_gain() -> None:
    assert tells([FIRST, SITE, NEXT])
    assert tells([FIRST, SITE, kernel("d", "r", "d", "maxpool")])
    assert tells([FIRST, SITE, moving("d", "r", "d", "MoveMean")])
    assert tells([FIRST, SITE, moving("d", "r", "d", "Resi")])
    assert tells([FIRST, SITE, moving("d", "r", "d", "ReshGridMul")])
    assert tells([FIRST, SITE, moving("s", "r e", "s", "ResiAddRelu")]), "no convolution has an interpolation in it"
    assert tells([moving("", "x", "a", "Tran"), SITE, NEXT], {0: cost(unasked="transposition")}), "the input is as it is"
    to_result, unasked = moving("", "r", "t", "Tran"), {2: cost(unasked="transposition")}
    assert tells([FIRST, SITE, to_result], unasked), "and results are"
    assert not tells([FIRST, SITE, to_result, kernel("d", "t", "d")], unasked), "what is read inside need not be"
    assert not tells([FIRST, SITE, moving("s", "r", "t", "Add")]), "an activation may be elsewhere"
    assert not tells([FIRST, SITE, moving("d", "r", "d", "Mean"), moving("e", "r", "e", "SlicMaxr")]), "two may be one"


# Kernels that take a microsecond each.
@pytest.mark.parametrize(
    ("kernels", "costs", "loose"),
    [
        ([FIRST, SITE, moving("s", "r", "t", "Add")], {}, 1),
        ([FIRST, SITE, moving("", "r", "q", "Tran"), moving("", "q", "p", "Move"), kernel("d", "p", "d")], {}, 2),
        ([FIRST, moving("", "a", "q", "Move"), kernel("c r", "q", "r"), NEXT], {1: cost(unasked="copy")}, 1),
        ([FIRST, SITE, moving("d", "r", "d", "Mean"), moving("e", "r", "e", "SlicMaxr")], {}, 1),
    ],
    ids=["it activates", "two in a row move", "it is copied first", "two reduce"],
)
def test_what_takes_little_time_beside_a_fold_is_little_to_gain(kernels, costs, loose: int) -> None:
    """No more is to be gained than the time of the kernels that could be part of others."""
    assert not tells(kernels, costs, us=(loose - 0.01) / WORTH)
    assert tells(kernels, costs, us=(loose + 0.01) / WORTH)


@pytest.mark.parametrize(("activation", "nothing"), [("PRelu", True), ("Selu", True), ("HardSwish", False)])
def test_some_activations_are_in_no_convolutions_kernel(activation: str, nothing: bool) -> None:
    behind = "PRelu(c, w)" if activation == "PRelu" else f"{activation}(c)"
    graph = f"a = Relu(x) c = Conv(a, w) r = {behind} d = Conv(r, w) t = Concat <axis=1> (d, d)"
    kernels = [FIRST, kernel("c", "a", "c"), moving("r", "c", "r", "MulLtSele"), NEXT, kernel("t", "d", "t", "maxpool")]
    assert tells(kernels, graph=graph) is nothing


@pytest.mark.parametrize(("behind", "nothing"), [("Pad(c, p)", True), ("Sigmoid(c)", False)])
def test_a_padding_is_in_no_convolutions_kernel(behind: str, nothing: bool) -> None:
    """As Keras has one in front of a max-pooling: it is larger than what is convolved."""
    graph = f"a = Relu(x) c = Conv(a, w) r = {behind} d = MaxPool <kernel_shape=[3, 3]> (r)"
    kernels = [FIRST, kernel("c", "a", "c"), moving("r", "c", "r", "SlicReplConc"), kernel("d", "r", "d", "maxpool")]
    assert tells(kernels, graph=graph) is nothing


def sized(one: CompiledLayer, **shapes: tuple[int, ...]) -> Any:
    inputs, outputs = (
        tuple(replace(tensor, shape=shapes.get(tensor.name, tensor.shape)) for tensor in tensors)
        for tensors in (one.inputs, one.outputs)
    )
    return replace(one, inputs=inputs, outputs=outputs)


def test_what_applies_a_gate_is_in_no_convolutions_kernel() -> None:
    """The convolution gives one channel, by which many are multiplied."""
    graph = "a = Relu(x) c = Conv(a, w) r = Mul(c, x) d = Conv(r, w) t = Concat <axis=1> (d, d)"
    kernels = [FIRST, kernel("c", "a", "c"), moving("r", "c x", "r", "Mul"), NEXT, kernel("t", "d", "t", "maxpool")]
    assert not tells(kernels, graph=graph)
    gate = {"c": (1, 1, 8, 8)}
    assert tells([sized(one, **gate) for one in kernels], graph=graph)


def test_channels_are_filled_up_and_cut_for_a_product_in_every_engine() -> None:
    """TensorRT's ConvTranspose wants a multiple of eight. 96 networks of two have as many kernels without folds."""
    filled, cut = moving("c r", "a", "p", "Conc"), moving("c r", "q", "r", "Slic")
    product, behind = kernel("c r", "p", "q"), kernel("d", "r", "d")
    assert tells([FIRST, filled, product, cut, behind])
    assert tells([kernel("a", "x", "a"), filled, product, cut, behind]), "behind another product, too"
    assert not tells([FIRST, moving("c r", "a", "p", "ConcMul"), product, cut, behind]), "it computes"
    assert not tells([FIRST, filled, product, moving("c r s", "q", "r", "Slic"), behind]), "it is of another node, too"


def test_two_kernels_that_take_a_scale_of_a_product_and_reduce_something_larger_are_two() -> None:
    reducing = [moving("d", "r x", "d", "MulMean"), moving("e", "r x", "e", "AddMean")]
    assert not tells([FIRST, SITE, *reducing])
    assert tells([sized(one, r=(1, 4, 1, 1)) for one in (FIRST, SITE, *reducing)])


def test_what_stands_behind_products_and_moving_kernels_might_go_too() -> None:
    graph = "c = MatMul(x, w) p = Transpose(c) q = Transpose(c) k = Relu(p) l = Relu(q) d = Conv(k, w) t = Conv(l, w)"
    moved = [
        moving(to, read, to, name)
        for to, read, name in (("p", "c", "Tran"), ("q", "c", "Tran"), ("k", "p", "Relu"), ("l", "q", "Relu"))
    ]
    kernels = [kernel("c", "x", "c", "gemm"), *moved, kernel("d", "k", "d"), kernel("t", "l", "t")]
    into = scale("c", "MatMul Mul", {"c": "MatMul"}, in_passing=False)
    assert not tells(kernels, {}, into, us=3.99 / WORTH, graph=graph)
    assert tells(kernels, {}, into, us=4.01 / WORTH, graph=graph)


def test_a_product_may_write_less_without_what_takes_a_part_of_it() -> None:
    kernels, taken = [FIRST, SITE, moving("s", "r", "t", "SlicAdd")], {2: cost(read=3 * MB, written=MB)}
    assert not tells(kernels, taken, us=1.49 / WORTH)
    assert tells(kernels, taken, us=1.51 / WORTH)
    assert not tells(kernels, {2: cost(read=0)}, us=1e9), "it is not known what it moves"


def test_what_is_activated_and_added_to_a_part_of_another_tensor_is_so_in_either_engine() -> None:
    """Res2Net's blocks. In one of them the part is copied and the product adds, which takes as long."""
    graph = "a = Relu(x) p, q = Split <num_outputs=2> (a) c = Conv(p, w) r = Relu(c) s = Add(r, q) d = Conv(s, w)"
    parted = "a = Relu(x) p, q = Split <num_outputs=2> (a) c = Conv(p, w) s = Add(c, q) r = Relu(s) d = Conv(r, w)"
    whole = "a = Relu(x) q = Relu(a) c = Conv(a, w) r = Relu(c) s = Add(r, q) d = Conv(s, w)"

    def told(graph: str, part: str) -> bool:
        first, added = moving("p", "a", "p", "Slic"), moving(f"{part} s", "r a", "s", "SlicAdd")
        return tells([FIRST, first, kernel("c r", "p", "r"), added, kernel("d", "s", "d")], {}, FOLD, graph=graph)

    assert told(graph, "p")
    assert not told(parted, "p"), "the product may add what is not activated before"
    assert not told(whole, "q"), "no part is taken"


def test_what_is_not_understood_is_not_little() -> None:
    assert not tells([FIRST, moving("c r", "a", "r", "MulAddRelu"), NEXT], us=1e9), "the fold is in no product"
    assert not tells([FIRST, NEXT], us=1e9), "it is nowhere"


def test_changes_that_are_needed_or_give_the_same_kernels_do_not_count() -> None:
    needed = SimpleNamespace(rule="repair-channels", tensor="a", node="a", optional=False, in_passing=False, region=None)
    scale = SimpleNamespace(rule="batchnorm-to-scale-shift", tensor="a", node="a", optional=True, in_passing=False, region=None)
    assert tells([FIRST, SITE, NEXT], {}, FOLD, needed, scale)


@pytest.mark.parametrize(
    ("kernels", "costs"),
    [
        ([FIRST, SITE, moving("", "r", "q", "Tran"), kernel("d", "q", "d")], {}),
        ([FIRST, kernel("c", "a", "c"), moving("r", "c", "r", "Relu"), NEXT], {}),
        ([FIRST, SITE, moving("t", "r", "d", "ConcTran"), NEXT], {}),
        ([FIRST, moving("", "a", "q", "Move"), kernel("c r", "q", "r"), NEXT], {1: cost(unasked="copy")}),
        ([FIRST, moving("c r", "a", "r", "MulAddRelu"), NEXT], {}),
        ([FIRST, SITE, moving("c", "r", "q", "Add"), NEXT], {}),
        ([FIRST, kernel("c r", "a", "elsewhere"), NEXT], {}),
        ([FIRST, NEXT], {}),
        ([FIRST, SITE, NEXT, UnreadKernel("?")], {}),
    ],
    ids=[
        *(
            "a transposition behind it",
            "an activation behind it",
            "a transposition in a concatenation",
            "a copy in front of it",
        ),
        *("no convolution's kernel", "in two kernels", "read by nobody", "in no kernel", "a kernel that was not read"),
    ],
)
def test_something_may_be_gained_where_a_kernel_does_no_work_of_its_own(kernels, costs) -> None:
    assert not tells(kernels, costs)


def test_what_is_written_into_a_concatenation_is_read_by_nobody() -> None:
    into = SimpleNamespace(rule="fold-batchnorm-conv", tensor="d", node="n", optional=True, in_passing=False, region=None)
    assert tells([FIRST, SITE, kernel("d s", "r", "t.1")], {}, into)
    graph = "a = Relu(x) c = Conv(a, w) d = Conv(c, w) t = Concat <axis=1> (c, d)"
    kernels = [FIRST, kernel("c", "a", "t.1"), kernel("d", "t.0", "t.2")]
    assert tells(kernels, {}, FOLD, graph=graph), "a convolution reads it from there"
    assert not tells(kernels, {}, FOLD, graph=graph.replace("(c, d)", "(d, e) e = Relu(c)"))


def test_what_is_concatenated_alone_may_be_written_there_by_the_product() -> None:
    """In a network of 16 channels and an open batch the engine without folds takes 13 % less time so."""
    graph = "a = Relu(x) c = Conv(a, w) t = Concat <axis=1> (c, a)"
    copied = [FIRST, kernel("c", "a", "c"), kernel("t", "c a", "t", "runtime_function", "__myl_Conc_myl0_2")]
    assert not tells(copied, {}, FOLD, graph=graph)
    assert tells([*copied, kernel("d", "c", "d")], {}, FOLD, graph=graph), "others read it, too"


def test_what_is_concatenated_and_transposed_for_a_mean_may_be_so_in_the_kernel_of_that() -> None:
    graph = "a = Relu(x) c = Conv(a, w) d = Conv(c, w) s = Concat <axis=1> (c, d) t = GlobalAveragePool(s)"
    first = [FIRST, kernel("c", "a", "c"), kernel("d", "c", "d"), moving("s", "c d", "s", "ConcTran")]
    assert not tells([*first, moving("t", "s", "t", "Mean")], {}, FOLD, graph=graph)
    assert tells([*first, kernel("t", "s", "t")], {}, FOLD, graph=graph)
    joined = [*first[:3], moving("s", "c d", "s", "ReluConc"), moving("t", "s", "t", "Mean")]
    assert tells(joined, {}, FOLD, graph=graph), "a kernel that takes means reads it as it is"


def test_what_is_copied_to_or_from_a_part_of_a_concatenation_is_so_in_any_engine() -> None:
    """Kernels that pool read no parts: what YOLO pools three times and concatenates is copied in every engine."""
    graph = "a = Relu(x) c = Conv(a, w) m = MaxPool <kernel_shape=[1,1]> (c) s = Concat <axis=1> (c, m) t = Conv(s, v)"
    pooled, last = kernel("m", "copy", "m", "maxpool"), kernel("t", "s.1", "t")
    first, back, copies = [FIRST, kernel("c", "a", "s.1")], moving("", "m", "s.1", "Move"), {2: cost(unasked="copy")}
    assert tells([*first, moving("", "s.1", "copy", "Move"), pooled, back, last], copies, FOLD, graph=graph)
    assert not tells([FIRST, kernel("c", "a", "c"), moving("", "c", "s.1", "Move"), last], copies, FOLD, graph=graph)
    read_twice = [FIRST, kernel("c", "a", "c"), moving("", "c", "s.1", "Move"), kernel("m", "c", "m", "maxpool"), back, last]
    assert tells(read_twice, copies, FOLD, graph=graph)
    assert not tells(read_twice, {2: cost(unasked="transposition")}, FOLD, graph=graph)


@pytest.mark.parametrize("behind", ["t = MatMul(h, k)", "t = Softmax(h)", "n = Transpose(h) t = MatMul(n, k)"])
def test_the_scale_of_an_attention_is_made_there_where_convolutions_took_it(behind: str) -> None:
    """In front of a product or of its softmax; YOLO transposes what it scaled. Moves behind it do not matter."""
    graph = f"a = Relu(x) c = Conv(a, w) v = Transpose(c) h = Transpose(v) k = Transpose(v) {behind}"
    moves = [
        moving("v", "c", "v", "Tran"),
        moving("h", "v", "h", "Tran"),
        moving("k", "v", "k", "Tran"),
        kernel("t", "h k", "t"),
    ]
    kernels = [FIRST, kernel("c", "a", "c"), *moves]
    into = scale("h", "Conv Transpose Transpose Mul", {"c": "Conv"})
    assert tells(kernels, {}, into, graph=graph)
    assert not tells(kernels, {}, scale("h", "Conv Transpose Mul", {"c": "Conv"}, in_passing=False), graph=graph)
    assert not tells(kernels, {}, scale("h", "Conv Mul", {"c": "Conv"}), graph=graph), "it is a fold like others"
    assert not tells(kernels, {}, into, graph=graph.replace(behind, f"{behind} y = Relu(h)")), "others read it, too"


def test_only_changes_of_convolutions_are_understood() -> None:
    elsewhere = SimpleNamespace(
        rule="fold-scale-shift-upstream", tensor="r", node="n", optional=True, in_passing=False, region=None
    )
    unknown = SimpleNamespace(rule="fold-batchnorm-conv", tensor="gone", node="n", optional=True, in_passing=False, region=None)
    assert not tells([FIRST, SITE, NEXT], {}, FOLD, elsewhere)
    assert not tells([FIRST, SITE, NEXT], {}, FOLD, unknown)
    several = SimpleNamespace(
        rule="fold-batchnorm-downstream", tensor="c", node="n", optional=True, in_passing=False, region=None
    )
    last = kernel("e", "a", "e")
    assert tells([FIRST, SITE, NEXT, last, kernel("t", "e d", "t")], {}, several)
    apart = [FIRST, SITE, NEXT, last, moving("s", "e d", "s", "Add"), kernel("t", "s", "t")]
    assert tells(apart, {}, FOLD)
    assert not tells(apart, {}, several), "the other convolutions that it may be in are looked at, too"


def scale(
    tensor: str,
    before: str = "MatMul Mul",
    after: dict[str, str] | None = None,
    takes: str = "",
    rule: str = "fold-scale-shift-upstream",
    in_passing: bool = True,
    reads: tuple[str, ...] = ("x", "w"),
) -> Any:
    """A change to ``tensor``. The nodes ``after`` it give what they are named after; those before it give what it ``takes``."""
    region = SimpleNamespace(
        before=[SimpleNamespace(operator=operator, inputs=reads, outputs=takes.split()) for operator in before.split()],
        after=[SimpleNamespace(name=name, operator=one, outputs=[name]) for name, one in (after or {}).items()],
    )
    return SimpleNamespace(rule=rule, tensor=tensor, node="n", optional=True, in_passing=in_passing, region=region)


PRODUCTS = """p = MatMul(x, w) b = Add(p, w) s = Add(b, x) q = MatMul(s, w) z = Shape(q) m = MatMul(q, s) v = Transpose(m)
  n = Add(v, s) t = Concat <axis=1> (n, n)"""


@pytest.mark.parametrize(
    ("change", "kernels", "tells_it"),
    [
        (scale("b"), [kernel("p b", "x", "b", "gemm"), kernel("b s", "b x", "s", "kgen")], True),
        (scale("b"), [kernel("p b", "x", "b", "gemm"), kernel("s", "b x", "s", "kgen")], True),
        (scale("b"), [kernel("p b", "x", "b", "gemm"), moving("s", "b x", "s", "AddTran")], False),
        (scale("b"), [kernel("p b s", "x", "s", "gemm")], False),
        (scale("q"), [kernel("q", "s", "q", "gemm"), kernel("m", "q s", "m", "gemm")], True),
        (scale("t"), [kernel("n t", "v s", "t", "gemm")], True),
        (scale("m"), [kernel("m v n", "q s", "n", "kgen")], True),
        (scale("m"), [kernel("m", "q s", "m", "gemm"), kernel("v n", "m s", "n", "kgen")], True),
        (scale("m"), [kernel("m", "q s", "m", "gemm"), kernel("n", "m s", "n", "kgen")], False),
        (scale("s"), [kernel("s", "b x", "s", "kgen"), kernel("q", "s", "q", "gemm")], False),
        (scale("s", "Div Mul"), [kernel("s", "b x", "s", "kgen"), kernel("q", "s", "q", "gemm")], True),
        (scale("s", "Div Add Split Mul"), [kernel("s", "b x", "s", "kgen"), kernel("q", "s", "q", "gemm")], True),
        (scale("s", "Div Transpose Mul"), [kernel("s", "b x", "s", "kgen"), kernel("q", "s", "q", "gemm")], False),
        (scale("gone"), [kernel("p", "x", "p", "gemm")], False),
        (scale("b"), [kernel("b s", "p x", "s", "kgen"), UnreadKernel("?")], False),
    ],
    ids=[
        *(
            "in the kernel of the addition",
            "the addition has its own kernel",
            "which transposes",
            "in the product's kernel",
            "a factor of the product",
            "the result",
        ),
        *("transposed in the kernel of the addition", "transposed after its own kernel", "added after its own kernel"),
        *("read by two", "arithmetic among itself", "arithmetic with a part of it", "arithmetic that is transposed"),
        *("replaced again", "a kernel that was not read"),
    ],
)
def test_a_scale_is_made_in_passing(change: Any, kernels: list[CompiledLayer], tells_it: bool) -> None:
    assert tells(kernels, {}, change, graph=PRODUCTS) is tells_it
    assert not tells(kernels, {}, change, FOLD, graph=PRODUCTS), "a fold is asked for, too"


def test_a_scale_of_a_convolution_is_a_fold_like_others() -> None:
    """Its kernel may have more in it without the scale: where the next one does no work of its own, it is asked."""
    folded = scale("d", "Conv Mul", {"d": "Conv"})
    assert tells([FIRST, SITE, NEXT, kernel("s", "d e", "s"), kernel("t", "s", "t", "maxpool")], {}, folded)
    assert not tells([FIRST, SITE, NEXT, moving("s", "d e", "s", "MulAdd")], {}, folded)
    again = scale("gone", "Conv Mul", {"c": "Conv"})
    assert tells([FIRST, SITE, NEXT], {}, again), "another change went on from it, and its convolution is there"


def test_a_normalization_of_arithmetic_that_is_arithmetic_now_is_in_its_place() -> None:
    """A BatchNormalization without a shift behind a GELU, which ends in a multiplication, say."""
    kernels = [kernel("s", "b x", "s", "kgen"), kernel("q", "s", "q", "gemm")]
    folded = scale("s", "Mul BatchNormalization", {"s": "Mul"}, rule="fold-batchnorm-upstream", in_passing=False)
    assert tells(kernels, {}, folded, graph=PRODUCTS)
    behind = scale("s", "BatchNormalization Mul", {"s": "Mul"}, rule="fold-batchnorm-upstream", in_passing=False)
    assert not tells(kernels, {}, behind, graph=PRODUCTS), "it may have been in the kernel of a convolution"


HEADS = """p = MatMul(x, w) b = Add(p, w) v = Transpose(b) z = Transpose(b) m = MatMul(v, z) u = Transpose(m) o = Reshape(u, k)
  q = MatMul(o, w) s = Add(q, x) t = Concat <axis=1> (s, s)"""
PRODUCT = kernel("p b", "x", "b", "gemm")


def of_product(rule: str = "fold-batchnorm-upstream", tensor: str = "b", node: str = "p") -> Any:
    return scale(tensor, "MatMul BatchNormalization", {node: "MatMul"}, rule=rule, in_passing=False)


def test_a_product_between_kernels_that_work_leaves_nothing_to_gain_as_a_convolution_does() -> None:
    assert tells([PRODUCT, kernel("m", "b", "m", "gemm")], {}, of_product(), graph=HEADS)
    assert tells([PRODUCT, moving("v", "b", "v", "Tran"), kernel("m", "v b", "m", "gemm")], {}, of_product(), graph=HEADS)
    with_more = [PRODUCT, moving("v s", "b x", "s", "TranAdd"), kernel("t", "s", "t", "maxpool")]
    assert tells(with_more, {}, of_product(), graph=HEADS), "it transposes as the model asks, whatever else it does"
    assert not tells([PRODUCT, moving("s", "b", "s", "Mul"), kernel("m", "s", "m", "gemm")], {}, of_product(), graph=HEADS)
    other = of_product("activated-product-in-rows")
    assert not tells([PRODUCT, kernel("m", "b", "m", "gemm")], {}, other, graph=HEADS), "the product itself is another one"


def test_a_product_of_few_terms_is_arithmetic_in_a_kernel_that_is_as_good() -> None:
    """The heads of an attention are mixed, say: four numbers with four others."""
    written_out = moving("p b", "x", "b", "SlicSlicMulMulAddAdd")
    assert tells([written_out, kernel("m", "b", "m", "gemm")], {}, of_product(), graph=HEADS)
    assert not tells([written_out, moving("s", "b", "s", "Mul"), kernel("m", "s", "m", "gemm")], {}, of_product(), graph=HEADS)
    assert not tells([moving("p b", "x", "b", "MoveConc"), kernel("m", "b", "m", "gemm")], {}, of_product(), graph=HEADS)
    twice = [written_out, moving("p", "x", "z", "MulAdd"), kernel("m", "b z", "m", "gemm")]
    assert not tells(twice, {}, of_product(), graph=HEADS), "one of them may be another in the other engine"


def test_a_product_of_one_row_is_a_sum_in_a_kernel_that_is_as_good() -> None:
    """The class token of a vision transformer, say. What was folded is in that kernel, or in the one of a mean behind it."""
    summed = moving("p b", "x", "b", "ReshMulSum")
    assert tells([summed, kernel("m", "b", "m", "gemm")], {}, of_product(), graph=HEADS)
    assert tells([summed, moving("m", "b", "m", "MeanSubMulMean")], {}, of_product(), graph=HEADS)
    assert not tells([summed, moving("m", "b", "m", "MoveMean")], {}, of_product(), graph=HEADS), "it copies for the mean"
    assert not tells([moving("p b", "x", "b", "SubExpSum"), kernel("m", "b", "m", "gemm")], {}, of_product(), graph=HEADS)


def test_an_addition_behind_a_product_may_move_to_several_places() -> None:
    """It is a kernel of its own, in which LeViT splits its heads: without it each is one more."""
    apart = [PRODUCT, moving("v", "b", "v", "SlicTran"), moving("z", "b", "z", "SlicTran"), kernel("m", "v z", "m", "gemm")]
    assert not tells(apart, {}, of_product(), graph=HEADS)
    assert not tells(apart, {}, of_product("fold-scale-shift-upstream"), graph=HEADS)
    split = "a = Relu(x) c = Conv(a, w) v = Transpose(c) z = Transpose(c) t = Concat <axis=1> (v, z)"
    convolved = [FIRST, kernel("c", "a", "c"), moving("v", "c", "v", "Tran"), moving("z", "c", "z", "Tran")]
    assert tells(convolved, {}, FOLD, graph=split), "what follows a convolution is in its kernel"


def test_an_addition_in_the_kernel_of_a_product_has_the_scale_in_it() -> None:
    together, last = kernel("q s", "o x", "s", "gemm"), kernel("t", "s", "t", "maxpool")
    assert tells([PRODUCT, together, last], {}, scale("q"), graph=HEADS)
    assert not tells([PRODUCT, together, moving("b", "s", "t", "Mul")], {}, scale("q"), graph=HEADS)


def test_what_waits_for_another_kernel_is_in_none_before_that() -> None:
    """The subtraction of a pooling, say: it cannot be in the convolution's kernel, which comes before the pooling."""
    graph = "a = Relu(x) c = Conv(a, w) d = AveragePool <kernel_shape=[1,1]> (c) s = Sub(d, c) t = Concat <axis=1> (s, s)"
    site, pooled = kernel("c", "a", "c"), kernel("d", "c", "d", "avgpool")
    assert tells([FIRST, site, pooled, moving("s", "d c", "s", "Sub")], {}, FOLD, graph=graph)
    assert not tells([FIRST, site, pooled, moving("s", "a c", "s", "Sub")], {}, FOLD, graph=graph)


def test_a_kernel_that_concatenates_what_others_give_is_in_none_of_them() -> None:
    """It activates all of that, say, as a DenseNet does."""
    graph = "a = Relu(x) c = Conv(a, w) d = Conv(a, w) j = Concat <axis=1> (c, d) t = Relu(j)"
    parts = [FIRST, kernel("c", "a", "c"), kernel("d", "a", "d")]
    assert tells([*parts, moving("j t", "c d", "t", "ConcRelu")], {}, FOLD, graph=graph)
    assert not tells([*parts, moving("j t", "c", "t", "ConcRelu")], {}, FOLD, graph=graph)
    assert not tells([*parts, moving("t", "c d", "t", "Relu")], {}, FOLD, graph=graph)


def test_a_bias_may_be_added_in_the_kernel_behind_a_convolution() -> None:
    """ResNeSt's halves are added to each other there, and their mean taken; that kernel is said to come of the convolution."""
    graph = "a = Relu(x) c = Conv(a, w) r = Relu(c) m = ReduceMean <axes=[2, 3]> (r) d = Conv(m, w) t = Concat <axis=1> (d, d)"
    site, last = kernel("c", "a", "c"), kernel("d t", "m", "t")
    assert tells([FIRST, site, kernel("c r m", "c", "m", "kgen", "__myl_AddReluMean_myl0_1"), last], {}, FOLD, graph=graph)
    assert not tells([FIRST, site, moving("c r", "c", "m", "AddRelu"), last], {}, FOLD, graph=graph)
    assert not tells([FIRST, site, moving("c r", "a", "m", "AddRelu"), last], {}, FOLD, graph=graph), "it reads something else"


def test_what_waits_may_leave_a_transposition_to_the_kernel_before() -> None:
    graph = "a = Relu(x) c = Conv(a, w) d = AveragePool <kernel_shape=[1,1]> (c) s = Sub(d, c) t = Concat <axis=1> (s, s)"
    site, pooled = kernel("c", "a", "c"), kernel("d", "c", "d", "avgpool")
    assert not tells([FIRST, site, pooled, moving("s", "d c", "s", "SubTran")], {}, FOLD, graph=graph)
    assert tells([FIRST, site, pooled, moving("s", "d c", "s", "SubTranMean")], {}, FOLD, graph=graph)


def test_kernels_in_a_row_that_only_move_may_be_one_with_what_was_folded() -> None:
    """A convolution whose result is split into the heads of an attention, say."""
    graph = "a = Relu(x) c = Conv(a, w) v = Transpose(c) z = Transpose(v) d = Conv(z, w) t = Concat <axis=1> (d, d)"
    first, site = kernel("a", "x", "a", "kgen"), kernel("c", "a", "c")
    in_a_row = [first, site, moving("v", "c", "v", "Tran"), moving("z", "v", "z", "Tran"), kernel("d", "z", "d")]
    assert not tells(in_a_row, {}, FOLD, graph=graph)
    assert not tells([*in_a_row[:3], moving("", "v", "z", "Move"), kernel("d", "z", "d")], {}, FOLD, graph=graph)
    assert tells([*in_a_row[:3], kernel("z d", "v", "d")], {}, FOLD, graph=graph)


def test_a_kernel_that_only_moves_is_apart_from_one_that_waits_for_others() -> None:
    """The channels of a unit are shuffled, and half of them again with what is convolved of the other half."""
    graph = """a = Relu(x) c = Conv(a, w) v = Transpose(c) d = Conv(v, w) s = Concat <axis=1> (v, d) z = Transpose(s)
      e = Conv(z, w) t = Concat <axis=1> (e, e)"""
    convolved = [FIRST, kernel("c", "a", "c"), moving("v", "c", "v", "Tran"), kernel("d", "v", "d")]
    assert tells([*convolved, moving("s z", "v d", "z", "ConcTran"), kernel("e", "z", "e")], {}, FOLD, graph=graph)
    assert not tells([*convolved, moving("s z", "v", "z", "ConcTran"), kernel("e", "z", "e")], {}, FOLD, graph=graph)


def test_a_result_that_several_kernels_write_is_no_matter_of_its_order_alone() -> None:
    """Each writes its part of a concatenation: they may be one kernel. And all that read the whole read each part."""
    to_result, unasked = moving("", "r", "t", "Tran"), {2: cost(unasked="transposition")}
    assert tells([FIRST, SITE, to_result], unasked)
    assert not tells([FIRST, SITE, to_result, moving("s", "x", "t", "Add")], unasked)
    parts = [FIRST, kernel("c r", "a", "t"), kernel("d", "x", "t"), moving("s", "t", "s", "Mul")]
    assert not tells(parts), "the multiplication reads what the convolution wrote"
    assert tells([*parts[:3], kernel("s", "t", "s", "maxpool")])


def test_a_transposition_that_the_model_asks_for_is_there_without_the_fold() -> None:
    """No kernel is said to come from it where the builder has worked on it. What moves is a kernel without nodes."""
    moved = {3: cost(unasked="transposition")}
    kernels = [PRODUCT, kernel("v", "b", "v", "gemm"), kernel("m", "v", "m", "gemm"), moving("", "m", "o", "Tran")]
    ends = [kernel("q s", "o x", "s", "gemm"), kernel("t", "s", "t", "maxpool")]
    asked = scale("q", "MatMul Mul", {"q": "MatMul"}, in_passing=False)
    assert tells([*kernels, *ends], moved, asked, graph=HEADS)
    listed = [*kernels[:2], kernel("m u", "v", "m", "gemm"), kernels[3]]
    assert not tells([*listed, *ends], moved, asked, graph=HEADS), "it is in a kernel already"


def test_a_change_that_another_one_went_on_from_is_asked_about_there() -> None:
    first = scale("gone", "Conv Conv Add", {"gone": "Conv"}, rule="merge-parallel-convolutions", in_passing=False)
    then = scale("c", "Conv Add", {"c": "Conv"}, "gone", "merge-parallel-convolutions", in_passing=False)
    assert tells([FIRST, SITE, NEXT], {}, first, then)
    assert not tells([FIRST, SITE, moving("s", "r", "t", "Add")], {}, first, then)
    assert not tells([FIRST, SITE, NEXT], {}, first, FOLD), "no change says what became of it"
    several = scale("c", "Conv Conv Add", {"gone": "Conv", "c": "Conv"}, rule=then.rule, in_passing=False)
    assert tells([FIRST, SITE, NEXT], {}, several, then), "nor is what was merged since"


def test_what_is_made_in_passing_is_asked_about_where_it_took_in_a_fold() -> None:
    """TinyViT folds a bias into the product of its heads, and then the scale of the attention, as if in passing."""
    heads = [PRODUCT, moving("v", "b", "v", "SlicTran"), moving("z", "b", "z", "SlicTran"), kernel("m", "v z", "m", "gemm")]
    first = scale("gone", "MatMul Add", {"p": "MatMul"}, in_passing=False)
    then = scale("v", "MatMul Transpose Mul", {"p": "MatMul"}, "gone")
    assert tells(heads, {}, then, graph=HEADS)
    assert not tells(heads, {}, first, then, graph=HEADS)
    between, last = scale("lost", "Mul", {"p": "MatMul"}, "gone"), scale("v", "Mul", {}, "lost")
    assert not tells(heads, {}, first, between, last, graph=HEADS)
    assert tells(heads, {}, scale("gone", "Add Mul", {"p": "MatMul"}), then, graph=HEADS)


def test_many_changes_of_one_tensor_are_asked_about_once() -> None:
    """A fold and a merge may change a tensor one after the other, and a third change take both in."""
    kernels = [kernel("p", "x", "b", "gemm"), kernel("b s", "b x", "s", "kgen")]
    chain = [scale(f"t{at}", "Mul Mul", {}, f"t{at - 1}", in_passing=False) for at in range(1, 3000)]
    costly = scale("t0", "MatMul Add", {"p": "MatMul"}, in_passing=False)
    for first, free in ((costly, False), (scale("t0", "MatMul Add", {"p": "MatMul"}), True)):
        twice = [first, scale("t0", "Mul Add", {}, "t0"), *chain, scale("b", "MatMul Mul", {"p": "MatMul"}, "t2999 t0")]
        listed = built(kernels, {}, *twice, graph=PRODUCTS).rewriting
        assert (id(twice[-1]) in _costing_nothing(twice, NodeGraph.of(listed.model))) is free


@pytest.mark.parametrize(("in_passing", "nothing"), [(True, True), (False, False)])
def test_a_bias_of_zeros_is_asked_about_where_it_may_cost(in_passing: bool, nothing: bool) -> None:
    apart = [PRODUCT, moving("v", "b", "v", "SlicTran"), moving("z", "b", "z", "SlicTran"), kernel("m", "v z", "m", "gemm")]
    dropped = scale("b", "MatMul Add", {"p": "MatMul"}, rule="drop-zero-bias", in_passing=in_passing)
    assert tells(apart, {}, dropped, graph=HEADS) is nothing


@pytest.mark.parametrize("operator", ["Conv", "ConvTranspose"])
def test_the_first_bias_of_a_convolution_is_one_without_the_change(operator: str) -> None:
    """TensorRT gives the same engine for both, as PaddleOCR's networks show, which add every bias."""
    loose, made = [FIRST, SITE, moving("s", "r", "t", "Add")], {"c": operator}
    assert tells(loose, {}, scale("c", f"{operator} Add", made))
    assert not tells(loose, {}, scale("c", f"{operator} Add", made, reads=("x", "w", "b"))), "it has a bias"
    assert not tells(loose, {}, scale("c", f"{operator} Mul", made))
    assert not tells(loose, {}, scale("c", f"{operator} Add Mul", made))
    for in_passing in (False, True):
        fold = scale("gone", f"{operator} Mul", made, in_passing=in_passing)
        assert not tells(loose, {}, fold, scale("c", f"{operator} Add", made, "gone")), "it took in a fold"


def test_the_convolutions_are_looked_at_that_a_change_went_into() -> None:
    into = scale("c", "BatchNormalization Conv", {"c": "Conv"}, rule="fold-batchnorm-downstream", in_passing=False)
    apart = [FIRST, SITE, NEXT, kernel("e", "a", "e"), moving("s", "e d", "s", "Add"), kernel("t", "s", "t")]
    assert tells(apart, {}, into)
    other = scale("e", "BatchNormalization Conv", {"e": "Conv"}, rule="fold-batchnorm-downstream", in_passing=False)
    assert not tells(apart, {}, into, other)


def test_two_kernels_that_reduce_are_not_one_where_the_second_waits_for_the_first() -> None:
    """MaxViT normalizes what a convolution gives, and once more what an attention to that adds to it."""
    graph = """a = Relu(x) c = Conv(a, w) m = ReduceMean <axes=[2, 3]> (c) d = Conv(m, w) n = Add(c, d)
      r = ReduceMean <axes=[2, 3]> (n) t = Concat <axis=1> (r, r)"""
    parts = [FIRST, kernel("c", "a", "c"), kernel("m", "c", "m", "kgen", "__myl_Mean_myl0_1"), kernel("d", "m", "d")]
    behind = "n r", "__myl_AddMean_myl0_1"
    assert tells([*parts, kernel(behind[0], "c d", "t", "kgen", behind[1])], {}, FOLD, graph=graph)
    assert not tells([*parts, kernel(behind[0], "c", "t", "kgen", behind[1])], {}, FOLD, graph=graph)


def test_what_is_moved_in_no_kernel_is_made_by_what_it_moves() -> None:
    graph = """p = MatMul(x, w) b = Add(p, w) v = Transpose(b) z = Reshape(v, k) n = Add(z, x) t = Concat <axis=1> (n, n)"""
    moved = [kernel("p", "x", "p", "gemm"), kernel("b n", "p x", "n", "kgen"), kernel("t", "n", "t", "maxpool")]
    assert tells(moved, {}, scale("z"), graph=graph)
    assert not tells([kernel("p", "x", "p", "gemm"), moving("n", "p x", "n", "AddTran")], {}, scale("z"), graph=graph)


def test_an_addition_in_the_kernel_that_waits_for_memory_may_gain() -> None:
    """The other one computes for so long that reading another operand takes it no longer."""
    into = SimpleNamespace(rule="fold-batchnorm-conv", tensor="e", node="n", optional=True, in_passing=False, region=None)
    kernels = [FIRST, SITE, NEXT, kernel("e s", "a d", "s"), kernel("t", "s", "t", "maxpool")]
    waiting, busy = cost(3 * MB, MB), cost(MB, MB, operations=10**10)
    device = DEVICES[DEFAULT]
    gain = 1e6 * MB / (device.bandwidth * 0.84)
    for share, nothing in ((0.9, True), (1.1, False)):
        assert tells(kernels, {2: busy, 3: waiting}, into, us=gain / (share * WORTH)) is nothing
    assert tells(kernels, {2: waiting, 3: busy}, into, us=1.0), "it would cost more there"
    assert tells(kernels, {2: cost(), 3: waiting}, into, us=1.0), "both wait for memory"


def test_an_addition_of_a_constant_is_in_no_other_kernel() -> None:
    """Three are added in an activation that is written out."""
    graph = "a = Relu(x) c = Conv(a, w) r = Relu(c) d = Conv(r, w) s = Add(d, w) t = Concat <axis=1> (s, s)"
    kernels = [FIRST, SITE, kernel("d s", "r", "s"), kernel("t", "s", "t", "maxpool")]
    assert tells(kernels, {1: cost(MB, MB, operations=10**10), 2: cost(3 * MB, MB)}, us=1.0, graph=graph)


def test_an_addition_of_what_is_convolved_is_in_no_other_kernel() -> None:
    """ConvMixer adds to what a convolution gives what it was made of."""
    graph = "a = Relu(x) c = Conv(a, w) r = Relu(c) d = Conv(r, w) s = Add(d, r) t = Concat <axis=1> (s, s)"
    waiting, busy, last = cost(3 * MB, MB), cost(MB, MB, operations=10**10), kernel("t", "s", "t", "maxpool")

    def stays(reads: str) -> bool:
        kernels = [FIRST, kernel("c r", "a", "r"), kernel("d s", reads, "s"), last]
        return tells(kernels, {1: busy, 2: waiting}, FOLD, us=1.0, graph=graph)

    assert stays("r r")
    assert not stays("a r")
