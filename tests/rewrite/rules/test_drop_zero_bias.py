"""drop-zero-bias: additions of zero behind matrix products, which go where TensorRT for RTX has fewer kernels without them."""

from __future__ import annotations

import numpy as np
import onnx
import pytest

from tests.models import parse, random
from tests.oracle import worst_relative_error
from tests.rewrite.rules.contract import assert_refuses
from tests.rewrite.rules.refusals import Refusal
from trtnorm_cli.profile.rewriting import RewriteSettings
from trtnorm_cli.rewrite.prepare import OpenedModel, prepare
from trtnorm_cli.rewrite.rules import RULES, fold_scale_shift_upstream
from trtnorm_cli.rewrite.rules import drop_zero_bias as rule
from trtnorm_cli.tensorrt.build_request import request_for
from trtnorm_cli.tensorrt.variants import VariantBuilder

TOKENS, OPEN, PATCHES = "float[2, 7, 4] x", "float[N, 7, 4] x", "float[N, 3, 7, 4] x"
LINEAR, ZEROS = random(4, 12), np.zeros(12, np.float32)
SAME, DIFFERENT = ({"x": (2, 7, 4)},) * 3, ({"x": (1, 7, 4)}, {"x": (2, 7, 4)})


def model(x: str, body: str, outputs: str = "y", **weights: np.ndarray) -> onnx.ModelProto:
    declared = ", ".join(f"float[] {name}" for name in outputs.split())
    return parse(f"g ({x}) => ({declared}) {{ {body} }}", {"w": LINEAR, "z": ZEROS, **weights})


def i64(*values: int) -> np.ndarray:
    return np.array(values, np.int64)


@pytest.mark.parametrize(
    "body",
    ["c = MatMul(x, w) y = Add(c, z)", "c = MatMul(x, w) y = Add(z, c)", "c = MatMul(x, w) y = Sub(c, z)"],
)
def test_a_bias_of_zeros_goes(rewrite, body):
    source = model(TOKENS, body)
    result = rewrite(source, rules=(rule.RULE,))
    assert (result.rules, result.operators) == (["drop-zero-bias"], ["MatMul"])
    assert worst_relative_error(source, result.model) == 0


def test_a_bias_of_zeros_goes_behind_weights_of_int8(rewrite):
    weights = {"q": np.ones((4, 12), np.int8), "s": np.full(12, 0.5, np.float32)}
    source = model(TOKENS, "w8 = DequantizeLinear <axis=1> (q, s) c = MatMul(x, w8) y = Add(c, z)", **weights)
    assert rewrite(source, rules=(rule.RULE,)).operators == ["DequantizeLinear", "MatMul"]


@pytest.mark.parametrize(
    "body",
    [
        "c = MatMul(x, w) y = Add(c, b)",
        "c = MatMul(x, w) y = Sub(z, c)",
        "c = MatMul(x, w) t = Tanh(c) y = Add(t, z)",
        "c = MatMul(x, w) y = Add(c, z) n = Neg(c)",
        "t = Transpose(x) c = MatMul(x, t) y = Add(c, z)",
        "c = MatMul(x, w) y = Add(c, more)",
    ],
    ids=["not zero", "subtracted from", "an activation between", "used elsewhere", "no weights", "it has more axes"],
)
def test_other_additions_stay(rewrite, body):
    further = {"b": random(12), "more": np.zeros((1, 1, 1, 12), np.float32)}
    result = rewrite(model(TOKENS, body, outputs="y n" if " n = " in body else "y", **further), rules=(rule.RULE,))
    assert (result.rules, list(result.outcome.rejections)) == ([], [])


@pytest.mark.parametrize(
    ("x", "settings", "after"),
    [
        (OPEN, RewriteSettings(), "MatMul Add"),
        (OPEN, RewriteSettings(corners=DIFFERENT), "MatMul Add"),
        (OPEN, RewriteSettings(corners=SAME), "MatMul"),
        (OPEN, RewriteSettings(measured=True), "MatMul Add"),
        (OPEN, RewriteSettings(measured=True, counted=True), "MatMul"),
        (PATCHES, RewriteSettings(measured=True), "MatMul"),
        (PATCHES, RewriteSettings(), "MatMul Add"),
    ],
    ids=[
        *("open", "open in the build profile", "one size in the build profile", "time decides"),
        *("kernels decide", "four axes, time decides", "four axes"),
    ],
)
def test_of_open_sizes_it_goes_where_it_is_a_kernel_of_its_own(rewrite, x, settings, after):
    """TensorRT for RTX lays out what follows in the kernel of that addition."""
    source = model(x, "c = MatMul(x, w) y = Add(z, c)")
    assert rewrite(source, rules=(rule.RULE, fold_scale_shift_upstream.RULE), settings=settings).operators == after.split()


def parts(split: str, shape: tuple[int, ...] = (2, 7, 3, 4), moved: str = "a = Reshape(c, shape)") -> onnx.ModelProto:
    body = f"m = MatMul(x, w) c = Add(m, z) {moved} {split}"
    given = {"uneven": i64(1, 1, 2), "thirds": i64(4, 4, 4), "halves": i64(2, 2), "of12": i64(3, 3, 6), "shape": i64(*shape)}
    ends = {"n0": i64(0), "n1": i64(1), "n2": i64(2), "n4": i64(4), "n8": i64(8), "n12": i64(12), "last": i64(-1)}
    outputs = " ".join(name for name in "pqr" if f"{name} =" in split or f"{name}," in split)
    return model(TOKENS, body, outputs, **given, **ends, first=np.array(0), second=np.array(1))


SLICED = "p = Slice(a, n0, n2, last) q = Slice(a, n2, n4, last)"


@pytest.mark.parametrize(
    ("source", "goes"),
    [
        (parts("p, q = Split <axis=-1> (a, halves)"), False),
        (parts("t = Transpose <perm=[0, 2, 1, 3]> (a) p, q = Split <axis=-1> (t, halves)"), False),
        (parts(SLICED), False),
        (parts("p, q, r = Split <axis=-1> (a, uneven)"), False),
        (parts("p, q, r = Split <axis=-1> (c, of12)", moved=""), False),
        (parts("p, q, r = Split <axis=-1> (c, thirds)", moved=""), True),
        (parts("p = Slice(c, n0, n4, last) q = Slice(c, n4, n8, last) r = Slice(c, n8, n12, last)", moved=""), True),
        (parts("p = Slice(c, n0, n4, last) q = Slice(c, n4, n12, last)", moved=""), False),
        (parts("p = Slice(a, n0, n2, last)"), True),
        (parts("t = Transpose <perm=[2, 0, 1, 3]> (a) p = Gather(t, first) q = Gather(t, second)"), True),
        (parts("t = Transpose <perm=[2, 0, 1, 3]> (a) p = Slice(t, n0, n1, n0) q = Slice(t, n1, n2, n0)"), True),
        (parts("u = Squeeze(a) p = Relu(u)", (2, 7, 1, 12)), True),
        (parts("t = Transpose(c) p = Concat <axis=0> (t, t)", moved=""), False),
        (parts("t = Relu(c) u = Transpose(t) p = Concat <axis=0> (u, x)", moved=""), False),
        (parts("s = Slice(c, n8, n12, last) r = Slice(c, n0, n8, last) p = Concat <axis=-1> (s, r)", moved=""), False),
    ],
    ids=[
        *("heads in halves", "transposed", "slices of heads", "heads, unevenly", "unevenly", "in thirds", "slices, in thirds"),
        *(
            "slices, unevenly",
            "one slice",
            "one index each",
            "one index each, in slices",
            "not split",
            "concatenated",
            "activated first",
            "rolled",
        ),
    ],
)
def test_what_is_split_of_each_head_or_unevenly_stays(rewrite, source, goes):
    """TensorRT for RTX does that in the kernel of the addition, and in several without it: TinyViT took 7 % more time."""
    assert rewrite(source, rules=(rule.RULE,)).rules == ["drop-zero-bias"] * goes
    assert rewrite(source, rules=(rule.RULE,), settings=RewriteSettings(counted=True)).rules == ["drop-zero-bias"]


@pytest.mark.parametrize(
    ("behind", "goes"),
    [
        ("q, k, v = Split <axis=-1> (a, thirds) p = Transpose(k) y = Concat <axis=0> (p, p)", False),
        ("q, k, v = Split <axis=-1> (a, thirds) p = Mul(q, k) y = Add(p, v)", True),
        ("p = Transpose(a) y = Relu(p)", True),
    ],
    ids=["parts are moved", "parts are multiplied", "all of it is moved"],
)
def test_on_four_axes_what_is_taken_and_moved_stays(rewrite, behind, goes):
    """Twelve attentions of windows and of images took 11 to 16 % longer without the additions."""
    source = model("float[2, 3, 7, 4] x", f"c = MatMul(x, w) a = Add(c, z) {behind}", thirds=i64(4, 4, 4))
    assert rewrite(source, rules=(rule.RULE,)).rules == ["drop-zero-bias"] * goes


REFUSALS = [
    Refusal(
        rule.nothing_is_split_or_joined,
        parts("p, q = Split <axis=-1> (a, halves)"),
        "what is split behind Add -> c is split in the kernel of that addition",
    ),
    Refusal(
        rule.nothing_is_split_or_joined,
        model(
            "float[2, 3, 7, 4] x",
            "c = MatMul(x, w) a = Add(c, z) q, k, v = Split <axis=-1> (a, s) y = Transpose(k)",
            s=i64(4, 4, 4),
        ),
        "what is split and moved behind Add -> a is so in the kernel of that addition",
    ),
    Refusal(
        rule.nothing_is_split_or_joined,
        model(TOKENS, "c = MatMul(x, w) a = Add(c, z) t = Tanh(a) y = Concat <axis=-1> (a, t)"),
        "what Add -> a gives is concatenated in the kernel of that addition",
    ),
]


@pytest.mark.parametrize("case", REFUSALS, ids=lambda case: case.name)
def test_refuses(rewrite, case):
    assert_refuses(rewrite, case, rule.RULE)


ATTENDED_BY = "k = Transpose <perm=[0, 1, 3, 2]> (q) s = MatMul(q, k) y = Relu(s)"


@pytest.mark.parametrize(
    ("x", "behind", "pays"),
    [
        (TOKENS, "y = Relu(a)", True),
        (TOKENS, "e = Erf(a) y = Mul(a, e)", True),
        (TOKENS, "y = Add(a, b)", True),
        (TOKENS, "y = MatMul(a, v)", True),
        (TOKENS, f"r = Reshape(a, h) q = Transpose <perm=[0, 2, 1, 3]> (r) {ATTENDED_BY}", True),
        (TOKENS, f"r = Reshape(a, h) p = Transpose <perm=[0, 2, 1, 3]> (r) q = Mul(p, o) {ATTENDED_BY}", True),
        (TOKENS, "r = Reshape(a, i) t = Transpose(r) y = MatMul(r, t)", False),
        (TOKENS, "r = Reshape(a, h) q = Transpose <perm=[0, 2, 1, 3]> (r) y = Softmax <axis=-1> (q)", False),
        (TOKENS, "y = Softmax <axis=-1> (a)", False),
        (TOKENS, "r = Relu(a)", False),
        ("float[2, 3, 7, 4] x", "y = Relu(a)", True),
        ("float[2, 3, 7, 4] x", "t = Transpose <perm=[0, 3, 1, 2]> (a) y = Add(t, f)", False),
        (TOKENS, "t = Transpose <perm=[0, 2, 1]> (a) r = Reshape(t, plane) y = Conv(r, kernel)", True),
        (PATCHES, "y = Relu(a)", False),
        (TOKENS, "g, u = Split <axis=2> (a, halves) s = Sigmoid(g) n = Mul(g, s) y = Mul(n, u)", True),
        (TOKENS, "g = Slice(a, zero, six, two) u = Slice(a, six, far, two) s = Relu(g) y = Mul(s, u)", True),
        (TOKENS, "g, u = Split <axis=2> (a, halves) t = Transpose <perm=[0, 2, 1]> (u) y = MatMul(g, t)", False),
        (TOKENS, "g, u = Split <axis=2> (a, halves) s = Softmax <axis=-1> (g) y = Mul(s, u)", False),
        (TOKENS, "m = Reshape(a, h) s = Sigmoid(m) y = Mul(m, s)", False),
    ],
    ids=[
        *("activated", "activated in pieces", "added", "multiplied", "heads", "scaled heads", "heads in the batch"),
        *("normalized over heads", "normalized", "a result", "four axes", "moved on four axes", "an image", "open sizes"),
        *("gated", "gated by slices", "parts that are multiplied", "a part that is normalized", "activated heads"),
    ],
)
def test_where_it_is_known_to_pay_it_goes_as_in_passing(rewrite, x, behind, pays):
    """Elsewhere an engine has to show it: an attention along one axis of an image took 25 % longer."""
    image = {"f": random(2, 12, 3, 7), "plane": i64(2, 12, 7, 1), "kernel": random(12, 12, 1, 1)}
    parts = {"halves": i64(6, 6), "zero": i64(0), "six": i64(6), "two": i64(2), "far": i64(2**40)}
    given = {
        **parts,
        "b": random(2, 7, 12),
        "v": random(12, 3),
        "h": i64(2, 7, 3, 4),
        "i": i64(14, 12),
        "o": np.float32(0.5),
        **image,
    }
    source = model(x, f"c = MatMul(x, w) a = Add(c, z) {behind}", "a r" if "r = Relu" in behind else "y", **given)
    result = rewrite(source, (rule.RULE,), settings=RewriteSettings(measured=True))
    (change,) = result.outcome.changes
    assert change.in_passing is pays


def test_a_second_pass_changes_nothing(rewrite):
    once = rewrite(model(TOKENS, "c = MatMul(x, w) y = Add(c, z)"), rules=RULES)
    assert rewrite(once.model, rules=RULES).outcome.changes == []


def heads(name: str, order: str) -> str:
    """A product with weights, a bias of zeros, and the heads brought forward."""
    product = f"m{name} = MatMul(x, w{name}) b{name} = Add(m{name}, zero)"
    return f"{product} r{name} = Reshape(b{name}, heads) {name} = Transpose <perm=[{order}]> (r{name})"


def of_each_head(name: str, order: str) -> str:
    return f"{name} = Transpose <perm=[{order}]> (p{name})"


ATTENDED = (
    "s = MatMul(q, k) p = Softmax <axis=-1> (s) o = MatMul(p, v) t = Transpose <perm=[0, 2, 1, 3]> (o)"
    " f = Reshape(t, flat) y = Add(f, x)"
)
ORDERS = {"q": "0, 2, 1, 3", "k": "0, 2, 3, 1", "v": "0, 2, 1, 3"}
ATTENTION = f"{' '.join(heads(name, order) for name, order in ORDERS.items())} {ATTENDED}"
ATTENTION_OF_SPLIT_HEADS = (
    "m = MatMul(x, w) b = Add(m, zero3) r = Reshape(b, heads3) pq, pk, pv = Split <axis=-1> (r, split)"
    f" {' '.join(of_each_head(name, order) for name, order in ORDERS.items())} {ATTENDED}"
)


@pytest.mark.rtx
@pytest.mark.parametrize(
    ("body", "batch", "saved"),
    [(ATTENTION, "N", 0), (ATTENTION, "2", 2), (ATTENTION_OF_SPLIT_HEADS, "2", 0)],
    ids=["open", "fixed", "heads are split"],
)
def test_untrained_attention_takes_no_more_kernels(tmp_path, body, batch, saved):
    """Without its biases of zeros, attention takes 2 kernels more where the batch is open, and 2 fewer where it is fixed."""
    weights = {f"w{name}": random(64, 64) for name in "qkv"} | {"w": random(64, 192)}
    shapes = {"heads": i64(0, 16, 4, 16), "flat": i64(0, 16, 64), "zero": np.zeros(64, np.float32)}
    split = {"heads3": i64(0, 16, 4, 48), "split": i64(16, 16, 16), "zero3": np.zeros(192, np.float32)}
    text = f"g (float[{batch}, 16, 64] x) => (float[{batch}, 16, 64] y) {{ {body} }}"
    onnx.save(parse(text, {**weights, **shapes, **split}, opset=18), tmp_path / "m.onnx")
    (tmp_path / "p.yaml").write_text("dims: {N: {min: 1, opt: 2, max: 4}}\n" if batch == "N" else "{}\n")
    prepared = prepare(OpenedModel.of_file(tmp_path / "m.onnx", tmp_path / "p.yaml"))
    session = prepared.session()
    builder = VariantBuilder(tmp_path, request_for(prepared, "tensorrt-rtx", tmp_path / "m.engine"), lambda result, model: None)
    without, with_changes = (builder.built(session.rewrite(policy)).kernels for policy in ("never", "always"))
    assert not without.reason, without.reason
    assert with_changes.launches == without.launches - saved
