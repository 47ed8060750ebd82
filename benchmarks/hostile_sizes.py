"""Tensors that claim to be, or would become, larger than any memory."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import numpy as np
import onnx
from onnx import NodeProto, TensorProto, helper

from benchmarks.hostile_cases import SHAPE, Case, built, edited, held, node

FAMILY = "sizes"
UNFOLDING = "constants that unfold"
make = helper.make_node
_HUGE = 1 << 33


def _value(name: str, kind: int = TensorProto.FLOAT, shape: Sequence[int | str] | None = None) -> onnx.ValueInfoProto:
    return helper.make_tensor_value_info(name, kind, shape)


def _ints(*values: int) -> np.ndarray:
    return np.array(values, np.int64)


def _int(value: int) -> np.ndarray:
    return np.array(value, np.int64)


def _floats(*values: float) -> np.ndarray:
    return np.array(values, np.float32)


def _then_added(*nodes: NodeProto, kind: int = TensorProto.FLOAT) -> list[NodeProto]:
    """``nodes``, and those that add the largest element of k to x."""
    return [
        *nodes,
        make("ReduceMax", ["k"], ["top"], keepdims=0),
        make("Cast", ["top"], ["f"], to=TensorProto.FLOAT),
        make("Add", ["x", "f"], ["y"]),
    ]


def _unfolding(name: str, nodes: Sequence[NodeProto], is_sound: bool = False, opset: int = 17, **weights: np.ndarray) -> Case:
    return Case(UNFOLDING, name, built(lambda: _then_added(*nodes), lambda: weights, opset=opset), is_sound)


def _claims(name: str, *dims: int, kind: int = TensorProto.FLOAT) -> Case:
    def edit(model: onnx.ModelProto) -> None:
        tensor = held(model, "gamma")
        del tensor.dims[:]
        tensor.dims.extend(dims)
        tensor.data_type = kind

    return Case(FAMILY, name, edited(edit))


def _input(name: str, shape: Sequence[int | str] | None, operator: str = "Relu", kind: int = TensorProto.FLOAT) -> Case:
    return Case(FAMILY, name, built(lambda: [make(operator, ["x"], ["y"])], inputs=[_value("x", kind, shape)]))


def _attribute(name: str, operator: str, attribute: str, value: object) -> Case:
    def edit(model: onnx.ModelProto) -> None:
        target = node(model, operator)
        kept = [a for a in target.attribute if a.name != attribute]
        del target.attribute[:]
        target.attribute.extend([*kept, helper.make_attribute(attribute, value)])

    return Case(FAMILY, name, edited(edit))


def _pool(name: str, **attributes: object) -> Case:
    return Case(FAMILY, name, built(lambda: [make("AveragePool", ["x"], ["y"], **attributes)]))


def _on_x(
    name: str, nodes: Callable[[], Sequence[NodeProto]], is_sound: bool = False, opset: int = 17, **weights: np.ndarray
) -> Case:
    return Case(FAMILY, name, built(nodes, lambda: weights, opset=opset), is_sound)


def _unfolding_cases() -> Iterator[Case]:
    zero, one = _int(0), _int(1)
    yield _unfolding("Range of 2^33", [make("Range", ["a", "b", "c"], ["k"])], a=zero, b=_int(_HUGE), c=one)
    yield _unfolding("Range of 2^62", [make("Range", ["a", "b", "c"], ["k"])], a=zero, b=_int(1 << 62), c=one)
    yield _unfolding(
        "Range of floats with a tiny step",
        [make("Range", ["a", "b", "c"], ["k"])],
        a=np.float32(0),
        b=np.float32(1),
        c=np.float32(1e-38),
    )
    yield _unfolding("Range with step 0", [make("Range", ["a", "b", "c"], ["k"])], a=zero, b=one, c=zero)
    yield _unfolding(
        "Range to NaN", [make("Range", ["a", "b", "c"], ["k"])], a=np.float32(0), b=np.float32("nan"), c=np.float32(1)
    )
    yield _unfolding("Range of 1000", [make("Range", ["a", "b", "c"], ["k"])], is_sound=True, a=zero, b=_int(1000), c=one)
    computed = [make("Mul", ["n", "n"], ["b"]), make("Range", ["a", "b", "c"], ["k"])]
    yield _unfolding("Range to a computed 2^34", computed, a=zero, n=_int(1 << 17), c=one)
    behind = [make("Identity", ["n"], ["b"]), make("Range", ["a", "b", "c"], ["r"]), make("Mul", ["r", "r"], ["k"])]
    yield _unfolding("Range of 2^33 behind an Identity, squared", behind, a=zero, n=_int(_HUGE), c=one)
    yield _unfolding(
        "Range of 2^27 in Range of 2^27",
        [make("Range", ["a", "b", "c"], ["r"]), make("Reshape", ["r", "s"], ["q"]), make("Mul", ["r", "q"], ["k"])],
        a=zero,
        b=_int(1 << 27),
        c=one,
        s=_ints(-1, 1),
    )
    yield _unfolding("Expand to 2^33", [make("Expand", ["v", "s"], ["k"])], v=_floats(1), s=_ints(_HUGE))
    yield _unfolding("Expand to 2^17 × 2^17", [make("Expand", ["v", "s"], ["k"])], v=_floats(1), s=_ints(1 << 17, 1 << 17))
    yield _unfolding("ConstantOfShape of 2^33", [make("ConstantOfShape", ["s"], ["k"])], s=_ints(_HUGE))
    yield _unfolding("ConstantOfShape of 2^40 × 2^40", [make("ConstantOfShape", ["s"], ["k"])], s=_ints(1 << 40, 1 << 40))
    yield _unfolding("ConstantOfShape of a negative size", [make("ConstantOfShape", ["s"], ["k"])], s=_ints(-5))
    yield _unfolding(
        "ConstantOfShape of 2^33 int64",
        [make("ConstantOfShape", ["s"], ["k"], value=helper.make_tensor("", TensorProto.INT64, [1], [3]))],
        s=_ints(_HUGE),
    )
    yield _unfolding("ConstantOfShape of 2^28", [make("ConstantOfShape", ["s"], ["k"])], s=_ints(1 << 28))
    yield _unfolding("Tile to 2^33", [make("Tile", ["v", "r"], ["k"])], v=_floats(1, 2), r=_ints(1 << 32))
    yield _unfolding(
        "Tile of 1000 × 1000 by 1000 × 1000",
        [make("Tile", ["v", "r"], ["k"])],
        v=np.ones((1000, 1000), np.float32),
        r=_ints(1000, 1000),
    )
    yield _unfolding(
        "Resize by 2^15 × 2^15",
        [make("Resize", ["v", "", "s"], ["k"])],
        v=np.ones((1, 1, 8, 8), np.float32),
        s=_floats(1, 1, 1 << 15, 1 << 15),
    )
    yield _unfolding(
        "Resize by infinity",
        [make("Resize", ["v", "", "s"], ["k"])],
        v=np.ones((1, 1, 8, 8), np.float32),
        s=_floats(1, 1, np.inf, 1),
    )
    yield _unfolding(
        "Resize to 2^33",
        [make("Resize", ["v", "", "", "s"], ["k"])],
        v=np.ones((1, 1, 8, 8), np.float32),
        s=_ints(1, 1, 8, 1 << 30),
    )
    yield _unfolding(
        "Upsample by 2^16 × 2^16",
        [make("Upsample", ["v", "s"], ["k"])],
        opset=9,
        v=np.ones((1, 1, 2, 2), np.float32),
        s=_floats(1, 1, 1 << 16, 1 << 16),
    )
    yield _unfolding("Pad by 2^33", [make("Pad", ["v", "p"], ["k"])], v=_floats(1), p=_ints(_HUGE, 0))
    yield _unfolding(
        "OneHot of depth 2^33", [make("OneHot", ["i", "d", "v"], ["k"])], i=_ints(3), d=_int(_HUGE), v=_floats(0, 1)
    )
    yield _unfolding(
        "EyeLike of 2^17 × 2^17",
        [make("ConstantOfShape", ["s"], ["z"]), make("EyeLike", ["z"], ["k"])],
        s=_ints(1 << 17, 1 << 17),
    )
    yield _unfolding(
        "a column by a row of 2^17 each",
        [make("Mul", ["p", "q"], ["k"])],
        p=np.ones((1 << 17, 1), np.float32),
        q=np.ones((1, 1 << 17), np.float32),
    )
    yield _unfolding(
        "a column times a row of 2^17 each",
        [make("MatMul", ["p", "q"], ["k"])],
        p=np.ones((1 << 17, 1), np.float32),
        q=np.ones((1, 1 << 17), np.float32),
    )
    yield _unfolding(
        "an outer product by Einsum",
        [make("Einsum", ["p", "q", "p"], ["k"], equation="i,j,k->ijk")],
        p=np.ones(4000, np.float32),
        q=np.ones(4000, np.float32),
    )
    yield _unfolding(
        "a condition that broadcasts to 2^34",
        [make("Where", ["b", "p", "q"], ["k"])],
        b=np.ones((1, 1), bool),
        p=np.ones((1 << 17, 1), np.float32),
        q=np.ones((1, 1 << 17), np.float32),
    )
    yield _unfolding(
        "Gather with 10^6 indices of rows of 10^5",
        [make("Gather", ["v", "i"], ["k"])],
        v=np.ones((2, 100_000), np.float32),
        i=np.zeros(1_000_000, np.int64),
    )
    doubled = [make("Concat", [f"k{i}"] * 2, [f"k{i + 1}" if i < 39 else "k"], axis=0) for i in range(40)]
    yield _unfolding("a constant joined to itself 40 times", doubled, k0=_floats(1))
    tenfold = [make("Tile", [f"k{i}", "r"], [f"k{i + 1}" if i < 11 else "k"]) for i in range(12)]
    yield _unfolding("a constant tiled by ten, 12 times", tenfold, k0=_floats(1), r=_ints(10))
    yield _unfolding("RandomNormal of 2^33", [make("RandomNormal", [], ["k"], shape=[_HUGE])])
    yield _unfolding(
        "NonZero of ConstantOfShape of 2^30",
        [
            make("ConstantOfShape", ["s"], ["z"], value=helper.make_tensor("", TensorProto.FLOAT, [1], [1])),
            make("NonZero", ["z"], ["k"]),
        ],
        s=_ints(1 << 30),
    )
    yield _unfolding("a window of 2^33", [make("HannWindow", ["n"], ["k"])], n=_int(_HUGE))
    yield _unfolding(
        "a mask of 2^20 × 2^20", [make("ConstantOfShape", ["s"], ["z"]), make("Trilu", ["z"], ["k"])], s=_ints(1 << 20, 1 << 20)
    )
    yield _unfolding(
        "a Split into 2^20 parts",
        [make("SplitToSequence", ["v"], ["q"], keepdims=0), make("ConcatFromSequence", ["q"], ["k"], axis=0, new_axis=1)],
        v=np.ones(1 << 20, np.float32),
    )
    yield _unfolding(
        "a DFT of 2^33",
        [make("ConstantOfShape", ["s"], ["z"]), make("DFT", ["z", "n"], ["k"], axis=1)],
        s=_ints(1, 4, 1),
        n=_int(_HUGE),
    )
    yield _unfolding(
        "Col2Im of 2^17 × 2^17",
        [make("Col2Im", ["v", "s", "b"], ["k"])],
        opset=18,
        v=np.ones((1, 1, 4), np.float32),
        s=_ints(1 << 17, 1 << 17),
        b=_ints(1, 1),
    )
    yield _unfolding(
        "a convolution padded by 2^31",
        [make("Conv", ["v", "w"], ["k"], pads=[1 << 31, 0, 1 << 31, 0])],
        v=np.ones((1, 1, 8, 8), np.float32),
        w=np.ones((1, 1, 3, 3), np.float32),
    )
    yield _unfolding("a power of a power of integers", [make("Pow", ["v", "e"], ["k"])], v=_floats(9, 9), e=_ints(1 << 62, 3))
    yield _unfolding("a division of integers by zero", [make("Div", ["v", "e"], ["k"])], v=_ints(1, 2), e=_ints(0, 0))
    yield _unfolding(
        "the least integer divided by minus one", [make("Div", ["v", "e"], ["k"])], v=_ints(-(1 << 63)), e=_ints(-1)
    )
    yield _unfolding("a remainder by zero", [make("Mod", ["v", "e"], ["k"])], v=_ints(1, 2), e=_ints(0, 0))
    yield _unfolding(
        "a shift by 200 bits",
        [make("BitShift", ["v", "e"], ["k"], direction="LEFT")],
        v=np.array([1], np.uint64),
        e=np.array([200], np.uint64),
    )
    yield _unfolding("Gather outside its data", [make("Gather", ["v", "i"], ["k"])], v=_floats(1, 2), i=_ints(1 << 40))
    yield _unfolding(
        "a ScatterND outside its data",
        [make("ScatterND", ["v", "i", "u"], ["k"])],
        v=_floats(1, 2),
        i=np.array([[1 << 40]]),
        u=_floats(5),
    )
    yield _unfolding(
        "a Slice by the least integer",
        [make("Slice", ["v", "a", "b", "c", "d"], ["k"])],
        v=_floats(1, 2),
        a=_ints(-(1 << 63)),
        b=_ints((1 << 63) - 1),
        c=_ints(0),
        d=_ints(-(1 << 63)),
    )


def cases() -> Iterator[Case]:
    """All of these two families."""
    yield from _unfolding_cases()
    yield _claims("a weight that claims 2^40 elements", 1 << 40)
    yield _claims("a weight that claims 2^62 × 2^62", 1 << 62, 1 << 62)
    yield _claims("a weight that claims 2^32 × 2^32 × 4", 1 << 32, 1 << 32, 4)
    yield _claims("a weight of a negative size", -4)
    yield _claims("a weight of -2 × -2", -2, -2)
    yield _claims("a weight of size 0", 0)
    yield _claims("a weight of 100 axes", *([1] * 99), 4)
    yield _claims("a weight of 10^5 axes", *([1] * 100_000), 4)
    yield _claims("a weight of 2^40 × 0", 1 << 40, 0)
    yield _claims("a weight of type 999", 4, kind=999)
    yield _claims("a weight of type 0", 4, kind=0)
    yield _claims("a weight of 4-bit integers", 4, kind=TensorProto.INT4)
    yield _claims("a weight of texts", 4, kind=TensorProto.STRING)
    yield _input("an input of 100 axes", [1] * 100)
    yield _input("an input of 10^4 axes", [1] * 10_000)
    yield _input("an input of 2^40 elements", [1 << 40])
    yield _input("an input of 2^62 × 2^62", [1 << 62, 1 << 62])
    yield _input("an input of size 0", [1, 0, 6, 6])
    yield _input("an input of size -5", [-5, 4])
    yield _input("an input of open axes without names", [None, None, None, None])  # type: ignore[list-item]
    yield _input("an input of unknown rank", None)
    yield _input("an input of type 999", [1, 4], kind=999)
    yield _input("an input of type 0", [1, 4], kind=0)
    yield _input("an input of complex numbers", [1, 4], kind=TensorProto.COMPLEX128)
    yield _input("an input of texts", [1, 4], operator="Identity", kind=TensorProto.STRING)
    yield _input("an axis named like a formula", ["N*(H-1)//2**9**9**9", "__import__('os').system('touch trtnorm-hostile')"])
    yield _input("an axis named by 5000 brackets", ["(" * 5000, 4])
    yield _input("an axis named by a markup", ["[red]", "[/]", "[link=http://127.0.0.1]x", "\x1b[31m"])
    yield _attribute("padding of 2^40", "Conv", "pads", [1 << 40] * 4)
    yield _attribute("negative padding", "Conv", "pads", [-(1 << 40)] * 4)
    yield _attribute("strides of 0", "Conv", "strides", [0, 0])
    yield _attribute("dilations of 2^40", "Conv", "dilations", [1 << 40, 1 << 40])
    yield _attribute("no groups", "Conv", "group", 0)
    yield _attribute("2^31 groups", "Conv", "group", 1 << 31)
    yield _attribute("a negative number of groups", "Conv", "group", -1)
    yield _attribute("a kernel of 10^6 axes", "Conv", "kernel_shape", [3] * 1_000_000)
    yield _pool("a window of 2^31", kernel_shape=[1 << 31, 1 << 31])
    yield _pool("a window of 0", kernel_shape=[0, 0])
    yield _pool("a window of -1", kernel_shape=[-1, -1])
    yield _on_x("Expand of the input to 2^40", lambda: [make("Expand", ["x", "s"], ["y"])], s=_ints(1 << 40, 4, 6, 6))
    yield _on_x("Tile of the input by 2^40", lambda: [make("Tile", ["x", "s"], ["y"])], s=_ints(1 << 40, 1, 1, 1))
    yield _on_x("Pad of the input by 2^40", lambda: [make("Pad", ["x", "p"], ["y"])], p=_ints(1 << 40, 0, 0, 0, 0, 0, 0, 0))
    yield _on_x(
        "Resize of the input by 2^20", lambda: [make("Resize", ["x", "", "s"], ["y"])], s=_floats(1, 1, 1 << 20, 1 << 20)
    )
    yield _on_x("Reshape to two open sizes", lambda: [make("Reshape", ["x", "s"], ["y"])], s=_ints(-1, -1))
    yield _on_x("Reshape to 2^62 × 4", lambda: [make("Reshape", ["x", "s"], ["y"])], s=_ints(1 << 62, 4))
    yield _on_x("Transpose by a permutation that is none", lambda: [make("Transpose", ["x"], ["y"], perm=[0, 0, 9, -1])])
    yield _on_x("an axis of 2^62", lambda: [make("Softmax", ["x"], ["y"], axis=1 << 62)])
    yield _on_x("ReduceMean over axis 2^62", lambda: [make("ReduceMean", ["x"], ["y"], axes=[1 << 62])])
    yield _on_x("Unsqueeze of 60 axes", lambda: [make("Unsqueeze", ["x", "a"], ["y"])], a=np.arange(60))
    yield _on_x(
        "Unsqueeze 3000 times",
        lambda: [make("Unsqueeze", [f"t{i}" if i else "x", "a"], [f"t{i + 1}" if i < 2999 else "y"]) for i in range(3000)],
        a=_ints(0),
    )
    yield _on_x("TopK of 2^62", lambda: [make("TopK", ["x", "n"], ["y", "i"])], n=_ints(1 << 62))
    yield _on_x("Split into 10^5 parts", lambda: [make("Split", ["x"], ["y", *(f"u{i}" for i in range(100_000))], axis=0)])
    yield _on_x("Einsum of a text that is no equation", lambda: [make("Einsum", ["x"], ["y"], equation="->...->,,," * 100)])
    yield _on_x("an LRN of size 2^31", lambda: [make("LRN", ["x"], ["y"], size=1 << 31)])
    yield _on_x(
        "a GroupNormalization of 0 groups",
        lambda: [make("GroupNormalization", ["x", "g", "g"], ["y"], num_groups=0)],
        opset=21,
        g=np.ones(4, np.float32),
    )
    yield _on_x(
        "a GroupNormalization of -2^31 groups",
        lambda: [make("GroupNormalization", ["x", "g", "g"], ["y"], num_groups=-(1 << 31))],
        opset=21,
        g=np.ones(4, np.float32),
    )
    yield _on_x(
        "a LayerNormalization over axis -2^31",
        lambda: [make("LayerNormalization", ["x", "g"], ["y"], axis=-(1 << 31))],
        g=np.ones(4, np.float32),
    )
    yield _on_x(
        "an LSTM of hidden size 2^40",
        lambda: [make("LSTM", ["x", "g", "g"], ["y"], hidden_size=1 << 40)],
        g=np.ones((1, 4, 4), np.float32),
    )


assert SHAPE
