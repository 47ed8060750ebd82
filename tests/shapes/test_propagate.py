"""Shapes as expressions, held against what ONNX Runtime computes at sizes that work and at sizes that do not."""

from __future__ import annotations

import re

import numpy as np
import onnx
import pytest

from tests.models import batchnorm, parse, random
from tests.shapes.runs import agree, ints
from tests.shapes.shape_models import raft
from trtnorm_cli.shapes.evaluate import values_at
from trtnorm_cli.shapes.propagate import propagate
from trtnorm_cli.shapes.solve import solve


def rule(model: onnx.ModelProto, symbol: str) -> str:
    return solve([c.condition for c in propagate(model).constraints if c.symbols == {symbol}], symbol, 256).text()


IMAGE = "float[N, 4, H, W] x"
HALF = "h = Conv<strides=[2, 2], pads=[1, 1, 1, 1]>(x, w)"
WEIGHTS = {"w": random(4, 4, 3, 3), **batchnorm(4)}
SCALES = np.array([1, 1, 2, 2], np.float32)

CASES = [
    ("unet", f"{HALF} u = Resize(h, , s) y = Concat<axis=1>(x, u)", {"s": SCALES}, "H must be ≡ 0 (mod 2)"),
    ("add", f"{HALF} u = Resize(h, , s) y = Add(x, u)", {"s": SCALES}, "H must be ≡ 0 (mod 2) (or 1)"),
    ("kernel", "c = Conv<dilations=[4, 4]>(x, w) y = BatchNormalization(c, gamma, beta, mu, var)", {}, "H must be at least 9"),
    ("pool", "y = MaxPool<kernel_shape=[5, 5], strides=[2, 2]>(x)", {}, "H must be at least 5"),
    ("ceil pool", "y = AveragePool<kernel_shape=[3, 3], strides=[2, 2], pads=[1, 1, 1, 1], ceil_mode=1>(x)", {}, ""),
    ("same", 'y = Conv<auto_pad="SAME_UPPER", strides=[3, 3]>(x, w)', {}, ""),
    ("transposed", "y = ConvTranspose<strides=[2, 2], pads=[1, 1, 1, 1], output_padding=[1, 1]>(x, w)", {}, ""),
    ("depth", "y = SpaceToDepth<blocksize=4>(x)", {}, "H must be ≡ 0 (mod 4)"),
    ("back", "d = SpaceToDepth<blocksize=2>(x) y = DepthToSpace<blocksize=4>(d)", {}, "H must be ≡ 0 (mod 2)"),
    ("position", "y = Add(x, table)", {"table": random(1, 4, 12, 1)}, "H must be 1 or 12"),
    ("reshape", "y = Reshape(x, t)", {"t": ints(0, 4, 6, -1)}, ""),
    ("windows", "t = Transpose<perm=[0, 1, 3, 2]>(x) y = Reshape(t, s)", {"s": ints(0, 4, 0, 4, -1)}, "H must be ≡ 0 (mod 4)"),
    ("squeeze", "p = AveragePool<kernel_shape=[7, 1]>(x) y = Squeeze(p, a)", {"a": ints(2)}, "H must be 7"),
    ("split", "a, b = Split<axis=2>(x) y = Add(a, b)", {}, "H must be ≡ 0 (mod 2)"),
    ("slice", "a = Slice(x, i0, i1, i2, i2) b = Slice(x, j0, i1, i2, i2) y = Add(a, b)",
     {"i0": ints(0), "j0": ints(1), "i1": ints(2**63 - 1), "i2": ints(2)}, "H must be ≡ 0 (mod 2) (or 1 or 3)"),
    ("gather", "y = Gather<axis=2>(x, i)", {"i": ints(0, 9, -3)}, "H must be at least 10"),
    ("pad", 'y = Pad<mode="reflect">(x, p)', {"p": ints(0, 0, 5, 0, 0, 0, 0, 0)}, "H must be at least 6"),
    ("top", "y, i = TopK<axis=2>(x, k)", {"k": ints(6)}, "H must be at least 6"),
    ("matmul", "y = MatMul(x, m)", {"m": random(16, 3)}, ""),
    ("einsum", 'y = Einsum<equation="nchw,hk->nckw">(x, m)', {"m": random(16, 3)}, "H must be 1 or 16"),
    ("flatten", "f = Flatten<axis=2>(x) y = Reshape(f, t)", {"t": ints(0, 2, -1)}, ""),
]  # fmt: skip
POINTS = [{"N": n, "H": h, "W": w} for n, h, w in ((1, 8, 16), (2, 12, 16), (1, 16, 16), (3, 7, 16), (1, 9, 12), (2, 1, 5))]


@pytest.mark.parametrize(("name", "body", "weights", "text"), CASES, ids=[case[0] for case in CASES])
def test_a_model_runs_exactly_where_nothing_is_broken(name, body, weights, text):
    model = parse(f"g ({IMAGE}) => (float[?] y) {{ {body} }}", {**WEIGHTS, **weights})
    del model.graph.output[0].type.tensor_type.shape.dim[:]
    model.graph.output[0].type.tensor_type.ClearField("shape")
    agree(model, *POINTS)
    assert rule(model, "H") == text


SHAPE_ARITHMETIC = {
    "upsample of TorchScript": """
        s = Shape(x) hw = Slice(s, two, four, zero)
        f = Cast<to=1>(hw) m = Mul(f, factor) v = Floor(m) i = Cast<to=7>(v)
        nc = Slice(s, zero, two, zero) t = Concat<axis=0>(nc, i) y = Resize(x, , , t)""",
    "half by division": """
        s = Shape(x) h = Gather(s, at2) w = Gather(s, at3) a = Div(h, at2) b = Div(w, at3)
        a1 = Unsqueeze(a, zero) b1 = Unsqueeze(b, zero) n = Slice(s, zero, two, zero)
        t = Concat<axis=0>(n, a1, b1) y = Resize(x, , , t)""",
    "padding to a multiple": """
        s = Shape(x) h = Gather(s, at2) r = Mod(h, eight) d = Sub(eight, r) e = Mod(d, eight)
        e1 = Unsqueeze(e, zero) p = Concat<axis=0>(z6, e1, z1) q = Slice(p, zero, eights, zero) y = Pad(x, q)""",
    "pads as TorchScript writes them": """
        r = Reshape(pads, pairs) b = Slice(r, minus, least, zero, minus) t = Transpose<perm=[1, 0]>(b)
        v = Reshape(t, flat) c = Cast<to=7>(v) y = Pad(x, c)""",
    "expand with minus one": """
        s = Shape(x) m = Equal(s, sm) o = ConstantOfShape<value = int64[1] {1}>(four) t = Where(m, o, s) y = Expand(k, t)""",
    "range and embedding": """
        s = Shape(x) h = Gather(s, at2) r = Range(at0, h, at1) c = Cast<to=1>(r) u = Unsqueeze(c, two1) y = Mul(x, u)""",
    "a split into chunks": """
        q = SplitToSequence<axis=1>(x, at2) a = SequenceAt(q, at0) b = SequenceAt(q, at1) y = Concat<axis=2>(a, b)""",
    "a branch on a size": """
        s = Shape(x) h = Gather(s, at2) c = Less(h, eight)
        y = If (c) <then_branch = t () => (float[n1, 4, h1, w1] y1) { y1 = Concat<axis=2>(x, x) },
                    else_branch = e () => (float[n2, 4, h2, w2] y2) { y2 = Identity(x) }>""",
    "tiles": "s = Shape(x) n = Slice(s, zero, one1, zero) t = Concat<axis=0>(n, ones3) y = Tile(k, t)",
    "sizes of a reduction": "s = Shape(x) p = ReduceProd<keepdims=0>(s) u = Unsqueeze(p, zero) y = Reshape(x, u)",
}
CONSTANTS = {
    "zero": ints(0), "two": ints(2), "four": ints(4), "one1": ints(1), "two1": ints(1), "eights": ints(8),
    "at0": np.array(0), "at1": np.array(1), "at2": np.array(2), "at3": np.array(3), "eight": np.array(8),
    "z6": ints(0, 0, 0, 0, 0, 0), "z1": ints(0), "pads": ints(1, 2, 0, 3, 0, 0, 0, 0), "pairs": ints(-1, 2),
    "minus": ints(-1), "least": ints(-(2**63) + 1), "flat": ints(-1), "sm": ints(-1, -1, -1, -1),
    "k": random(1, 4, 1, 1), "ones3": ints(1, 1, 1), "factor": np.array([1.5, 1.7], np.float32),
}  # fmt: skip


@pytest.mark.parametrize("name", SHAPE_ARITHMETIC)
def test_arithmetic_of_sizes_is_followed(name):
    body = SHAPE_ARITHMETIC[name]
    used = {key: value for key, value in CONSTANTS.items() if re.search(rf"[( ]{key}[,)]", body)}
    model = parse(f"g ({IMAGE}) => (float[?] y) {{ {body} }}", used)
    model.graph.output[0].type.tensor_type.ClearField("shape")
    assert any(agree(model, *POINTS[:4]))
    found = propagate(model)
    assert found.unread == []
    assert found.tensors["y"].shape is not None
    assert None not in found.tensors["y"].shape


def test_the_rule_of_raft():
    model = raft()
    assert rule(model, "H") == "H must be ≡ 0 (mod 8) and at least 16"
    sizes = [(16, 16), (24, 40), (135, 136), (136, 135), (136, 136), (8, 16)]
    assert agree(model, *({"N": 1, "H": h, "W": w} for h, w in sizes)) == [True, True, False, False, True, False]


def test_two_symbols_that_must_be_equal():
    model = parse("g (float[N, H, W] x) => (float[N, H, W] y) { t = Transpose<perm=[0, 2, 1]>(x) y = Add(x, t) }")
    agree(model, {"N": 1, "H": 4, "W": 4}, {"N": 1, "H": 4, "W": 6}, {"N": 2, "H": 1, "W": 6})


def test_elements_of_an_input_that_decide_sizes():
    model = parse("g (float[N, 6] x, int64[2] shape) => (float[?, ?] y) { y = Reshape(x, shape) }")
    points = [{"N": 2, "shape.values[0]": a, "shape.values[1]": b} for a, b in ((3, 4), (2, 6), (5, 2))]
    assert agree(model, *points) == [True, True, False]


def test_positions_that_are_looked_up():
    """GPT-2's table of positions: TensorRT reads past its end without a word."""
    body = "s = Shape(x) t = Gather(s, at1) r = Range(at0, t, at1) u = Unsqueeze(r, z) p = Gather(table, u) y = Add(p, x3)"
    model = parse(
        f"g (int64[N, T] x, float[1, 1, 3] x3) => (float[?, ?, ?] y) {{ {body} }}",
        {"at0": np.array(0), "at1": np.array(1), "z": ints(0), "table": random(12, 3)},
    )
    assert agree(model, *({"N": 1, "T": t} for t in (1, 12, 13))) == [True, True, False]
    assert rule(model, "T") == "T must be at most 12"


def test_loops_and_what_is_not_known():
    body = """
        s = Shape(x) n = Gather(s, at0)
        y = Loop (n, c, x) <body = b (int64 i, bool k, float[?, ?] v) => (bool k2, float[?, ?] v2)
            { k2 = Identity(k) v2 = Add(v, v) }>"""
    model = parse(f"g (float[N, H] x) => (float[N, H] y) {{ {body} }}", {"at0": np.array(0), "c": np.array(True)})
    assert [str(size) for size in propagate(model).tensors["y"].shape] == ["N", "H"]
    unknown = parse(
        "g (float[N, H] x) => (float[?, ?] y) { i = NonZero(x) t = Transpose(i) c = Cast<to=1>(t) y = MatMul(c, x) }"
    )
    found = propagate(unknown)
    assert [str(c.condition) for c in found.constraints] == ["N == 2"]
    assert found.tensors["i"].shape == (2, None)


def test_demands_in_a_branch_count_only_where_it_runs():
    body = """
        s = Shape(x) h = Gather(s, at1) c = Less(at8, h)
        y = If (c) <then_branch = t () => (float[n1, h1] y1) { y1 = Add(x, table) },
                    else_branch = e () => (float[n2, h2] y2) { y2 = Identity(x) }>"""
    weights = {"at1": np.array(1), "at8": np.array(8), "table": random(1, 12)}
    model = parse(f"g (float[N, H] x) => (float[?, ?] y) {{ {body} }}", weights)
    assert agree(model, *({"N": 1, "H": h} for h in (3, 8, 12, 13))) == [True, True, True, False]


def test_model_local_functions_are_followed():
    text = """<ir_version: 8, opset_import: ["" : 17, "my" : 1]>
        g (float[N, 4, H, W] x) => (float[?, ?, ?, ?] y) { h = my.half(x) y = SpaceToDepth<blocksize=2>(h) }
        <domain: "my", opset_import: ["" : 17]>
        half (a) => (b) { b = MaxPool<kernel_shape=[2, 2], strides=[2, 2]>(a) }"""
    assert rule(onnx.parser.parse_model(text), "H") == "H mod 4 must be in {0, 1} and at least 4"
    found = propagate(onnx.parser.parse_model(text))
    assert str(found.tensors["y"].shape[1]) == "16"


def test_a_malformed_node_is_left_to_the_checker():
    model = parse("g (float[N, 4] x) => (float[?, ?] y) { y = Transpose<perm=[0, 7]>(x) }")
    assert propagate(model).unread == ["-> y (Transpose)"]


def test_a_large_weight_is_not_read(monkeypatch):
    model = parse("g (float[N, 4, 8, 8] x) => (float[N, 4, 6, 6] y) { y = Conv(x, w) }", {"w": random(64, 4, 3, 3)})
    model.graph.initializer[0].ClearField("raw_data")
    assert [str(size) for size in propagate(model).tensors["y"].shape] == ["N", "64", "6", "6"]


def test_operators_without_a_rule_are_inferred_by_onnx():
    """DFT has none here; its sizes come out as the expressions that went in."""
    body = "p = MaxPool<kernel_shape=[2, 1], strides=[2, 1]>(x) d = DFT<axis=2>(p) y = Add(d, t)"
    model = parse(f"g (float[N, 4, H, 1] x) => (float[?, ?, ?, ?] y) {{ {body} }}", {"t": random(1, 4, 6, 2)})
    assert str(propagate(model).tensors["d"].shape) == "(N, 4, H//2, 2)"
    assert agree(model, {"N": 3, "H": 12}, {"N": 1, "H": 13}, {"N": 2, "H": 16}) == [True, True, False]


def test_a_node_of_another_domain_is_unknown_and_demands_nothing():
    text = """<ir_version: 8, opset_import: ["" : 17, "my" : 1]>
        g (float[N, 4] x) => (float[?, ?] y) { a = my.thing(x) y = Add(a, x) }"""
    found = propagate(onnx.parser.parse_model(text))
    assert found.unread == ["-> a (thing)", "-> y (Add)"]
    assert found.constraints == []


def test_sizes_that_occur_again_and_again_stay_short():
    """Each of 60 levels is made of the two before it: written out, the last would have more parts than there is memory."""
    pools = [f"a{i} = Add(c{i - 1}, c{i - 2}) c{i} = MaxPool<kernel_shape=[2], pads=[0, 1]>(a{i})" for i in range(2, 60)]
    first = "c0 = MaxPool<kernel_shape=[2], strides=[2]>(x) c1 = MaxPool<kernel_shape=[3], strides=[2]>(x)"
    found = propagate(parse(f"g (float[N, 3, H] x) => (float[?, ?, ?] y) {{ {first} {' '.join(pools)} y = Relu(c59) }}"))
    assert len(str(found.tensors["y"].shape[2])) < 1000
    assert [all(c.holds({"N": 1, "H": h}) for c in found.constraints) for h in (11, 16)] == [True, False]


@pytest.mark.parametrize(
    ("node", "opset", "length", "text"),
    [
        ("InstanceNormalization(x, s, b)", 17, 8, "C must be 8"),
        ("GroupNormalization<num_groups=4>(x, s, b)", 21, 8, "C must be 8"),
        ("GroupNormalization<num_groups=4>(x, s, b)", 18, 4, ""),
    ],
    ids=["instance", "group", "one value per group"],
)
def test_parameters_pin_channels_that_the_file_leaves_open(node, opset, length, text):
    weights = {"s": random(length), "b": random(length, seed=1)}
    assert rule(parse(f"g (float[N, C, 5, 6] x) => (float[N, C, 5, 6] y) {{ y = {node} }}", weights, opset=opset), "C") == text


@pytest.mark.parametrize(("operator", "opset"), [("Upsample", 9), ("Resize", 10)])
def test_scales_are_the_second_input_before_opset_11(operator, opset):
    graph = f"g (float[1, 2, H, W] x) => (float[1, 2, A, B] y) {{ y = {operator}(x, s) }}"
    model = parse(graph, {"s": np.array([1, 1, 2, 3], np.float32)}, opset=opset, ir=4)
    assert values_at(propagate(model).tensors["y"].shape, {"H": 5, "W": 4}) == [1, 2, 10, 12]


def test_positions_that_are_looked_up_in_steps():
    model = parse(
        "g (float[N, T] x) => (float[?, ?] y) { s = Shape(x) t = Gather(s, at1) r = Range(at0, t, at3) y = Gather(table, r) }",
        {"at0": np.array(0), "at1": np.array(1), "at3": np.array(3), "table": random(12, 2)},
    )
    assert agree(model, *({"N": 1, "T": t} for t in (1, 9, 12, 13))) == [True, True, True, False]


@pytest.mark.parametrize(("condition", "shape"), [('""', "(3, N, 4)"), ("c", "(None, N, 4)")])
def test_a_loop_with_a_condition_may_end_before_its_count(condition, shape):
    body = f"""
        y = Loop (three, {condition}) <body = b (int64 i, bool k) => (bool k2, float[?, ?] v2)
            {{ k2 = Identity(k) v2 = Add(x, x) }}>"""
    model = parse(f"g (float[N, 4] x, bool c) => (float[?, ?, ?] y) {{ {body} }}", {"three": np.array(3)})
    assert str(propagate(model).tensors["y"].shape) == shape


@pytest.mark.parametrize(
    ("body", "shape"),
    [
        ("c = Constant<value_ints=[0, -1]>() y = Reshape(x, c)", "(N, 4*H)"),
        ("c = Constant<value_int=2>() y = Unsqueeze(x, c)", "(N, 4, 1, H)"),
        ("c = Constant<value_floats=[1.0, 2.0, 3.0]>() y = Resize(x, , c)", "(N, 8, 3*H)"),
        ("c = Constant<value=float {2.0}>() y = Mul(x, c)", "(N, 4, H)"),
        ("c = Constant<value_string=\"a\">() y = mine.Unknown(x, c)", "None"),
        ("y = Reshape<allowzero=1>(x, none)", "(0, 4)"),
        ("y = Reshape(x, same)", "(N, 4, H)"),
        ("y = Reshape<allowzero=1>(x, rest)", "(0, None)"),
        ("s = Shape(x) y = Reshape(s, pair)", "(2,)"),
        ("y = Transpose<perm=[1, 0]>(x)", "(None, None)"),
        ("s = Shape(x) y = Expand(s, many)", "(2000, 3)"),
        ("s = Shape<start=2>(x) h = Squeeze(s) y = Range(at0, two, h)", "(None,)"),
        ("y = Range(f0, f1, f2)", "(None,)"),
        ("y = Range(f1, f0, fm)", "(None,)"),
        ("y = Range(at0, long, one)", "(3000,)"),
        ("a, \"\" = Split<axis=1>(x) y = Relu(a)", "(N, 2, H)"),
        ("y = Scan<num_scan_inputs=1, body = b (float[4, h] a) => (float[4, h] r) { r = Neg(a) }>(x)", "None"),
        ("y = If (yes) <then_branch = t () => (float[?] a) { a = Concat<axis=1>(x, x) },"
         " else_branch = e () => (float[?] r) { r = Identity(x) }>", "(N, 8, H)"),
        ("y = If (no) <then_branch = t () => (float[?] a) { a = Concat<axis=1>(x, x) },"
         " else_branch = e () => (float[?] r) { r = Identity(x) }>", "(N, 4, H)"),
        ("y = Loop (two, \"\", x) <body = b (int64 i, bool k, float[?, ?, ?] v) => (bool k2, float[?, ?, ?] v2)"
         " { k2 = Identity(k) v2 = Concat<axis=0>(v, v) }>", "(None, 4, H)"),
        ("y = Loop (two, \"\", x) <body = b (int64 i, bool k, float[?, ?, ?] v) => (bool k2, float[?, ?, ?] v2)"
         " { k2 = Identity(k) v2 = Unsqueeze(v, i) }>", "None"),
    ],
)  # fmt: skip
def test_values_in_the_graph_and_what_it_runs(body, shape):
    weights = {"none": ints(0, 4), "same": ints(0, 0, 0), "yes": np.array(True), "no": np.array(False), "two": np.array(2)}
    weights |= {"rest": ints(0, -1), "pair": ints(2), "many": ints(2000, 1), "at0": np.array(0), "one": np.array(1)}
    weights |= {"f0": np.array(0, np.float32), "f1": np.array(1, np.float32), "f2": np.array(0.25, np.float32)}
    weights |= {"fm": np.array(-1, np.float32), "long": np.array(3000)}
    used = {key: value for key, value in weights.items() if re.search(rf"[( ]{key}[,)]", body)}
    model = parse(f"g (float[N, 4, H] x) => (float[?] y) {{ {body} }}", used)
    model.opset_import.add(domain="mine", version=1)
    assert str(propagate(model).tensors["y"].shape) == shape


@pytest.mark.parametrize(("count", "demands"), [("two", 1), ("m", 0)])
def test_demands_of_a_body_that_may_not_run_are_no_demands(count, demands):
    body = "{ k2 = Identity(k) w = Add(x, t) v2 = Identity(v) }"
    loop = f'y = Loop ({count}, "", x) <body = b (int64 i, bool k, float[N, H] v) => (bool k2, float[N, H] v2) {body}>'
    weights = {"t": random(1, 12), "two": np.array(2)}
    model = parse(f"g (float[N, H] x, int64 m) => (float[?, ?] y) {{ {loop} }}", weights)
    assert len(propagate(model).constraints) == demands


def test_what_takes_a_loop_many_turns_to_change_is_not_followed():
    names = [f"v{i}" for i in range(7)]
    given, made = (", ".join(f"float[?, 4] {name}{more}" for name in names) for more in ("", "2"))
    passed = " ".join(f"v{i}2 = Identity(v{i + 1})" for i in range(6))
    body = f"(int64 i, bool k, {given}) => (bool k2, {made}) {{ k2 = Identity(k) {passed} v62 = Concat<axis=0>(v6, v6) }}"
    loop = f'Loop (n, "", {", ".join("x" for _ in names)}) <body = b {body}>'
    found = propagate(parse(f"g (float[N, 4] x, int64 n) => (float[?, 4] y0) {{ y0, y1, y2, y3, y4, y5, y6 = {loop} }}"))
    assert [found.tensors[f"y{i}"].shape for i in (0, 6)] == [None, None]
    assert found.tensors["y0"].dtype == 1


def test_sequences_and_sparse_weights_among_the_inputs():
    model = parse("g (seq(float[N]) q, float[N, 3] x) => (float[?, ?] y) { y = Add(x, w) }")
    values = onnx.helper.make_tensor("w", 1, [2], [1.0, 2.0])
    indices = onnx.helper.make_tensor("w.indices", 7, [2], [0, 2])
    model.graph.sparse_initializer.append(onnx.helper.make_sparse_tensor(values, indices, [1, 3]))
    found = propagate(model)
    assert found.tensors["q"].shape is None
    assert found.tensors["w"].shape == (1, 3)
    assert str(found.tensors["y"].shape) == "(N, 3)"


def test_numbers_that_break_a_demand_are_told_apart_from_symbols_that_may():
    text = "g (float[{0}, 3, 4] x) => (float[?, ?] y) {{ y = Reshape(x, to) }}"
    assert propagate(parse(text.format("2"), {"to": np.array([4, 6])})).broken == []
    (broken,) = propagate(parse(text.format("3"), {"to": np.array([4, 6])})).broken
    assert broken == "node -> y (Reshape): the number of elements must stay the same"
    of_any = propagate(parse(text.format("N"), {"to": np.array([4, 6])}))
    assert (of_any.broken, len(of_any.constraints)) == ([], 1)


def test_sizes_that_are_bounded_as_floating_point_numbers():
    """As PyTorch writes the padding of a convolution that keeps ⌈length / stride⌉ positions."""
    text = """g (float[1, {0}] x) => (float[?] y) {{
        s = Shape(x) n = Gather(s, i1) f = Cast<to=1>(n) h = Mul(f, half) c = Ceil(h) d = Add(c, c) e = Sub(d, f)
        b = Clip(e, low) t = Clip(b, , high) p = Cast<to=7>(t) y = ConstantOfShape(p)
    }}"""
    values = {"i1": np.array([1]), "half": np.array(0.5, np.float32), "low": np.array(0.5, np.float32)}
    values["high"] = np.array(3, np.float32)
    lengths = [propagate(parse(text.format(size), values)).tensors["y"].shape for size in (6, 7)]
    assert lengths == [(0,), (1,)]


def test_tables_of_floating_point_numbers_are_no_sizes():
    """A grid of positions takes long to add up number by number."""
    text = "g (float[N] x) => (float[?, ?] y) { y = Add(rows, columns) }"
    grid = {"rows": random(32, 1), "columns": random(1, 32)}
    assert propagate(parse(text, grid)).tensors["y"].elements is not None
    long = {"rows": random(100, 1), "columns": random(1, 3)}
    found = propagate(parse(text, long)).tensors["y"]
    assert (found.shape, found.elements) == ((100, 3), None)
