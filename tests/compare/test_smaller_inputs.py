"""Smaller images stand in for a model's own in float64, and in nothing else; where anything is in doubt, they do not."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import onnx
import pytest
from onnx import numpy_helper

from tests.models import batchnorm, parse, random, saved
from trtnorm_cli.compare import smaller_first, smaller_inputs
from trtnorm_cli.compare.native_runs import NativeRuns
from trtnorm_cli.compare.participant_runs import ParticipantRuns
from trtnorm_cli.compare.participants import OnnxParticipant, onnx_participant
from trtnorm_cli.compare.result import FAILED, NOT_COMPARED, PASSED, Comparison
from trtnorm_cli.compare.session import Session, build_settings, judge_session
from trtnorm_cli.evaluate.float64 import free_values
from trtnorm_cli.evaluate.model_file import resized
from trtnorm_cli.evaluate.ort_runner import OrtRunner, RunFailed
from trtnorm_cli.profile.fit import fit
from trtnorm_cli.profile.model_input import inputs_of
from trtnorm_cli.profile.prove import prove

SIZES = {"x": (1, 3, 96, 96)}
DOWN = {"w": random(4, 3, 3, 3), "v": random(4, 4, 3, 3, seed=1)}
PLAIN = """g (float[1, 3, 96, 96] x) => (float[1, 4] y) {
    a = Conv<strides=[2, 2], pads=[1, 1, 1, 1]>(x, w)
    r = Relu(a)
    b = Conv<strides=[2, 2], pads=[1, 1, 1, 1]>(r, v)
    c = GlobalAveragePool(b)
    y = Flatten(c)
}"""


@pytest.fixture(autouse=True)
def _however_quick(monkeypatch):
    monkeypatch.setattr(smaller_inputs, "_FEW_MULTIPLY_ADDS", 0)


def shapes_of(text: str, weights: dict[str, np.ndarray], sizes: dict[str, tuple[int, ...]] = SIZES, **how: int):
    found = smaller_inputs.smaller_inputs(parse(text, weights, **how), sizes)
    return None if found is None else dict(found[0])


def test_convolutions_do_the_same_at_fewer_positions():
    assert shapes_of(PLAIN, DOWN) == {"x": (1, 3, 32, 64)}


@pytest.mark.parametrize(
    ("own", "smaller"),
    [((96, 96), (32, 64)), ((64, 64), (32, 32)), ((64, 96), (32, 64)), ((64, 128), (32, 64)), ((32, 64), None)],
)
def test_height_and_width_are_equal_only_where_they_have_to_be(own: tuple[int, int], smaller: tuple[int, int] | None):
    """One that is a step longer shows what was swapped. At 64 x 64 it would leave half of the work."""
    sizes = {"x": (1, 3, *own)}
    text = PLAIN.replace("float[1, 3, 96, 96]", f"float[1, 3, {own[0]}, {own[1]}]")
    assert shapes_of(text, DOWN, sizes) == (None if smaller is None else {"x": (1, 3, *smaller)})


@pytest.mark.parametrize(
    ("own", "wanted"),
    [
        (224, [(32, 64), (64, 96), (96, 128), (128, 160)]),
        (160, [(32, 64), (64, 96), (96, 96)]),
        (144, [(48, 80), (80, 112)]),
    ],
)
def test_an_image_within_one_that_was_too_small_is_not_looked_at(monkeypatch, own: int, wanted: list[tuple[int, int]]):
    looked_at = []
    monkeypatch.setattr(smaller_inputs, "is_large_enough", lambda own, other: looked_at.append(other.shape("x")[2:]))
    assert shapes_of(PLAIN.replace("96, 96", f"{own}, {own}"), DOWN, {"x": (1, 3, own, own)}) is None
    assert looked_at == wanted


def test_quick_models_are_left_as_they_are(monkeypatch):
    monkeypatch.setattr(smaller_inputs, "_FEW_MULTIPLY_ADDS", 1 << 20)
    assert shapes_of(PLAIN, DOWN) is None
    monkeypatch.setattr(smaller_inputs, "_FEW_MULTIPLY_ADDS", 1 << 17)
    assert shapes_of(PLAIN, DOWN) is not None


def body(lines: str, shape: str = "1, 3, 96, 96") -> str:
    return f"g (float[{shape}] x) => (float y) {{ a = Conv<pads=[1, 1, 1, 1]>(x, w) {lines} }}"


# All places along the third axis in order, and with the first repeated twice before and the last once after them.
RANGE = "s = Shape<start=2, end=3>(a) n = Squeeze(s) r = Range(zero, n, one)"
PADDED = "n3 = Add(n, three) r3 = Range(zero, n3, one) d = Sub(r3, two0) b = Max(d, zero) l = Sub(n, one) g = Min(b, l)"


# What a node does after a convolution with four channels at all positions.
@pytest.mark.parametrize(
    "lines",
    [
        "y = Relu(a)",
        "y = Concat<axis=1>(a, a)",
        "p, q = Split<axis=1>(a, two) y = Add(p, q)",
        "y = InstanceNormalization(a, four, four)",
        "y = ReduceMean<axes=[2, 3]>(a)",
        "y = MaxPool<kernel_shape=[2, 2], strides=[2, 2]>(a)",
        "y = Resize<mode='nearest'>(a, , twice)".replace("'", '"'),
        "y = Resize<mode='linear'>(a, , , sizes)".replace("'", '"'),
        "c = Slice(x, i0, i1, i1) e = Expand(c, whole) y = Add(a, e)",
        "p = GlobalAveragePool(a) e = Expand(p, whole) y = Add(a, e)",
        # What a mean over all positions is spread over again.
        "p = GlobalAveragePool(a) e = Resize<mode='linear'>(p, , , whole) y = Concat<axis=1>(a, e)".replace("'", '"'),
        "s = Shape(a) n = Gather(s, i0) k = Concat<axis=0>(n, minus1) y = Reshape(a, k)",
        "y = Slice(a, i0, i2, i1)",
        "y = Pad(a, pads)",
        "y = Gather<axis=1>(a, two)",
        f"{RANGE} y = Gather<axis=2>(a, r)",
        f"{RANGE} {PADDED} y = Gather<axis=2>(a, g)",
        "f = Reshape(a, rows) m = ReduceMean<axes=[2]>(f) y = Sub(f, m)",
        "t = Transpose<perm=[0, 2, 3, 1]>(a) u = MatMul(t, square) y = Transpose<perm=[0, 3, 1, 2]>(u)",
    ],
)
def test_what_does_not_know_its_position_does_the_same(lines: str):
    assert shapes_of(body(lines), WEIGHTS) == {"x": (1, 3, 32, 64)}


WEIGHTS = {
    "w": random(4, 3, 3, 3),
    "two": np.array([2, 2]),
    "four": random(4),
    "twice": np.array([1, 1, 2, 2], np.float32),
    "zero": np.array(0),
    "one": np.array(1),
    "two0": np.array(2),
    "three": np.array(3),
    "i0": np.array([0]),
    "i1": np.array([1]),
    "i2": np.array([2]),
    "minus1": np.array([-1]),
    "pads": np.array([0, 0, 1, 1, 0, 0, 1, 1]),
    "rows": np.array([0, 4, -1]),
    "square": random(4, 5),
    "table": random(96, 96),
    "sizes": np.array([1, 4, 192, 192]),
    "uneven": np.array([1, 4, 127, 127]),
    "whole": np.array([1, 4, 96, 96]),
    "plane": np.array([192, 192]),
    "halves": np.array([1, 4, 48, 2, 48, 2]),
    "axis2": np.array([2]),
    "i95": np.array([95]),
    "half": np.array([48, 48]),
    "wide": random(96, 8),
}


@pytest.mark.parametrize(
    "lines",
    [
        "y = Add(a, table)",  # each position has its own number
        "y = Resize<mode='nearest'>(a, , , uneven)".replace("'", '"'),  # 32 and 64 positions would become 42.3 and 84.7
        "y = Reshape(a, halves)",
        "y = Slice(a, i0, i95, axis2)",
        "p, q = Split<axis=2>(a, half) y = Add(p, q)",
        "y = Concat<axis=3>(a, a)",
        "y = MatMul(a, wide)",
        "y = CumSum(a, i1)",
        "y = Gather<axis=2>(a, two)",
        "y = Gather<axis=2>(a, i0)",
        f"{RANGE} b = Sub(n, r) p = Sub(b, one) y = Gather<axis=2>(a, p)",  # from the last to the first
        f"{RANGE} h = Div(r, two0) y = Gather<axis=2>(a, h)",
        f"{RANGE} l = Sub(n, one) c = Range(zero, l, one) y = Gather<axis=2>(a, c)",  # all but the last
        f"{RANGE} t = Add(n, n) q = Range(zero, t, one) l = Sub(n, one) p = Min(q, l) y = Gather<axis=2>(a, p)",
        "s = Shape(a) f = Cast<to=1>(s) n = ReduceProd<keepdims=0>(f) d = Div(n, n) e = Sin(n) y = Mul(a, e)",
    ],
)
def test_what_may_know_its_position_keeps_its_shapes(lines: str):
    assert shapes_of(body(lines), WEIGHTS) is None


def test_flattening_positions_into_a_product_keeps_its_shapes():
    lines = "g = Flatten(a) y = MatMul(g, large)"
    assert shapes_of(body(lines), WEIGHTS | {"large": random(4 * 96 * 96, 2)}) is None


def test_every_place_of_a_kernel_reaches_the_data():
    # At 32 x 64, two positions by four are left. A kernel of five reaches two places over either border, and needs three.
    text = """g (float[1, 3, 224, 224] x) => (float y) {
        a = Conv<strides=[16, 16], pads=[1, 1, 1, 1]>(x, w) y = Conv<pads=[PADS, PADS, PADS, PADS]>(a, k)
    }"""
    sizes = {"x": (1, 3, 224, 224)}
    three, five = DOWN | {"k": random(4, 4, 3, 3)}, DOWN | {"k": random(4, 4, 5, 5)}
    assert shapes_of(text.replace("PADS", "1"), three, sizes) == {"x": (1, 3, 32, 64)}
    assert shapes_of(text.replace("PADS", "2"), five, sizes) == {"x": (1, 3, 64, 96)}


def test_images_that_belong_together_get_the_same_size():
    text = """g (float[1, 3, 96, 96] x, float[1, 3, 96, 96] z, float[1, 7] k) => (float y, float u) {
        a = Conv<pads=[1, 1, 1, 1]>(x, w) b = Conv<pads=[1, 1, 1, 1]>(z, w) y = Sub(a, b) u = Relu(k)
    }"""
    sizes = {"x": (1, 3, 96, 96), "z": (1, 3, 96, 96), "k": (1, 7)}
    assert shapes_of(text, DOWN, sizes) == {"x": (1, 3, 32, 64), "z": (1, 3, 32, 64), "k": (1, 7)}


def test_channels_that_come_last_are_no_positions():
    text = """g (float[1, 96, 96, 3] x) => (float y) {
        t = Transpose<perm=[0, 3, 1, 2]>(x) y = Conv<pads=[1, 1, 1, 1]>(t, w)
    }"""
    assert shapes_of(text, DOWN, {"x": (1, 96, 96, 3)}) == {"x": (1, 32, 64, 3)}


def test_graphs_within_nodes_keep_their_shapes():
    text = """g (float[1, 3, 96, 96] x, bool c) => (float y) {
        a = Conv<pads=[1, 1, 1, 1]>(x, w)
        y = If(c) <then_branch = t () => (float p) { p = Relu(a) }, else_branch = e () => (float q) { q = Neg(a) }>
    }"""
    assert shapes_of(text, DOWN, {"x": (1, 3, 96, 96), "c": ()}) is None


RESTORED = """g (float[1, 3, 96, 96] x) => (float[1, 4, 96, 96] y) {
    a = Conv<pads=[1, 1, 1, 1]>(x, w)
    f = Reshape(a, rows)
    m = ReduceMean<axes=[2]>(f)
    d = Sub(f, m)
    y = Reshape(d, restored)
}"""


def test_sizes_that_are_written_as_numbers_are_those_of_the_tensor_that_is_restored():
    model = parse(RESTORED, WEIGHTS | {"restored": np.array([0, 4, 96, 96])})
    there = smaller_inputs.at_smaller(model, SIZES, {"x": (1, 3, 32, 64)})
    assert there is not None
    target = next(node for node in there.graph.node if node.output[0] == "y").input[1]
    values = {tensor.name: numpy_helper.to_array(tensor).tolist() for tensor in there.graph.initializer}
    assert values[target] == [1, 4, 32, 64]
    assert values["restored"] == [0, 4, 96, 96]
    assert "restored" in next(node for node in model.graph.node if node.output[0] == "y").input
    swapped = parse(RESTORED, WEIGHTS | {"restored": np.array([1, 4, 48, 192])})
    assert smaller_inputs.at_smaller(swapped, SIZES, {"x": (1, 3, 32, 64)}) is None


def test_an_image_without_elements_is_enlarged_by_no_factor():
    lines = "z = Slice(a, i0, i0, axis2) y = Resize(z, , , none)"
    assert shapes_of(body(lines), WEIGHTS | {"none": np.array([1, 4, 0, 192])}) is None


@pytest.mark.parametrize(("sizes", "axes", "wanted"), [("sizes", "", [1, 4, 64, 128]), ("plane", ", axes=[2, 3]", [64, 128])])
def test_an_image_is_enlarged_by_the_same_factor(tmp_path, sizes: str, axes: str, wanted: list[int]):
    lines = f"e = Resize<mode='linear'{axes}>(a, , , {sizes}) y = Relu(e)".replace("'", '"')
    model = parse(body(lines), WEIGHTS, opset=18)  # the first with the attribute axes
    there = smaller_inputs.at_smaller(model, SIZES, {"x": (1, 3, 32, 64)})
    assert there is not None
    target = next(node for node in there.graph.node if node.op_type == "Resize").input[3]
    assert {tensor.name: numpy_helper.to_array(tensor).tolist() for tensor in there.graph.initializer}[target] == wanted
    run = onnx.ModelProto.FromString(resized(there, {"x": (1, 3, 32, 64)}, tmp_path / "m.onnx"))
    with OrtRunner(threads=1) as runner:
        (made,) = runner.run(run, {"x": random(1, 3, 32, 64)}).values()
    assert made.shape == (1, 4, 64, 128)


# A build's comparison of a candidate.

CHAIN = """g (float[1, 3, 96, 96] x) => (float[1, 4] y) {
    a = Conv<pads=[1, 1, 1, 1]>(x, w)
    n = BatchNormalization(a, gamma, beta, mu, var)
    r = Relu(n)
    b = Conv<strides=[2, 2], pads=[1, 1, 1, 1]>(r, v)
    c = GlobalAveragePool(b)
    y = Flatten(c)
}"""
OF_CHAIN = DOWN | batchnorm(4)
SMALLER, OWN = "default min (smaller: x 1x3x32x64)", "default min"


@pytest.fixture
def compared(tmp_path) -> Callable[..., Comparison]:
    def participant(model: onnx.ModelProto, label: str) -> OnnxParticipant:
        return replace(onnx_participant(saved(model, tmp_path / f"{label}.onnx"), label), shares_tensors=True)

    def run(
        reference: onnx.ModelProto, *candidates: onnx.ModelProto, may_be_smaller: bool = True, is_unchanged: bool = False
    ) -> Comparison:
        made = [participant(model, f"candidate {number}") for number, model in enumerate(candidates)]
        settings = replace(build_settings(None, 0, lambda: 1e9, 60), may_be_smaller=may_be_smaller)
        proof = prove(reference, inputs := inputs_of(reference), None, fit(None, inputs), False) if is_unchanged else None
        return judge_session(Session(participant(reference, "m"), made, proof=proof, is_unchanged=is_unchanged), None, settings)

    return run


def changed(name: str, change: Callable[[np.ndarray], None], text: str = CHAIN) -> onnx.ModelProto:
    weights = {key: value.copy() for key, value in OF_CHAIN.items()}
    change(weights[name])
    return parse(text, weights)


def test_float64_looks_at_the_smaller_ones_and_runs_are_at_both(compared, runs):
    found = compared(parse(CHAIN, OF_CHAIN), parse(CHAIN, OF_CHAIN))
    (report,) = found.candidates
    assert (found.state, found.trials, found.notes, found.skipped) == (PASSED, [SMALLER, OWN], [], [])
    assert [(verdict.trial, verdict.exact) for verdict in report.verdicts] == [(SMALLER, 0.0), (OWN, None)]
    assert report.depth_at == SMALLER
    assert runs["plain"] == 2


@pytest.mark.parametrize(("most", "trials"), [(4 * 96 * 96 * 8, [OWN]), (4 * 96 * 96 * 8 - 1, [SMALLER, OWN])])
def test_a_model_that_stays_is_looked_at_smaller_where_its_products_are_too_large_for_any_values(
    compared, monkeypatch, most: int, trials: list[str]
):
    """Otherwise its network is held to it without any of its values, which takes less time still."""
    monkeypatch.setattr(free_values, "MOST_BYTES", most)
    monkeypatch.setattr(free_values, "LEAST_MULTIPLY_ADDS", 0)
    found = compared(parse(CHAIN, OF_CHAIN), parse(CHAIN, OF_CHAIN), is_unchanged=True)
    assert (found.state, found.trials) == (PASSED, trials)
    assert (found.float64["Conv"] == free_values.DESCRIPTION) == (trials == [OWN])


def one_channel(values: np.ndarray) -> None:
    values[2] *= 1 + 1e-4


def one_place(values: np.ndarray) -> None:
    values[:, :, 2, 0] *= 1 + 1e-4


@pytest.mark.parametrize(("name", "change"), [("w", one_channel), ("v", one_place), ("gamma", one_channel), ("w", one_place)])
def test_what_is_found_is_found_at_the_models_own_sizes(compared, name, change):
    """A difference is told as without smaller inputs, to the last figure."""
    pair = parse(CHAIN, OF_CHAIN), changed(name, change)
    found, wanted = compared(*pair), compared(*pair, may_be_smaller=False)
    assert found.state == wanted.state == FAILED
    assert found.trials == wanted.trials == [OWN]
    assert found.candidates == wanted.candidates
    assert found.notes == wanted.notes


def test_a_candidate_that_differs_only_there_is_no_failure(compared):
    """One that has its sizes as numbers is held to the model at these."""
    text = CHAIN.replace("c = GlobalAveragePool(b)", "s = ReduceSum(b, places) c = Div(s, count)")
    counted = parse(text, OF_CHAIN | {"places": np.array([2, 3]), "count": np.array(48 * 48, np.float32)})
    found = compared(parse(CHAIN, OF_CHAIN), counted)
    assert (found.state, found.trials) == (PASSED, [OWN])


def test_what_is_wrong_at_the_models_own_sizes_alone_is_found(compared, monkeypatch):
    """Smaller inputs are not all that is looked at: here nothing is wrong at these."""
    right = smaller_inputs.at_smaller(parse(CHAIN, OF_CHAIN), SIZES, {"x": (1, 3, 32, 64)})
    monkeypatch.setattr(smaller_first, "at_smaller", lambda *_: right)
    found = compared(parse(CHAIN, OF_CHAIN), changed("v", lambda values: np.multiply(values, 1.01, out=values)))
    (report,) = found.candidates
    assert (found.state, report.is_out_of_tolerance) == (FAILED, True)
    assert [(verdict.trial, verdict.passed) for verdict in report.verdicts] == [(SMALLER, True), (OWN, False)]
    assert report.verdicts[1].exact > 1e-3


def test_at_the_models_own_sizes_the_last_candidate_speaks_for_all(compared):
    good, wrong = parse(CHAIN, OF_CHAIN), changed("gamma", one_channel)
    found = compared(good, good, good)
    assert [[verdict.trial for verdict in report.verdicts] for report in found.candidates] == [[SMALLER], [SMALLER, OWN]]
    found = compared(good, wrong, good)
    assert [[verdict.trial for verdict in report.verdicts] for report in found.candidates] == [[OWN], [OWN]]
    assert [report.state for report in found.candidates] == [FAILED, PASSED]


@pytest.mark.parametrize("stays", [True, False], ids=["it stays", "another one stays"])
def test_the_run_of_a_likely_candidate_is_begun_ahead_and_not_repeated(tmp_path, monkeypatch, stays):
    def participant(model: onnx.ModelProto, label: str) -> OnnxParticipant:
        return replace(onnx_participant(saved(model, tmp_path / f"{label}.onnx"), label), shares_tensors=True)

    good = parse(CHAIN, OF_CHAIN)
    reference, likely, other = (participant(good, label) for label in ("m", "likely", "other"))
    asked, accepted, ask = [], list[OnnxParticipant](), NativeRuns.ask
    monkeypatch.setattr(
        NativeRuns, "ask", lambda self, one, feeds: asked.append((one.label, feeds["x"].shape[2])) or ask(self, one, feeds)
    )

    def gather(try_out: Callable[..., None]) -> None:
        try_out([likely], lambda: True)
        assert asked[-1] == ("likely", 96)
        accepted.append(likely if stays else other)

    settings = replace(build_settings(None, 0, lambda: 1e9, 60), may_be_smaller=True)
    found = judge_session(Session(reference, accepted, (), (), None, gather), None, settings)
    assert (found.state, found.trials) == (PASSED, [SMALLER, OWN])
    wanted = [("m", 32), ("m", 96), ("likely", 32), ("likely", 96)]
    assert asked == wanted + ([] if stays else [("other", 32), ("other", 96)])


def test_what_does_not_run_at_the_models_own_sizes_is_not_compared(compared, monkeypatch):
    """That it ran at smaller ones says nothing then."""

    def of_candidate(self, attempt):
        if attempt.run.trial.label == OWN:
            attempt.report.error, attempt.report.unavailable = "it was killed", True
            return None
        return original(self, attempt)

    original = ParticipantRuns.of_candidate
    monkeypatch.setattr(ParticipantRuns, "of_candidate", of_candidate)
    found = compared(parse(CHAIN, OF_CHAIN), parse(CHAIN, OF_CHAIN))
    (report,) = found.candidates
    assert (found.state, found.trials, report.verdicts, report.error) == (NOT_COMPARED, [OWN], [], "it was killed")


def test_a_file_is_run_at_no_other_sizes_than_it_states(tmp_path):
    """But where smaller inputs stand in for its own."""
    fixed = onnx_participant(saved(parse(CHAIN, OF_CHAIN), tmp_path / "m.onnx"))
    x = {"x": random(1, 3, 32, 64)}
    with OrtRunner(60.0) as runner:
        natives = NativeRuns(runner)
        with pytest.raises(RunFailed, match="invalid dimensions"):
            natives.ask(fixed, x).results()
        (got,) = natives.ask(replace(fixed, is_resized=True), x).results()
    assert got["y"].shape == (1, 4)


def test_a_kernel_that_is_spread_reaches_the_result():
    text = """g (float[1, 3, 64, 64] x) => (float y) {
        a = Conv<strides=[16, 16], pads=[1, 1, 1, 1]>(x, w)
        y = ConvTranspose<strides=[4, 4], pads=[PADS, PADS, PADS, PADS]>(a, t)
    }"""
    weights, sizes = DOWN | {"t": random(4, 2, 8, 8)}, {"x": (1, 3, 64, 64)}
    small = {"x": (1, 3, 32, 48)}
    assert smaller_inputs.at_smaller(parse(text.replace("PADS", "2"), weights), sizes, small) is not None
    # Two positions lay no more than places 5, 6, 9 and 10 on a result of two.
    wide = DOWN | {"t": random(4, 2, 16, 16)}
    assert smaller_inputs.at_smaller(parse(text.replace("PADS", "9"), wide), sizes, small) is None


@pytest.mark.parametrize("node", ["Conv<pads=[1, 1]>(a, v)", "Conv<kernel_shape=[3]>(a, v)", "MaxPool<kernel_shape=[2]>(a)"])
def test_nodes_that_are_malformed_keep_their_shapes(node: str):
    text = f"g (float[1, 3, 96, 96] x) => (float y) {{ a = Conv<pads=[1, 1, 1, 1]>(x, w) y = {node} }}"
    assert shapes_of(text, DOWN) is None


def test_a_message_with_other_sizes_refers_to_the_weights_of_the_file(tmp_path):
    weights = OF_CHAIN | {"w": random(64, 3, 9, 9), "v": random(4, 64, 3, 3)} | batchnorm(64)
    text = CHAIN.replace("pads=[1, 1, 1, 1]>(x", "pads=[4, 4, 4, 4]>(x")
    participant = onnx_participant(saved(parse(text, weights), tmp_path / "m.onnx"))
    source = resized(participant.model, {"x": (1, 3, 32, 64)}, participant.path)
    assert source is not None
    assert len(source) < participant.path.stat().st_size / 4
    x = random(1, 3, 32, 64)
    fully = parse(text.replace("96, 96", "32, 64"), weights)
    with OrtRunner(60.0) as runner:
        (got,) = runner.begin(participant.path, {"x": x}, source=source).results()
        wanted = runner.run(fully, {"x": x})
    np.testing.assert_array_equal(got["y"], wanted["y"])
