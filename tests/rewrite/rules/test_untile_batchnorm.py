"""untile-batchnorm: instance normalization with running statistics, as both PyTorch exporters write it."""

from __future__ import annotations

import numpy as np
import onnx
import pytest

from tests.models import batchnorm, loaded, operators, parse, random
from tests.oracle import evaluate
from tests.rewrite.rules.contract import assert_refuses
from tests.rewrite.rules.refusals import Refusal
from tests.rewritings import rewrite as rewrite_model
from trtnorm_cli.rewrite.parts import batchnorm as shared
from trtnorm_cli.rewrite.parts import data_channels
from trtnorm_cli.rewrite.rules import untile_batchnorm as rule

NAME = rule.RULE.name
NAMES = ("gamma", "beta", "mu", "var")
TILES = " ".join(f"t_{name} = Tile({name}, n)" for name in NAMES)
TILED = ", ".join(f"t_{name}" for name in NAMES)


def ints(*values: int) -> np.ndarray:
    return np.array(values, np.int64)


def dynamic(
    shape: str = "N, 4, 5, 6",
    fold: str = "f = Reshape(x, folded)",
    unfold: str = "[out] y = Reshape(b, unfolded)",
    attributes: str = "",
    outputs: str = "b",
    before: str = "",
    opset: int = 18,
    **weights: np.ndarray,
) -> onnx.ModelProto:
    """The dynamo form: parameters tiled by the batch size, which is known at run time only."""
    known = {"folded": ints(1, -1, 5, 6), "unfolded": ints(-1, 4, 5, 6), **batchnorm(4), **weights}
    bn = f"[bn] {outputs} = BatchNormalization {attributes}(f, {TILED})"
    source = "a" if before else "x"
    graph = (
        f"g (float[{shape}] {source}) => (float[] y) {{ {before} n = Shape <start=0, end=1> (x) {fold} {TILES} {bn} {unfold} }}"
    )
    return parse(graph, known, opset=opset)


def static(batch: int = 2, fold: tuple[int, ...] | None = None, unfold: tuple[int, ...] | None = None, **changed: np.ndarray):
    """The TorchScript form: everything is known, and the tiled parameters are constants."""
    tiled = {name: np.tile(value, batch) for name, value in batchnorm(4).items()}
    shapes = {"folded": ints(*(fold or (1, 4 * batch, 5, 6))), "unfolded": ints(*(unfold or (batch, 4, 5, 6)))}
    return parse(
        f"g (float[{batch}, 4, 5, 6] x) => (float[] y) {{ f = Reshape(x, folded)"
        " [bn] b = BatchNormalization(f, gamma, beta, mu, var) [out] y = Reshape(b, unfolded) }",
        {**shapes, **tiled, **changed},
    )


def worst(model: onnx.ModelProto, after: onnx.ModelProto, shape: tuple[int, ...], name: str = "x") -> float:
    feeds = {name: random(*shape)}
    wanted, got = evaluate(model, feeds)["y"], evaluate(after, feeds)["y"]
    assert wanted.shape == got.shape
    return float(np.max(np.abs(wanted - got)))


SIZES_BEHIND = "hw = Shape <start=2> (x) fs = Concat <axis=0> (head, hw) f = Reshape(x, fs)"
DYNAMIC_FORMS = {
    "static sizes": dynamic(),
    "allowzero": dynamic(unfold="[out] y = Reshape <allowzero=1> (b, unfolded)"),
    "zeros copy": dynamic(folded=ints(1, -1, 0, 0), unfolded=ints(-1, 4, 0, 0)),
    "symbolic sizes": dynamic("N, 4, H, W", SIZES_BEHIND, "s = Shape(x) [out] y = Reshape(b, s)", head=ints(1, -1)),
    "gathered sizes": dynamic(
        "N, 4, H, W",
        "s = Shape(x) i2 = Constant <value = int64 {2}> () i3 = Constant <value = int64[1] {3}> () h = Gather(s, i2)"
        " ax = Constant <value = int64[1] {0}> () h1 = Unsqueeze(h, ax) w1 = Gather(s, i3)"
        " fs = Concat <axis=0> (head, h1, w1) f = Reshape(x, fs)",
        "c = Slice(s, st, en) n0 = Concat <axis=0> (minus, c) [out] y = Reshape(b, n0)",
        head=ints(1, -1),
        st=ints(1),
        en=ints(4),
        minus=ints(-1),
    ),
}


@pytest.mark.parametrize("form", DYNAMIC_FORMS)
def test_a_batch_known_at_run_time(rewrite, form):
    result = rewrite(DYNAMIC_FORMS[form], (rule.RULE,), {"x": (3, 4, 5, 6)})
    assert result.rules == [NAME]
    assert operators(result.model) == ["BatchNormalization"]
    assert result.model.graph.node[0].name == "bn"
    for batch in (1, 2, 5):
        assert worst(DYNAMIC_FORMS[form], result.model, (batch, 4, 5, 6)) < 1e-12


@pytest.mark.parametrize("batch", [1, 2, 3])
@pytest.mark.parametrize("fold", [None, (1, -1, 5, 6), (1, -1, 0, 0)])
def test_a_batch_known_before(rewrite, batch, fold):
    model = static(batch, fold)
    result = rewrite(model, (rule.RULE,))
    assert result.rules == [NAME]
    assert operators(result.model) == ["BatchNormalization"]
    assert worst(model, result.model, (batch, 4, 5, 6)) < 1e-12


@pytest.mark.parametrize(("shape", "sizes"), [("N, 4, 7", (3, 4, 7)), ("N, 4, 3, 2, 5", (2, 4, 3, 2, 5)), ("N, 4", (3, 4))])
def test_every_rank(rewrite, shape, sizes):
    model = dynamic(shape, folded=ints(1, -1, *sizes[2:]), unfolded=ints(-1, *sizes[1:]))
    result = rewrite(model, (rule.RULE,), {"x": sizes})
    assert result.rules == [NAME]
    assert worst(model, result.model, sizes) < 1e-12


def test_what_is_left_folds_into_the_convolution(tmp_path):
    model = dynamic("N, 3, 7, 8", before="x = Conv(a, w)", w=random(4, 3, 3, 3))
    rewriting = rewrite_model(loaded(model, tmp_path))
    assert [change.rule for change in rewriting.changes] == [NAME, "fold-batchnorm-conv"]
    assert operators(rewriting.model) == ["Conv"]
    assert worst(model, rewriting.model, (3, 3, 7, 8), "a") < 1e-5


def test_other_reshapes_are_not_explained(rewrite):
    model = parse("g (float[2, 6] x) => (float[] y) { r = Relu(x) y = Reshape(r, s) }", {"s": ints(3, 4)})
    assert rewrite(model, (rule.RULE,)).outcome.rejections == ()


PER_ELEMENT = parse(
    "g (float[N, 4, 5, 6] x) => (float[] y) { n1 = Shape(x) n = Slice <starts=[0], ends=[1]> (n1)"
    f" f = Reshape(x, folded) {TILES} [bn] b = BatchNormalization <spatial=0> (f, {TILED}) [out] y = Reshape(b, unfolded) }}",
    {"folded": ints(1, -1, 5, 6), "unfolded": ints(-1, 4, 5, 6), **batchnorm(4)},
    opset=8,
)
UNKNOWN_RANK = parse(
    "g (float[N, 4] a, int64[K] k) => (float[] y) { x = Reshape(a, k) n = Shape <start=0, end=1> (x)"
    f" f = Reshape(x, folded) {TILES} b = BatchNormalization(f, {TILED}) [out] y = Reshape(b, unfolded) }}",
    {"folded": ints(1, -1, 5, 6), "unfolded": ints(-1, 4, 5, 6), **batchnorm(4)},
    opset=18,
)
REFUSALS = [
    Refusal(shared.is_inference, dynamic(attributes="<training_mode=1>", outputs="b, m, v"), "training_mode=1"),
    Refusal(shared.is_per_channel, PER_ELEMENT, "spatial=0"),
    Refusal(data_channels.type_and_rank_are_known, UNKNOWN_RANK, "type or rank of the data"),
    Refusal(rule.channels_are_known, dynamic("N, C, 5, 6"), "the number of channels of x is not known"),
    Refusal(
        rule.the_batch_is_folded_into_channels,
        dynamic(folded=ints(1, -1, 6, 5)),
        "does not move the batch of x into its channels",
    ),
    Refusal(rule.the_batch_is_folded_into_channels, dynamic(folded=ints(1, -1, 30)), "does not keep the rank of x"),
    Refusal(rule.the_batch_is_folded_into_channels, dynamic(folded=ints(-1, 4, 5, 6)), "does not move the batch"),
    Refusal(
        rule.the_batch_is_folded_into_channels,
        dynamic(
            fold="r = ReduceSum <keepdims=0> (x) i = Cast <to=7> (r) z = Mul(i, no) q = Add(folded, z) f = Reshape(x, q)",
            no=ints(0),
        ),
        "does not keep the rank of x",
    ),
    Refusal(rule.the_batch_is_unfolded_again, dynamic(unfolded=ints(-1, 4, 6, 5)), "out does not restore the shape of x"),
    Refusal(rule.the_batch_is_unfolded_again, dynamic(unfolded=ints(4, -1, 5, 6)), "out does not restore the shape of x"),
    Refusal(rule.the_batch_is_unfolded_again, dynamic(unfolded=ints(-1, 30)), "out does not restore the shape of x"),
    Refusal(rule.parameters_are_tiled, static(mu=random(8)), "mu is not one vector of 4 values, repeated"),
]


@pytest.mark.parametrize("case", REFUSALS, ids=lambda case: case.name)
def test_refuses(rewrite, case):
    assert_refuses(rewrite, case, rule.RULE, tolerant=True)


def test_a_folded_tensor_that_is_used_elsewhere(rewrite):
    model = dynamic(unfold="[out] y0 = Reshape(b, unfolded) e = ReduceSum <keepdims=0> (f) y = Add(y0, e)")
    result = rewrite(model, (rule.RULE,))
    assert result.outcome.changes == []
    assert "f is also used by" in result.reason(NAME)


def test_a_second_pass_changes_nothing(rewrite):
    twice = rewrite(rewrite(dynamic()).model)
    assert twice.outcome.changes == []
