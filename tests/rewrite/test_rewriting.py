"""From a file to a rewritten model: cleaning and rules together, on graphs as exporters write them."""

from __future__ import annotations

import numpy as np
import onnx
import pytest

from tests.models import batchnorm, loaded, operators, parse, random, saved
from tests.oracle import worst_relative_error
from tests.rewritings import rewrite
from trtnorm_cli.errors import RewriteError
from trtnorm_cli.evaluate import ort_runner
from trtnorm_cli.onnx_model.load import LoadedModel, load_model
from trtnorm_cli.onnx_model.save import save_model
from trtnorm_cli.rewrite.prepare import OpenedModel, prepare
from trtnorm_cli.rewrite.rewriting import require_valid

BN = "BatchNormalization(c, gamma, beta, mu, var)"
IO = "(float[N, 2, H, W] x) => (float[N, 4, H2, W2] y)"


def rewritten(model: onnx.ModelProto, folder, pins=None):
    source = loaded(model, folder)
    before = source.proto.SerializeToString(deterministic=True)
    result = rewrite(source, pins)
    assert source.proto.SerializeToString(deterministic=True) == before, "the loaded model is not changed"
    assert result.failed == ()
    assert all(undone.reason.startswith("the change cannot be proved") for undone in result.undone)
    return result


def weights(*names: str, **more: np.ndarray) -> dict[str, np.ndarray]:
    known = {"w": random(4, 2, 3, 3), "v": random(4, 4, 3, 3), "b": random(4), **batchnorm(4)}
    return {name: known[name] for name in (*names, "gamma", "beta", "mu", "var")} | more


AS_EXPORTED = {
    "parameters behind Identity": (
        "{ g2 = Identity(gamma) c = Conv(x, w) y = BatchNormalization(c, g2, beta, mu, var) }", weights("w"), 17
    ),
    "a bias of Expand and CastLike": (
        "{ s = Shape(b) z = Constant <value = int64 {0}>() f = CastLike(z, w) e = Expand(f, s) c = Conv(x, w, e) "
        f"y = {BN} }}", weights("w", "b"), 18
    ),
    "a weight behind a Transpose": (
        f"{{ t = Transpose <perm=[3, 2, 0, 1]>(wt) c = Conv(x, t) y = {BN} }}", weights(wt=random(3, 3, 2, 4)), 17
    ),
    "a weight in float16": (
        f"{{ f = Cast <to=1>(wh) c = Conv(x, f) y = {BN} }}", weights(wh=random(4, 2, 3, 3, dtype=np.float16)), 17
    ),
    "a variance that is computed": (
        "{ q = Mul(std, std) c = Conv(x, w) y = BatchNormalization(c, gamma, beta, mu, q) }",
        weights("w", std=random(4) + 3), 17
    ),
    "Identity between the two": (f"{{ i = Conv(x, w) c = Identity(i) y = {BN} }}", weights("w"), 17),
    "Dropout between the two": (f"{{ i = Conv(x, w) c = Dropout(i) y = {BN} }}", weights("w"), 12),
    "a dead consumer": (f"{{ c = Conv(x, w) dead = Relu(c) y = {BN} }}", weights("w"), 17),
}  # fmt: skip


@pytest.mark.parametrize(("nodes", "values", "opset"), AS_EXPORTED.values(), ids=AS_EXPORTED)
def test_what_only_needs_cleaning_first(tmp_path, nodes, values, opset):
    model = parse(f"g {IO} {nodes}", values, opset=opset)
    result = rewritten(model, tmp_path)
    assert [change.rule for change in result.changes] == ["fold-batchnorm-conv"]
    assert operators(result.model) == ["Conv"]
    assert worst_relative_error(model, result.model, {"x": (2, 2, 8, 9)}) < 1e-6


def test_inside_a_function(tmp_path):
    model = parse(f"g {IO} {{ c = Conv(x, w) y = mine.normed(c, gamma, beta, mu, var) }}".replace("mine.", ""), weights("w"))
    model.graph.node[1].domain = "mine"
    model.opset_import.add(domain="mine", version=1)
    function = onnx.parser.parse_function(
        '<opset_import: ["" : 17], domain: "mine"> normed (c, gamma, beta, mu, var) => (y)'
        "{ y = BatchNormalization(c, gamma, beta, mu, var) }"
    )
    model.functions.append(function)
    result = rewritten(model, tmp_path)
    assert [change.rule for change in result.changes] == ["fold-batchnorm-conv"]
    assert operators(result.model) == ["Conv"]


def test_a_residual_block(tmp_path):
    """Two folded pairs, a shortcut around them, and one pair on the shortcut."""
    model = parse(
        f"""g {IO} {{
            s = Conv(x, w) sb = BatchNormalization(s, gamma, beta, mu, var)
            c1 = Conv <pads=[0, 0, 0, 0]>(x, w) b1 = BatchNormalization(c1, gamma1, beta1, mu1, var1) r1 = Relu(b1)
            c2 = Conv <pads=[1, 1, 1, 1]>(r1, v) b2 = BatchNormalization(c2, gamma2, beta2, mu2, var2)
            a = Add(b2, sb) y = Relu(a) }}""",
        weights("w", "v", **batchnorm(4, seed=1, suffix="1"), **batchnorm(4, seed=2, suffix="2")),
    )
    result = rewritten(model, tmp_path)
    assert [change.rule for change in result.changes] == ["fold-batchnorm-conv"] * 3
    assert sorted(operators(result.model)) == sorted(["Conv", "Conv", "Relu", "Conv", "Add", "Relu"])
    assert worst_relative_error(model, result.model, {"x": (2, 2, 8, 9)}) < 1e-6


def test_two_norms_in_a_row_both_go_into_the_convolution(tmp_path):
    model = parse(
        f"g {IO} {{ i = Conv(x, w) c = BatchNormalization(i, gamma1, beta1, mu1, var1) y = {BN} }}",
        weights("w", **batchnorm(4, seed=1, suffix="1")),
    )
    result = rewritten(model, tmp_path)
    assert operators(result.model) == ["Conv"]
    assert worst_relative_error(model, result.model, {"x": (2, 2, 8, 9)}) < 1e-6


def test_the_interface_stays(tmp_path):
    model = parse(
        "g (float[N, 2, H, W] x, int64[K] unused, bool t) => (float[N, 4, H2, W2] y, float[N, 2, H, W] x2, int64[K] echo)"
        f" {{ c = Conv(x, w) y = {BN} x2 = Identity(x) echo = Identity(unused) }}",
        weights("w"),
    )
    result = rewritten(model, tmp_path)
    assert list(result.model.graph.input) == list(model.graph.input)
    assert list(result.model.graph.output) == list(model.graph.output)
    onnx.checker.check_model(result.model, full_check=True)


def test_a_second_run_changes_nothing(tmp_path):
    model = parse(
        f"g {IO} {{ c = Conv(x, w) n = {BN} r = Relu(n) d = Relu(r) y = BatchNormalization(d, beta, mu, gamma, var) }}",
        weights("w"),
    )
    once = rewritten(model, tmp_path)
    assert once.changes
    twice = rewritten(once.model, tmp_path)
    assert twice.changes == ()
    for model in (once.model, twice.model):  # the second run also says the shapes of what the first one added
        del model.graph.value_info[:]
    assert twice.model == once.model


def test_weights_in_an_external_file(tmp_path):
    model, stored = (
        parse(f"g {IO} {{ c = Conv(x, w) n = {BN} y = Conv <pads=[1, 1, 1, 1]>(n, v) }}", weights("w", "v")) for _ in range(2)
    )
    (tmp_path / "in").mkdir()
    (tmp_path / "out").mkdir()
    onnx.save(stored, str(tmp_path / "in" / "m.onnx"), save_as_external_data=True, location="m.bin", size_threshold=0)
    source = load_model(tmp_path / "in" / "m.onnx")
    result = rewrite(source)
    assert [change.rule for change in result.changes] == ["fold-batchnorm-conv"]
    save_model(result.model, tmp_path / "out" / "m.onnx", result.folder)
    again = onnx.load(str(tmp_path / "out" / "m.onnx"))
    assert worst_relative_error(model, again, {"x": (2, 2, 8, 9)}) < 1e-6


def test_changes_are_proved_at_the_shapes_asked_for(tmp_path):
    result = rewritten(parse(f"g {IO} {{ c = Conv(x, w) y = {BN} }}", weights("w")), tmp_path, {"x": (3, 2, 11, 13)})
    assert [change.check.shapes for change in result.changes] == [{"x": [3, 2, 11, 13]}]


def test_without_shapes_the_input_is_made_large_enough(tmp_path):
    """Seven halvings: 64 pixels would vanish."""
    downs = " ".join(f"p{i + 1} = MaxPool <kernel_shape=[2, 2], strides=[2, 2]>(p{i})" for i in range(7))
    model = parse(
        f"g (float[N, 2, H, W] p0) => (float[N, 4, H2, W2] y) {{ {downs} c = Conv <kernel_shape=[1, 1]>(p7, k) y = {BN} }}",
        weights(k=random(4, 2, 1, 1)),
    )
    (change,) = rewritten(model, tmp_path).changes
    assert change.check.shapes == {"p7": [2, 2, 1, 1]}


def test_an_operator_that_nobody_knows_does_not_stop_the_rest(tmp_path):
    model = parse(
        f"g {IO} {{ o = Odd(x) c = Conv(o, w) n = {BN} a = Conv(x, w)"
        " m = BatchNormalization(a, gamma, beta, mu, var) y = Add(n, m) }",
        weights("w"),
    )
    model.graph.node[0].domain = "mine"
    model.opset_import.add(domain="mine", version=1)
    result = rewritten(model, tmp_path)
    assert "fold-batchnorm-conv" in [change.rule for change in result.changes]
    assert operators(result.model) == ["Odd", "Conv", "BatchNormalization", "Conv", "Add"]
    (reason,) = [undone.reason for undone in result.undone if undone.rule == "fold-batchnorm-conv"]
    assert reason == "the change cannot be proved: type and shape of o are not known"


def test_what_the_source_is_charged_with_is_no_fault_of_the_result(tmp_path):
    good = parse("g (float[2] x) => (float[2] y) { y = Relu(x) }")
    bad = parse("g (float[2] x) => (float[2] y) { y = Relu(x, x) }")
    for name, model in (("good", good), ("bad", bad)):
        (tmp_path / f"{name}.onnx").write_bytes(model.SerializeToString())
    sources = {name: LoadedModel(tmp_path / f"{name}.onnx", model) for name, model in (("good", good), ("bad", bad))}
    require_valid(sources["good"], tmp_path / "good.onnx")
    require_valid(sources["bad"], tmp_path / "bad.onnx")
    with pytest.raises(RewriteError, match="the rewritten model is not valid ONNX, so nothing was written") as caught:
        require_valid(sources["good"], tmp_path / "bad.onnx")
    assert caught.value.exit_code == 4


def test_the_shape_of_an_output_may_be_stated_wrongly(tmp_path):
    """As PaddlePaddle's exporter writes a scalar for the text of a line: it follows once the shape of a Reshape is known."""
    text = """g (float[N, 2, 48, W] x) => (float[] y) {
        c = Conv(x, w) n = BatchNormalization(c, gamma, beta, mu, var)
        s = Shape(n) b = Slice(s, zero, one) t = Slice(s, three, four) k = Concat<axis=0>(b, rest, t)
        r = Reshape(n, k) p = Transpose<perm=[0, 2, 1]>(r) y = Softmax<axis=2>(p) }"""
    numbers = {name: np.array([value]) for name, value in (("zero", 0), ("one", 1), ("three", 3), ("four", 4), ("rest", -1))}
    model = parse(text, weights("w", **numbers), opset=11)
    model.graph.output[0].CopyFrom(onnx.helper.make_tensor_value_info("y", onnx.TensorProto.FLOAT, []))
    onnx.checker.check_model(model, full_check=True)
    result = rewritten(model, tmp_path)
    save_model(result.model, tmp_path / "made.onnx", tmp_path)
    require_valid(loaded(model, tmp_path), tmp_path / "made.onnx")
    assert result.notes == ("the file says that y is [], and it is [?, ?, ?]",)


def test_two_branches_that_use_one_name_for_different_tensors(tmp_path):
    """Valid ONNX. Taken for one tensor, the rank of one branch would be used in the other."""
    model = parse(
        """g (float[2, 4, 5, 5] x, bool t) => (float[2, 4, 5, 5] r) { r = If (t) <
            then_branch = a () => (float[2, 4, 5, 5] d) { c = Relu(x) d = BatchNormalization(c, gamma, beta, mu, var) },
            else_branch = b () => (float[2, 4, 5, 5] e) {
                s = Constant <value = int64[3] {2, 4, 25}>() c = Reshape(x, s) q = BatchNormalization(c, gamma, beta, mu, var)
                z = Constant <value = int64[4] {2, 4, 5, 5}>() e = Reshape(q, z) }> }""",
        weights(),
    )
    result = rewritten(model, tmp_path)
    onnx.checker.check_model(result.model, full_check=True)
    for seed in range(4):
        assert worst_relative_error(model, result.model, seed=seed) < 1e-6


@pytest.mark.parametrize("groups", [1, 2])
def test_parameters_that_are_not_finite_are_refused_whatever_a_rule_makes_of_the_node(tmp_path, groups):
    graph = f"g (float[2, 4, 5, 6] x) => (float[] y) {{ [gn] y = GroupNormalization <num_groups={groups}> (x, s, b) }}"
    scale = np.array([1, np.nan, 1, 1], np.float32)
    result = rewrite(loaded(parse(graph, {"s": scale, "b": np.zeros(4, np.float32)}, opset=21), tmp_path))
    (refusal,) = result.refusals
    assert refusal.reason == "its scale is not finite in channel 1 (nan)"


@pytest.mark.usefixtures("unshared_child")
@pytest.mark.parametrize(("body", "started"), [(f"c = Conv(x, w) y = {BN}", 1), ("y = Conv(x, w)", 0)])
def test_onnx_runtime_is_started_once_and_only_where_something_is_proved(tmp_path, monkeypatch, body, started):
    children = []
    real = ort_runner.OrtChild
    monkeypatch.setattr(ort_runner, "OrtChild", lambda *given: children.append(real(*given)) or children[-1])
    rewritten(parse(f"g {IO} {{ {body} }}", weights("w")), tmp_path)
    assert len(children) == started
    assert all(child._process._process.returncode is not None for child in children), "none is left running"


NORM = "(float[N, 4, 8, 8] x) => (float[N, 4, 8, 8] y)"


@pytest.mark.parametrize(
    ("graph", "more", "follows"),
    [
        (f"{NORM} {{ c = Conv(x, w) y = {BN} }}", {"w": random(4, 4, 1, 1)}, False),
        (f"{NORM} {{ y = InstanceNormalization(x, gamma, beta) }}", {}, True),
    ],
    ids=["nothing that only a build decides", "rows that a build decides"],
)
def test_a_rewriting_says_whether_it_would_be_another_without_builds(graph, more, follows, tmp_path):
    used = {name: value for name, value in {**batchnorm(4), **more}.items() if name in graph}
    opened = OpenedModel.of_file(saved(parse(f"g {graph}", used), tmp_path / "m.onnx"), None)
    session = prepare(opened, needs_sizes=False).session()
    measured = session.rewrite(measured=True)
    assert measured.follows_measured is follows
    assert follows or session.rewrite().changes == measured.changes
