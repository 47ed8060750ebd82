"""One model for each form of an operator, as text with its constants."""

from __future__ import annotations

import re

import numpy as np
import onnx

from tests.models import parse, random
from tests.shapes.runs import ints

IMAGE = "float[N, 4, H, W] x"
K = {
    "roots": np.sqrt(np.arange(2, 40)).astype(np.float32), "boxes": np.float32([[0, 0, 2, 2], [1, 0, 3, 1]]),
    "first": ints(0, 0), "at0": np.array(0), "at1": np.array(1), "at2": np.array(2), "at3": np.array(3), "atm1": np.array(-1),
    "eight": np.array(8), "i0": ints(0), "i1": ints(1), "i2": ints(2), "i3": ints(3), "m1": ints(-1), "m2": ints(-2),
    "m3": ints(-3), "end": ints(2**63 - 1), "begin": ints(-(2**63) + 1), "parts13": ints(1, 3), "i12": ints(1, 2),
    "i23": ints(2, 3), "i0m1": ints(0, -1), "i03": ints(0, 3), "i31": ints(3, 1), "half": np.array(0.5, np.float32),
    "f2": np.array(2, np.float32), "f3": np.array(3, np.float32), "f0": np.array(0, np.float32),
    "f1": np.array(1, np.float32), "lo": np.array(3), "hi": np.array(6), "seven": np.array(7), "col": ints(1, 2, 3, 4),
    "four1": ints(4), "grid": np.int64([[0, 3], [1, -2]]), "yes": np.array([True, False, True, False]),
    "w2": random(6, 2, 3, 3), "wt": random(4, 3, 3, 2), "wt2": random(4, 3, 2, 2), "u8": np.ones((5, 4, 2, 2), np.uint8),
    "onoff": np.float32([0, 1]), "pads": ints(0, 1, -1, 2), "padding": ints(1, 0, 2, 1),
    "pads8": ints(0, 0, 1, 0, 0, 1, 2, 3), "axes2": ints(2, -1), "expand": ints(3, 1, 1, 1), "twice": ints(1, 2, 3, 1),
    "keep": ints(0, 0, -1), "m43": random(4, 3), "m34": random(3, 4), "v4": random(4), "one4": ints(1, 1, 1, 1),
    "sizes3": ints(3, 4), "scale4": np.float32([1, 1, 1.5, 2]), "scale2": np.float32([2, 3]), "wi": random(2, 20, 4),
    "wr": random(2, 20, 5), "gi": random(1, 15, 4), "gr": random(1, 15, 5), "pairs": ints(2, 2), "thrice": ints(3, 1),
    "i": np.int64([[[1], [0]]]), "i10": ints(1, 0), "row": random(3),
    "k1": np.array(0.1, np.float32), "k0": np.array(3, np.uint8), "w8": np.ones((4, 3), np.uint8), "n0": np.array(3, np.int8),
    "blocks": np.full((5, 1, 8), 119, np.uint8), "bscales": np.ones(5, np.float32), "nibbles": np.full((6, 8), 119, np.uint8),
    "nscales": np.ones((6, 1), np.float32), "sixteen": np.ones((4, 16), np.float32),
    "slope": random(4, 1, 1), "place": np.zeros((1, 4, 1, 1), np.int64), "update": random(1, 4, 1, 1),
    "at2x1": ints(0, 0).reshape(1, 2), "lengths": ints(1, 1, 1, 1), "four": random(4) ** 2, "four111": random(4, 1, 1),
    "two2": random(2), "ni": random(1, 5, 4), "nr": random(1, 5, 5),
    "qw": np.ones((6, 4, 3, 3), np.int8), "qt": np.ones((4, 3), np.int8),
}  # fmt: skip
# What a body calls v1, v2, … are sizes, whose elements must be known.
BODIES = {
    # Parts and sequences.
    "a sequence with a shorter last part": "q = SplitToSequence<axis=1>(x, at3) y = SequenceAt(q, at1)",
    "a sequence counted from its end": "q = SplitToSequence<axis=-3>(x, at3) y = SequenceAt(q, atm1)",
    "a sequence of single ones": "q = SplitToSequence<axis=1>(x) y = SequenceAt(q, at3)",
    "a sequence without the axis": "q = SplitToSequence<axis=1, keepdims=0>(x) y = SequenceAt(q, at3)",
    "a sequence of given parts": "q = SplitToSequence<axis=1>(x, parts13) y = SequenceAt(q, at1)",
    "a sequence of rows": "q = SplitToSequence<axis=2>(x, i12) y = SequenceAt(q, at1)",
    "a sequence put together": "q = SequenceConstruct(x, x, x) y = ConcatFromSequence<axis=2>(q)",
    "unequal parts": "p, y = Split<axis=-1>(x, i12)",
    "parts of sizes": "s = Shape(x) v1, v2 = Split<axis=0>(s, parts13) v3 = Gather(v2, at1)",
    # Elements that are picked.
    "sizes from the end": "v1 = Shape<start=-2>(x) v2 = Shape<start=1, end=-1>(x) v3 = Shape<end=1>(x)",
    "the number of elements": "v1 = Size(x)",
    "sizes backwards": """
        s = Shape(x) v1 = Slice(s, m1, begin, i0, m1) v2 = Slice(s, m1, i0, i0, m2) v3 = Slice(s, i0, i3, i0, i2)""",
    "sizes by several indices": "s = Shape(x) v1 = Gather(s, i0m1) v2 = Gather(s, grid) v3 = Gather(s, atm1)",
    "rows backwards": "y = Slice(x, m1, begin, i2, m2) z = Slice(x, m2, begin, m1, m1)",
    "rows from either end": "y = Slice(x, m3, m1, i2) z = Slice(x, i1, end, m1, i3)",
    "rows of two axes": "y = Slice(x, i12, i31, i23)",
    "a row": "y = Gather<axis=-2>(x, at0) z = Gather<axis=-2>(x, grid)",
    "a last one": "y = Gather<axis=2>(x, m3)",
    "one by one": """
        c = Slice(x, i0, i1, i0) y = GatherND(x, i0m1) z = GatherND<batch_dims=1>(c, i) a = ArgMax<axis=2>(x) u =
        GatherElements<axis=2>(x, a)""",
    "padding that cuts": "y = Pad(x, pads8)",
    "the largest": "y, i = TopK(x, i2) z, j = TopK<axis=1, largest=0>(x, i3)",
    # Tensors that are made.
    "numbers downwards": """
        s = Shape(x) h = Gather(s, at2) y = Range(h, at2, atm1) z = Range(at1, h, at3) v1 = Range(at1, eight, at3)""",
    "numbers in floating point": "s = Shape(x) h = Gather(s, at2) f = Cast<to=1>(h) y = Range(f1, f, f3)",
    "constants of sizes": """
        s = Shape(x) y = ConstantOfShape(s) v1 = ConstantOfShape<value = int64[1] {3}>(four1)
        z = ConstantOfShape<value = float[1] {0.5}>(four1)""",
    "classes": "a = ArgMax(x) y = OneHot<axis=0>(a, at3, onoff) z = OneHot(a, i3, onoff)",
    "ones on the diagonal": "r = ReduceSum<keepdims=0>(x, i23) y = EyeLike(r)",
    # Shapes that change.
    "flat": "y = Flatten<axis=0>(x) z = Flatten<axis=-1>(x) u = Flatten(x)",
    "axes that go": "a = ReduceSum(x, i23) y = Squeeze(a, i23) z = Squeeze(a, m1)",
    "axes that come": "y = Unsqueeze(x, i0m1) z = Unsqueeze(x, m2)",
    "axes backwards": "y = Transpose(x) z = Transpose<perm=[3, 0, 1, 2]>(x)",
    "a table of sizes": """
        s = Shape(x) t = Reshape(s, pairs) v1 = Transpose(t) y = Flatten(v1) v2 = Unsqueeze(s, i0) v3 = Squeeze(v2, i0)""",
    "copies": "y = Tile(x, twice) s = Shape(x) v1 = Tile(s, i2) z = Expand(x, expand) v2 = Expand(s, thrice)",
    "sizes that stay": "y = Reshape(x, keep)",
    "blocks": "y = DepthToSpace<blocksize=2>(x)",
    # Reductions.
    "reductions": "y = ReduceMean<keepdims=0>(x) z = ReduceMax<axes=[-1, 1], keepdims=0>(x) u = ReduceMin<axes=[0]>(x)",
    "nothing reduced": "y = ReduceSum<noop_with_empty_axes=1>(x) z = ReduceSum(x)",
    "sums of sizes": """
        s = Shape(x) v1 = ReduceSum(s) v2 = ReduceMax<keepdims=0>(s) v3 = ReduceMin(s) v4 = ReduceProd<keepdims=0>(s)""",
    "places of the largest": "y = ArgMax<axis=-1, keepdims=0>(x) z = ArgMin<axis=2>(x)",
    # Arithmetic.
    "bounds": "s = Shape(x) v1 = Clip(s, lo, hi) v2 = Clip(s, , hi) v3 = Clip(s, lo)",
    "differences": "s = Shape(x) v1 = Sub(s, col) v2 = Neg(v1) v3 = Abs(v1) v4 = Div(v1, at3) v5 = Div(v1, m2)",
    "remainders": "s = Shape(x) d = Sub(col, s) v1 = Mod(d, at3) v2 = Mod<fmod=1>(d, at3) v3 = Mod(s, m3)",
    "extremes": "s = Shape(x) v1 = Max(s, lo, col) v2 = Min(s, hi) v3 = Mul(s, s) v4 = Pow(s, at2) v5 = Pow(s, at1)",
    "comparisons": """
        s = Shape(x) a = Less(s, seven) b = LessOrEqual(s, seven) c = Greater(s, seven) d = GreaterOrEqual(s, seven)
        e = Equal(s, seven) f = And(b, d) g = Or(a, c) h = Xor(b, yes) n = Not(a) v1 = Where(a, s, col) v2 = Where(f, s, col)
        v3 = Where(g, s, col) v4 = Where(h, s, col) v5 = Where(n, s, col) v6 = Where(e, s, col) v7 = Where(b, s, col)
        v8 = Where(c, s, col) v9 = Cast<to=7>(h) k = Cast<to=9>(d) v10 = Where(k, s, col)""",
    "fractions": """
        s = Shape(x) f = Cast<to=1>(s) a = Mul(f, half) b = Floor(a) c = Ceil(a) r = Round(a) v1 = Cast<to=7>(b) v2 =
        Cast<to=7>(c)
        v3 = Cast<to=7>(r) v4 = Cast<to=7>(a) d = Div(f, f3) e = Ceil(d) v5 = Cast<to=7>(e) g = Add(d, half) h = Sub(g, f2)
        v6 = Cast<to=7>(h) i = Neg(d) j = Floor(i) v7 = Cast<to=7>(j) k = Abs(i) l = Sqrt(k) m = Mul(l, f3) v8 = Cast<to=7>(m)
        n = Cast<to=11>(f) o = Cast<to=6>(n) v9 = Cast<to=7>(o)""",
    # Windows.
    "groups": "y = Conv<group=2, dilations=[2, 1], pads=[2, 1, 2, 0]>(x, w2)",
    "windows at the ends": """
        y = MaxPool<kernel_shape=[2, 3], auto_pad="VALID">(x) z, i = MaxPool<kernel_shape=[1, 2], strides=[1, 3]>(x)""",
    "windows rounded up": """
        y = MaxPool<kernel_shape=[1, 3], strides=[1, 2], ceil_mode=1>(x)
        z = AveragePool<kernel_shape=[1, 2], strides=[1, 3], pads=[0, 1, 0, 1], ceil_mode=1>(x)""",
    "windows of the same size": 'y = LpPool<kernel_shape=[3, 2], strides=[2, 3], auto_pad="SAME_LOWER">(x)',
    "one window": "y = GlobalAveragePool(x) z = GlobalMaxPool(x) u = GlobalLpPool(x)",
    "spread": """
        y = ConvTranspose<strides=[2, 3], pads=[1, 0, 0, 1], output_padding=[1, 0], dilations=[2, 1]>(x, wt)
        z = ConvTranspose<group=2>(x, wt2) u = ConvTranspose<strides=[2, 2], auto_pad="SAME_UPPER">(x, wt)""",
    "integers": "c = Cast<to=2>(x) y = ConvInteger<strides=[1, 2], pads=[1, 1, 0, 0]>(c, u8)",
    "factors from sizes": "s = Shape(x) f = Cast<to=1>(s) g = Mul(f, f3) k = Div(g, f) y = Resize(x, , k)",
    "powers of fractions": "p = Pow(roots, at2) a = Floor(p) y = Cast<to=7>(a)",
    "regions": "y = RoiAlign<output_height=3, output_width=2>(x, boxes, first)",
    "other sizes": """
        y = Resize(x, , scale4) z = Resize(x, , , one4)""",
    # Products.
    "matrices": """
        t = Transpose<perm=[0, 2, 3, 1]>(x) y = MatMul(t, m43) f = Reshape(x, keep) z = MatMul(m34, f) u = MatMul(t, v4)
        k = MatMul(v4, f)""",
    "a layer": """
        r = ReduceSum<keepdims=0>(x, i23) y = Gemm(r, m43) z = Gemm<transB=1>(r, m34) t = Transpose(r) u = Gemm<transA=1>(t,
        m43)
        q = Gemm(r, m43, row)""",
    "sums of products": """
        y = Einsum<equation="nchw,cd->nhwd">(x, m43) z = Einsum<equation="nchw">(x)
        u = Einsum<equation="nchw, nchw -> nc">(x, x) q = Einsum<equation="ij,jk">(m34, m43)""",
    # Layers of a text.
    "both ways": """
        r = ReduceMax<axes=[3], keepdims=0>(x) t = Transpose<perm=[0, 2, 1]>(r)
        y, a, b = LSTM<hidden_size=5, direction="bidirectional">(t, wi, wr) z, c = GRU<hidden_size=5,
        direction="reverse">(t, gi, gr)""",
}
BODIES |= {
    "functions of one element": """
        a = Acos(x) b = Asinh(a) c = Atan(b) d = Celu(c) e = Cosh(d) f = Erf(e) g = HardSwish(f) h = LeakyRelu(g) i = Log(h)
        j = Reciprocal(i) k = Selu(j) l = Shrink(k) m = Sigmoid(l) n = Sign(m) o = Softplus(n) p = Softsign(o) q = Tanh(p)
        r = ThresholdedRelu(q) s = Elu(r) t = Exp(s) u = HardSigmoid(t) v = Relu(u) w = Sin(v) a1 = Asin(w) a2 = Acosh(a1)
        a3 = Atanh(a2) a4 = Cos(a3) a5 = Sinh(a4) a6 = Tan(a5) y = Identity(a6)""",
    "what is not a number": "a = IsInf(x) b = IsNaN(x) c = Or(a, b) y = CastLike(c, x)",
    "functions along axes": """
        a = Softmax<axis=1>(x) b = LogSoftmax(a) c = Hardmax(b) d = LpNormalization(c) e = MeanVarianceNormalization(d)
        f = LRN<size=3>(e) g = CumSum(f, at2) h = PRelu(g, slope) y = Trilu(h)""",
    "what is written into data": """
        u = ScatterElements<axis=1>(x, place, update) r = ReduceMax<axes=[0, 1], keepdims=0>(x) w = Unsqueeze(r, i0)
        v = ScatterND(u, at2x1, w) y = ReverseSequence<batch_axis=1, time_axis=0>(v, lengths)""",
    "normalizations": """
        a = BatchNormalization(x, four, four, four, four) b = InstanceNormalization(a, four, four)
        c = Transpose<perm=[0, 2, 3, 1]>(b) d = LayerNormalization(c, four, four) y = LayerNormalization(d, four)""",
    "several that are broadcast": "y = Sum(x, four111, x) z = Mean(four111, x)",
    "integers bit by bit": 'u = Cast<to=12>(x) y = BitShift<direction="LEFT">(u, u)',
    "parts side by side": "y = Concat<axis=-3>(x, x, x) s = Shape(x) v1 = Concat<axis=0>(s, i2, s)",
    "blocks in depth": "u = Concat<axis=2>(x, x) v = Concat<axis=3>(u, u) y = SpaceToDepth<blocksize=2>(v)",
    "places in data": "g = Transpose<perm=[0, 2, 3, 1]>(x) h = Slice(g, i0, i2, i3) y = GridSample(x, h)",
    "further reductions": """
        y = ReduceL1<axes=[1]>(x) z = ReduceL2<axes=[0, 2]>(x) u = ReduceLogSum<keepdims=0>(x) v = ReduceLogSumExp<axes=[-1]>(x)
        w = ReduceSumSquare<axes=[1], keepdims=0>(x)""",
    "a plain layer of a text": """
        r = ReduceMax<axes=[3], keepdims=0>(x) t = Transpose<perm=[0, 2, 1]>(r) y, a = RNN<hidden_size=5>(t, ni, nr)""",
}
# From opset 18 on.
NEWER = {
    "bits of integers": """
        u = Cast<to=6>(x) a = BitwiseAnd(u, u) b = BitwiseOr(a, u) c = BitwiseXor(b, u) y = BitwiseNot(c)""",
    "a smooth function": "y = Mish(x)",
    "what is dropped now": "y, z = Dropout(x)",
    "normalization of groups": "y = GroupNormalization<num_groups=2>(x, two2, two2)",
    "outputs of equal parts": "y, u = Split<axis=1, num_outputs=2>(x)",
    "a smaller last output": "y, z, u = Split<axis=2, num_outputs=3>(x)",
    "padding of some axes": 'y = Pad(x, pads, , axes2) z = Pad<mode="edge">(x, padding, , axes2)',
    "other sizes of some axes": "y = Resize<axes=[2, 3]>(x, , , sizes3) z = Resize<axes=[-1, 2]>(x, , scale2)",
    "reductions of axes that are inputs": "y = ReduceMean<keepdims=0>(x, m1) z = ReduceMax(x, i12)",
}
# With what ONNX Runtime contributes, and on quantised data.
QUANTIZED = {
    name: f"q = QuantizeLinear(x, k1, k0) {body}"
    for name, body in {
        "quantised sums": """
            p = Transpose<perm=[0, 1, 3, 2]>(q) y = com.microsoft.QLinearAdd(q, k1, k0, q, k1, k0, k1, k0)
            z = com.microsoft.QLinearMul(p, k1, k0, p, k1, k0, k1, k0)""",
        "quantised parts": "y = com.microsoft.QLinearConcat<axis=1>(k1, k0, q, k1, k0, q, k1, k0)",
        "quantised pooling": """
            y = com.microsoft.QLinearGlobalAveragePool(q, k1, k0, k1, k0)
            z = com.microsoft.QLinearAveragePool<kernel_shape=[1, 2], strides=[1, 2]>(q, k1, k0, k1, k0)""",
        "quantised activations": """
            y = com.microsoft.QLinearLeakyRelu(q, k1, k0, k1, k0) z = com.microsoft.QLinearSigmoid(q, k1, k0, k1, k0)""",
        "a quantised choice": "b = Cast<to=9>(x) y = com.microsoft.QLinearWhere(b, q, k1, k0, q, k1, k0, k1, k0)",
        "quantised products": """
            t = Transpose<perm=[0, 2, 3, 1]>(q) y = com.microsoft.MatMulIntegerToFloat(t, w8, k1, k1, k0, k0)
            u = Transpose<perm=[0, 2, 3, 1]>(x) z = com.microsoft.DynamicQuantizeMatMul(u, w8, k1, k0)
            v = QLinearMatMul(t, k1, k0, w8, k1, k0, k1, k0) w = MatMulInteger(t, qt)""",
        "a quantised layer": """
            r = ReduceMax<axes=[2, 3], keepdims=0>(x) f = QuantizeLinear(r, k1, k0)
            y = com.microsoft.QGemm(f, k1, k0, w8, k1, k0, , k1, k0) z = com.microsoft.QGemm(f, k1, k0, w8, k1, k0)""",
        "weights in blocks": """
            r = ReduceMax<axes=[2, 3], keepdims=0>(x) f = MatMul(r, sixteen)
            y = com.microsoft.MatMulNBits<K=16, N=5, bits=4, block_size=16>(f, blocks, bscales)
            z = com.microsoft.GatherBlockQuantized<gather_axis=0, quantize_axis=1, block_size=16>(nibbles, i10, nscales)""",
        "a quantised convolution": "y = QLinearConv<pads=[1, 1, 1, 1]>(q, k1, k0, qw, k1, n0, k1, k0)",
        "back from integers": "y = DequantizeLinear(q, k1, k0) z = com.microsoft.DequantizeLinear(q, k1, k0)",
    }.items()
}
# Forms of other opsets.
OLDER = {
    9: {
        "an older cut": """
            y = Slice<starts=[1, -3], ends=[-1, 9223372036854775807], axes=[2, -1]>(x) z = Slice<starts=[0], ends=[3]>(x)""",
        "older padding": 'y = Pad<pads=[0, 0, 1, -1, 0, 0, 2, 3]>(x) z = Pad<mode="reflect", pads=[0, 0, 1, 2, 0, 0, 0, 1]>(x)',
        "older bounds": "y = Clip<min=0.0, max=1.0>(x)",
        "the largest of old": "y, i = TopK<axis=2, k=2>(x)",
        "scales of old": "y = Upsample(x, scale4)",
        "what is dropped": "y, z = Dropout<ratio=0.5>(x)",
        "older writing": "y = Scatter<axis=1>(x, place, update)",
    },
    8: {"scales of older": "y = Upsample<scales=[1.0, 1.0, 2.0, 1.5]>(x)"},
    12: {
        "older axes": """
            a = ReduceSum<axes=[2, 3]>(x) y = Squeeze<axes=[2, -1]>(a) z = Unsqueeze<axes=[0, -1]>(x)
            b = Squeeze<axes=[3]>(a)""",
        "older parts": "p, y = Split<axis=-3, split=[1, 3]>(x) q, z = Split<axis=1>(x)",
    },
    21: {
        "groups with a value for each channel": "g = GroupNormalization<num_groups=2>(x, four, four) y = Gelu(g)",
    },
}


def opset_of(name: str) -> int:
    return next((opset for opset, bodies in OLDER.items() if name in bodies), 18 if name in NEWER else 17)


ALL = {**BODIES, **NEWER, **QUANTIZED, **{name: body for bodies in OLDER.values() for name, body in bodies.items()}}


def model_of(name: str, image: str = IMAGE) -> onnx.ModelProto:
    """The model ``name`` for data of the type ``image``, with the outputs of its last node."""
    body, opset = ALL[name], opset_of(name)
    used = {key: value for key, value in K.items() if re.search(rf"[( ]{key}[,)]", body) and f" {key} = " not in f" {body}"}
    model = parse(f"g ({image}) => (float[?] y) {{ {body} }}", used, opset=opset, ir=4 if opset < 10 else 8)
    model.opset_import.add(domain="com.microsoft", version=1)
    del model.graph.output[:]
    model.graph.output.add(name=model.graph.node[-1].output[0])
    return model
