"""One small model for each floating operator, to see in which types TensorRT takes it.

Each is ONNX text in which ``T`` is the type under test. Names that begin with a lower-case letter and are not made by a node
are parameters: their shapes stand in ``PARAMETERS``.
"""

from __future__ import annotations

X = "T[2, 8, 12, 12]"
ROW = "T[2, 6, 16]"
UNARY = (
    "Abs", "Acos", "Acosh", "Asin", "Asinh", "Atan", "Atanh", "Ceil", "Celu", "Cos", "Cosh", "Elu", "Erf", "Exp", "Floor",
    "Gelu", "HardSigmoid", "HardSwish", "Identity",
    "LeakyRelu", "Log", "Mish", "Neg", "Reciprocal", "Relu", "Round", "Selu", "Sigmoid",
    "Sign", "Sin", "Sinh", "Softplus", "Softsign", "Sqrt", "Tan", "Tanh", "ThresholdedRelu", "Shrink",
)  # fmt: skip
BINARY = ("Add", "Sub", "Mul", "Div", "Pow", "Max", "Min", "Mean", "Sum", "Mod", "PRelu")
COMPARISONS = ("Equal", "Greater", "GreaterOrEqual", "Less", "LessOrEqual")
REDUCTIONS = ("L1", "L2", "LogSum", "LogSumExp", "Max", "Mean", "Min", "Prod", "Sum", "SumSquare")

# Parameters by name: shape, or a literal list of integers.
PARAMETERS: dict[str, tuple[int, ...] | list[int] | list[float]] = {
    "w": (8, 8, 3, 3), "w1": (8, 1, 3, 3), "w3": (8, 8, 3), "m": (16, 16), "v": (8,), "u": (16,), "one": (1,),
    "s0": (), "s1": (), "r1": (1, 24, 16), "r2": (1, 24, 6), "gr": (1, 18, 16), "rr": (1, 6, 16), "wl": (1, 24, 16),
    "axes": [1], "last": [-1], "shape": [2, 8, 144], "pads": [0, 0, 1, 1, 0, 0, 1, 1], "starts": [1], "ends": [5],
    "index": [1, 3], "ax3": [3], "k": [3], "repeats": [1, 1, 2, 2], "split": [4, 4], "big": [2, 8, 12, 12],
    "sizes": [2, 8, 24, 24],
    "offsets": (2, 18, 10, 10), "grid": (2, 5, 5, 2), "rois": (3, 4), "batch": [0, 1, 0],
    "where": [[0, 1, 2, 0], [1, 0, 0, 3]],
}  # fmt: skip
SCALES = "scales"


def _one(body: str, source: str = X, out: str = "T[a, b, c, d]", more: str = "") -> str:
    return f"g ({source} x{more}) => ({out} y) {{ {body} }}"


def _models() -> dict[str, tuple[str, int]]:
    """The graph of each case, and its opset."""
    cases = {name: (_one(f"y = {name}(x)"), 22) for name in UNARY}
    cases["Swish"] = (_one("y = Swish(x)"), 24)
    for name in BINARY:
        attributes = "<fmod = 1>" if name == "Mod" else ""
        cases[name] = (_one(f"y = {name}{attributes}(x, z)", more=f", {X} z"), 22)
    for name in COMPARISONS:
        cases[name] = (_one(f"c = {name}(x, z) y = Cast<to = 9>(c)", out="bool[a, b, c, d]", more=f", {X} z"), 22)
    for name in REDUCTIONS:
        cases[f"Reduce{name}"] = (_one(f"y = Reduce{name}<keepdims = 1>(x, last)"), 22)
    for name, (body, source, out, opset) in _FORMS.items():
        cases[name] = (_one(body, source, out), opset)
    return cases


_A = "T[a, b, c, d]"
_FORMS: dict[str, tuple[str, str, str, int]] = {
    "ArgMax": ("y = ArgMax<axis = -1>(x)", X, "int64[a, b, c, d]", 22),
    "ArgMin": ("y = ArgMin<axis = -1>(x)", X, "int64[a, b, c, d]", 22),
    "Attention": ("y = Attention(x, x, x)", "T[2, 4, 6, 16]", _A, 23),
    "AveragePool": ("y = AveragePool<kernel_shape = [3, 3], pads = [1, 1, 1, 1]>(x)", X, _A, 22),
    "BatchNormalization": ("y = BatchNormalization(x, v, v, v, v)", X, _A, 22),
    "Clip": ("y = Clip(x, s0, s1)", X, _A, 22),
    "Concat": ("y = Concat<axis = 1>(x, x)", X, _A, 22),
    "ConstantOfShape": ("f = ConstantOfShape<value = T[1] {1}>(big) y = Add(x, f)", X, _A, 22),
    "Conv": ("y = Conv<pads = [1, 1, 1, 1]>(x, w, v)", X, _A, 22),
    "Conv, depthwise": ("y = Conv<group = 8>(x, w1)", X, _A, 22),
    "ConvTranspose": ("y = ConvTranspose<strides = [2, 2]>(x, w)", X, _A, 22),
    "CumSum": ("y = CumSum(x, ax)", X, _A, 22),
    "DeformConv": ("y = DeformConv(x, w, offsets)", X, _A, 22),
    "DepthToSpace": ("y = DepthToSpace<blocksize = 2>(x)", X, _A, 22),
    "Dropout": ("y = Dropout(x)", X, _A, 22),
    "Einsum": ('y = Einsum<equation = "bij,jk->bik">(x, m)', ROW, "T[a, b, c]", 22),
    "Expand": ("s = Slice(x, starts0, ends1, ax3) y = Expand(s, big)", X, _A, 22),
    "Flatten": ("y = Flatten(x)", X, "T[a, b]", 22),
    "GRU": ("y, h = GRU<hidden_size = 6>(x, gr, gh)", "T[5, 2, 16]", _A, 22),
    "Gather": ("y = Gather<axis = 1>(x, index)", X, _A, 22),
    "GatherElements": ("c = Cast<to = 7>(x) i = Clip(c, zero, five) y = GatherElements<axis = 3>(x, i)", X, _A, 22),
    "GatherND": ("y = GatherND(x, where)", X, "T[a]", 22),
    "Gemm": ("y = Gemm<transB = 1>(x, m, u)", "T[6, 16]", "T[a, b]", 22),
    "GlobalAveragePool": ("y = GlobalAveragePool(x)", X, _A, 22),
    "GlobalLpPool": ("y = GlobalLpPool(x)", X, _A, 22),
    "GlobalMaxPool": ("y = GlobalMaxPool(x)", X, _A, 22),
    "GridSample": ("y = GridSample(x, grid)", X, _A, 22),
    "GroupNormalization": ("y = GroupNormalization<num_groups = 2>(x, v, v)", X, _A, 22),
    "Hardmax": ("y = Hardmax(x)", X, _A, 22),
    "InstanceNormalization": ("y = InstanceNormalization(x, v, v)", X, _A, 22),
    "IsInf": ("y = IsInf(x)", X, "bool[a, b, c, d]", 22),
    "IsNaN": ("y = IsNaN(x)", X, "bool[a, b, c, d]", 22),
    "LRN": ("y = LRN<size = 3>(x)", X, _A, 22),
    "LSTM": ("y, h = LSTM<hidden_size = 6>(x, wl, lh)", "T[5, 2, 16]", _A, 22),
    "LayerNormalization": ("y = LayerNormalization(x, u, u)", ROW, "T[a, b, c]", 22),
    "LogSoftmax": ("y = LogSoftmax(x)", X, _A, 22),
    "LpNormalization": ("y = LpNormalization(x)", X, _A, 22),
    "LpPool": ("y = LpPool<kernel_shape = [3, 3]>(x)", X, _A, 22),
    "MatMul": ("y = MatMul(x, m)", ROW, "T[a, b, c]", 22),
    "MaxPool": ("y = MaxPool<kernel_shape = [3, 3], pads = [1, 1, 1, 1]>(x)", X, _A, 22),
    "MaxUnpool": (
        "p, i = MaxPool<kernel_shape = [2, 2], strides = [2, 2]>(x) "
        "y = MaxUnpool<kernel_shape = [2, 2], strides = [2, 2]>(p, i)",
        X, _A, 22,
    ),
    "MeanVarianceNormalization": ("y = MeanVarianceNormalization(x)", X, _A, 22),
    "NonZero": ("y = NonZero(x)", X, "int64[a, b]", 22),
    "OneHot": ("y = OneHot(x, depth, pair)", "int64[2, 3]", "T[a, b, c]", 22),
    "Pad": ("y = Pad(x, pads)", X, _A, 22),
    "Pad, reflecting": ('y = Pad<mode = "reflect">(x, pads)', X, _A, 22),
    "RMSNormalization": ("y = RMSNormalization(x, u)", ROW, "T[a, b, c]", 23),
    "RNN": ("y, h = RNN<hidden_size = 6>(x, rr, rh)", "T[5, 2, 16]", _A, 22),
    "RandomUniformLike": ("r = RandomUniformLike(x) y = Add(x, r)", X, _A, 22),
    "Range": ("r = Range(a0, a9, a1) y = Add(x, r)", X, _A, 22),
    "Reshape": ("y = Reshape(x, shape)", X, "T[a, b, c]", 22),
    "Resize, cubic": ('y = Resize<mode = "cubic">(x, , scales)', X, _A, 22),
    "Resize, linear": ('y = Resize<mode = "linear">(x, , scales)', X, _A, 22),
    "Resize, nearest": ("y = Resize(x, , scales)", X, _A, 22),
    "Resize to sizes": ('y = Resize<mode = "linear">(x, , , sizes)', X, _A, 22),
    "ReverseSequence": ("y = ReverseSequence<batch_axis = 0, time_axis = 1>(x, lengths)", ROW, "T[a, b, c]", 22),
    "RoiAlign": ("y = RoiAlign<output_height = 2, output_width = 2>(x, rois, batch)", X, _A, 22),
    "ScatterElements": ("c = Cast<to = 7>(x) i = Clip(c, zero, five) y = ScatterElements<axis = 3>(x, i, x)", X, _A, 22),
    "ScatterND": ("g = GatherND(x, where) h = Neg(g) y = ScatterND(x, where, h)", X, _A, 22),
    "Slice": ("y = Slice(x, starts, ends, ax3)", X, _A, 22),
    "Softmax": ("y = Softmax(x)", X, _A, 22),
    "SpaceToDepth": ("y = SpaceToDepth<blocksize = 2>(x)", X, _A, 22),
    "Split": ("y, z = Split<axis = 1>(x, split)", X, _A, 22),
    "Squeeze": ("z = Unsqueeze(x, last) y = Squeeze(z, last)", X, _A, 22),
    "Tile": ("y = Tile(x, repeats)", X, _A, 22),
    "TopK": ("y, i = TopK(x, k)", X, _A, 22),
    "Transpose": ("y = Transpose<perm = [0, 2, 3, 1]>(x)", X, _A, 22),
    "Trilu": ("y = Trilu(x)", X, _A, 22),
    "Where": ("c = Greater(x, s0) y = Where(c, x, s1)", X, _A, 22),
}  # fmt: skip
MODELS = _models()
