"""Every family of messages is provoked from the real parser and builder, where that is possible."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import onnx
import pytest

from tests.models import parse, random, saved
from tests.tensorrt.builds import Profiles, built
from trtnorm_cli.child_process import Limits
from trtnorm_cli.tensorrt.catalogue import CATALOGUE, is_missing_driver_noise
from trtnorm_cli.tensorrt.explain import explain, refusal
from trtnorm_cli.tensorrt.launch import launch
from trtnorm_cli.tensorrt.origin import Subject
from trtnorm_cli.tensorrt.request import BuildRequest, BuildResult, TensorRTMessage

BN = "[bn0] y = BatchNormalization(x, gamma, beta, mu, var)"
IN = "[in0] y = InstanceNormalization(x, s, b)"
HALF, HALVES = "float16", {"s": random(4), "b": random(4)}


@dataclass(frozen=True)
class Case:
    """A model that TensorRT refuses, part of the meaning that must be shown, and the node that must be named."""

    model: onnx.ModelProto | bytes
    meaning: str
    node: str = ""
    profiles: Profiles = ()
    settings: dict[str, Any] = field(default_factory=dict)


def four(*shape: int) -> dict[str, np.ndarray]:
    return {name: np.ones(shape, np.float32) for name in ("gamma", "beta", "mu", "var")}


def model(graph: str, weights: dict[str, np.ndarray] | None = None, opset: int = 17) -> onnx.ModelProto:
    return parse(f"g {graph}", weights, opset=opset)


def edited(made: onnx.ModelProto, edit: Callable[[onnx.ModelProto], None]) -> onnx.ModelProto:
    edit(made)
    return made


def in_file(location: str, **more: str) -> onnx.ModelProto:
    """A weight of 16 bytes in another file; ``short.bin`` is there and has 10."""

    def edit(made: onnx.ModelProto) -> None:
        tensor = made.graph.initializer[0]
        tensor.ClearField("raw_data")
        tensor.data_location = onnx.TensorProto.EXTERNAL
        for key, value in {"location": location, **more}.items():
            tensor.external_data.add(key=key, value=value)

    return edited(model(add(), {"w": random(4)}), edit)


def calling(function: str) -> onnx.ModelProto:
    opsets = 'opset_import: ["" : 17, "my" : 1]'
    return onnx.parser.parse_model(
        f"<ir_version: 8, {opsets}> g (float[2, 4] x) => (float[] y) {{ [call] y = my.f(x) }} "
        f'<domain: "my", opset_import: ["" : 17]> {function}'
    )


def lrn(attributes: str, shape: str = "2, 8, 5, 5") -> onnx.ModelProto:
    return model(f"(float[{shape}] x) => (float[] y) {{ [lrn] y = LRN <{attributes}> (x) }}")


def add(dtype: str = "float") -> str:
    return f"({dtype}[2, 4] x) => ({dtype}[] y) {{ y = Add(x, w) }}"


TWO = "(float[{a}, 4] x, float[{b}, 4] z) => (float[] y) {{ {rest} }}"
POINT = ((2, 4), (2, 4), (2, 4))
CASES = {
    "training mode": Case(
        model("(float[2, 4, 7, 7] x) => (float[] y) { [bn0] y, m, v = BatchNormalization <training_mode=1>"
              "(x, gamma, beta, mu, var) }", four(4)),
        "the BatchNormalization is in training mode", "node bn0 (BatchNormalization)"),
    "further outputs": Case(
        model("(float[2, 4] x) => (float[] y, float[] m, float[] d) { [ln0] y, m, d = LayerNormalization(x, s, b) }", HALVES),
        "the node has more than one output", "node ln0 (LayerNormalization)"),
    "one parameter of another length": Case(
        model(f"(float[2, 64, 7, 7] x) => (float[] y) {{ {BN} }}", {**four(64), "mu": random(16)}),
        "scale, bias, mean and variance of the BatchNormalization differ in length", "node bn0 (BatchNormalization)"),
    "all parameters of another length": Case(
        model(f"(float[2, 64, 7, 7] x) => (float[] y) {{ {BN} }}", four(16)),
        "have another length than its input has channels", "node bn0 (BatchNormalization)"),
    "the same with dynamic channels": Case(
        model(f"(float[2, C, 7, 7] x) => (float[] y) {{ {BN} }}", four(16)),
        "have another length than its input has channels", "node bn0 (BatchNormalization)",
        ({"x": ((2, 64, 7, 7),) * 3},)),
    "parameters that are no vectors": Case(
        model(f"(float[2, 4, 7, 7] x) => (float[] y) {{ {BN} }}", four(1, 4)),
        "the parameters of the BatchNormalization are not vectors", "node bn0 (BatchNormalization)"),
    "an InstanceNormalization with too few parameters": Case(
        model(f"(float[2, 64, 7, 7] x) => (float[] y) {{ {IN} }}", HALVES),
        "scale and bias of the normalization have another length", "node in0 (InstanceNormalization)"),
    "a single element": Case(
        model(f"(float[2, 4, 1, 1] x) => (float[] y) {{ {IN} }}", HALVES),
        "a single element to normalize over", "node in0 (InstanceNormalization)"),
    "mixed types, InstanceNormalization": Case(
        model(f"(float16[2, 4, 7, 7] x) => (float16[] y) {{ {IN} }}", HALVES),
        "tensors of different floating types", "node in0 (InstanceNormalization)"),
    "mixed types, LayerNormalization": Case(
        model("(float16[2, 4] x) => (float16[] y) { [ln0] y = LayerNormalization(x, s, b) }", HALVES),
        "tensors of different floating types", "node ln0 (LayerNormalization)"),
    "mixed types, inside an operator": Case(
        model("(float16[2, 4, 7, 7] x) => (float16[] y) { [mvn0] y = MeanVarianceNormalization(x) }"),
        "tensors of different floating types", "node mvn0 (MeanVarianceNormalization)"),
    "mixed types, convolution": Case(
        model("(float16[2, 2, 7, 7] x) => (float16[] y) { [c0] y = Conv(x, w) }", {"w": random(4, 2, 3, 3)}),
        "tensors of different floating types", "node c0 (Conv)"),
    "rank 2": Case(
        model("(float[2, 4] x) => (float[] y) { [gn0] y = GroupNormalization <num_groups=2>(x, s, b) }", HALVES, 21),
        "at least one further axis", "node gn0 (GroupNormalization)"),
    "axes of run time": Case(
        model("(float[2, 4] x, int64[1] a) => (float[] y) { [red] y = ReduceMean(x, a) }", opset=18),
        "computed at run time where TensorRT needs constants", "node red (ReduceMean)"),
    "an operator with a plugin that is not there": Case(
        model("(float[2, 4] x) => (int64[2, N] y) { [nz] y = NonZero(x) }"),
        "makes a plugin of this operator, and the installation has none", "node nz (NonZero)"),
    "another operator with a plugin that is not there": Case(
        model("(float[1, 3, 8, 8] x, float[2, 4] r, int64[2] b) => (float[] y) { [roi] y = RoiAlign(x, r, b) }"),
        "makes a plugin of this operator, and the installation has none", "node roi (RoiAlign)"),
    "an unknown operator": Case(
        model("(float[2, 4] x) => (float[] y) { [odd] y = Odd(x) }"),
        "knows no operator and no plugin of this name", "node odd (Odd)"),
    "a missing weight file": Case(in_file("nope.bin"), "a weight could not be read"),
    "a weight file outside": Case(in_file("../short.bin"), "lies outside of the model's folder"),
    "a short weight file": Case(in_file("short.bin"), "shorter or longer than the weight needs"),
    "an unknown key of a weight file": Case(in_file("short.bin", bogus="1"), "has a key other than location"),
    "a weight type": Case(
        model("(float[2, 4] x) => (float[] y) { z = Cast <to=1>(w) y = Add(x, z) }", {"w": np.ones(4, np.int16)}),
        "a weight could not be read"),
    "a weight with too few bytes": Case(
        edited(model(add(), {"w": random(4)}), lambda m: setattr(m.graph.initializer[0], "raw_data", bytes(12))),
        "a weight holds fewer or more bytes"),
    "a cycle": Case(
        model("(float[2, 4] x) => (float[] y) { a = Add(x, b) b = Neg(a) y = Abs(b) }"), "the graph has a cycle"),
    "nine axes": Case(
        model("(float[1, 1, 1, 1, 1, 1, 1, 1, 2] x) => (float[] y) { y = Abs(x) }"), "more than eight axes"),
    "no profile": Case(
        model("(float[N, 4] x) => (float[N, 4] y) { y = Abs(x) }"), "no valid optimization profile"),
    "min above opt": Case(
        model("(float[?, 4] x) => (float[?, 4] y) { y = Abs(x) }"), "no valid optimization profile", "",
        ({"x": ((4, 4), (3, 4), (8, 4))},)),
    "an input without profile": Case(
        model(TWO.format(a="N", b="N", rest="y = Add(x, z)")), "a dynamic input has no shapes", "", ({"x": POINT},)),
    "a shape input without values": Case(
        model("(float[?, 4] x, int64[2] s) => (float[] y) { y = Reshape(x, s) }"), "the optimization profile gives none", "",
        ({"x": ((2, 4), (2, 4), (4, 4))},)),
    "one name, two sizes": Case(
        model(TWO.format(a="N", b="N", rest="y = Concat <axis=0>(x, z)")),
        "dimensions with one symbolic name must be equal", "",
        ({"x": POINT, "z": ((3, 4), (3, 4), (3, 4))},)),
    "shapes that do not fit": Case(
        model(TWO.format(a="?", b="?", rest="y = Add(x, z)")), "do not fit together inside the network", "node -> y (Add)",
        ({"x": ((2, 4), (2, 4), (8, 4)), "z": ((2, 4), (3, 4), (8, 4))},)),
    "another p": Case(
        model("(float[2, 4] x) => (float[] y) { [lp] y = LpNormalization <p=3>(x) }"), "another p than 1 or 2",
        "node lp (LpNormalization)"),
    "an unproduced output": Case(
        model("(float[2, 4] x) => (float[2, 4] y) { z = Abs(x) }"), "a graph output is not produced"),
    "axes that are not there": Case(
        model("(float[2, 3, 4] x) => (float[] y) { [mvn0] y = MeanVarianceNormalization(x) }"),
        "reduces over an axis that its input does not have", "node mvn0 (MeanVarianceNormalization)"),
    "LpNormalization of bfloat16": Case(
        model("(bfloat16[2, 4] x) => (bfloat16[] y) { [lp] y = LpNormalization(x) }"),
        "takes float32 and float16 only", "node lp (LpNormalization)"),
    "LRN of an even size": Case(lrn("size=4"), "LRN is outside of what TensorRT takes", "node lrn (LRN)"),
    "LRN of a large size": Case(lrn("size=17"), "LRN is outside of what TensorRT takes", "node lrn (LRN)"),
    "LRN with a small bias": Case(lrn("size=3, bias=0.0000001"), "LRN is outside of what TensorRT takes", "node lrn (LRN)"),
    "LRN with a small beta": Case(lrn("size=3, beta=0.0"), "LRN is outside of what TensorRT takes", "node lrn (LRN)"),
    "LRN of rank 3": Case(lrn("size=3", "2, 8, 5"), "LRN needs a batch, a channel and two further axes", "node lrn (LRN)"),
    "a Scan without a state": Case(
        model("(float[3, 4] x) => (float[] y) { [scan] y = Scan <num_scan_inputs=1, body = b (float[4] i) => (float[4] o) "
              "{ o = Abs(i) }> (x) }"), "TensorRT does not say why", "node scan (Scan)"),
    "a tensor that nobody makes": Case(
        model("(float[2, 4] x) => (float[] y) { [a] y = Add(x, nope) }"), "reads a tensor that nothing produces",
        "node a (Add)"),
    "a function without an input": Case(calling("f (a, b) => (c) { c = Neg(a) }"), "leaves out an input or an output"),
    "a function without an output": Case(
        calling("f (a) => (c, d) { c = Neg(a) d = Abs(a) }"), "leaves out an input or an output"),
    "an input of a type that TensorRT lacks": Case(
        model("(int16[2, 3] x) => (int16[] y) { y = Transpose(x) }"), "an element type that TensorRT does not have"),
    "an operator on another type": Case(
        model("(uint8[2, 3] x) => (uint8[] y) { [t] y = Transpose(x) }"), "does not take this element type",
        "node t (Transpose)"),
    "an operator that is only a name": Case(
        model("(float[4, 4] x) => (float[] y) { [d] y = Det(x) }"), "knows the operator by name only", "node d (Det)"),
    "an operator on lists": Case(
        model("(float[4, 4] x) => (float[] y) { z = Constant <value = int64 {0}> () [s] q = SplitToSequence <axis=0> (x) "
              "y = SequenceAt(q, z) }"), "no tensors that are lists of tensors", "node s (SplitToSequence)"),
    "quantised while it runs": Case(
        model("(float[4, 4] x) => (float[] y) { [q] a, s, z = DynamicQuantizeLinear(x) y = DequantizeLinear(a, s, z) }"),
        "it has no quantised operators but QuantizeLinear and DequantizeLinear", "node q (DynamicQuantizeLinear)"),
    "quantised asymmetrically": Case(
        model("(float[4, 4] x) => (float[] y) { a = QuantizeLinear(x, s, z) [d] y = DequantizeLinear(a, s, z) }",
              {"s": np.array(0.1, np.float32), "z": np.array(3, np.int8)}), "the model is quantised asymmetrically"),
    "a scatter that adds": Case(
        model('(float[2, 4] x, float[2, 4] u) => (float[] y) { [sc] y = ScatterElements <reduction="add"> (x, i, u) }',
              {"i": np.zeros((2, 4), np.int64)}, 18), "TensorRT's scatter operators write", "node sc (ScatterElements)"),
    "a scatter without a name": Case(
        model('(float[2, 4] x, float[2, 4] u) => (float[] y) { y = ScatterElements <reduction="max"> (x, i, u) }',
              {"i": np.zeros((2, 4), np.int64)}, 18), "TensorRT's scatter operators write", "node -> y (ScatterElements)"),
    "a scatter of slices that adds": Case(
        model('(float[2, 4] x, float[2, 4] u) => (float[] y) { [sc] y = ScatterND <reduction="add"> (x, i, u) }',
              {"i": np.array([[0], [1]])}, 18), "TensorRT's scatter operators write", "node sc (ScatterND)"),
    "quantised weights in float32": Case(
        edited(model("(float[2, 64] x) => (float[] y) { [mm] y = com.microsoft.MatMulNBits <K=64, N=8, bits=4, block_size=32> "
                     "(x, w, s) }", {"w": np.ones((8, 2, 16), np.uint8), "s": np.ones((8, 2), np.float32)}),
               lambda m: m.opset_import.add(domain="com.microsoft", version=1)),
        "TensorRT multiplies with quantised weights (MatMulNBits) in float16 only", "node mm (MatMulNBits)"),
    "a Squeeze without axes": Case(
        model("(float[?, 3, 4] x) => (float[] y) { [sq] a = Squeeze(x) y = Relu(a) }"), "a Squeeze says no axes", "",
        ({"x": ((1, 3, 4), (2, 3, 4), (4, 3, 4))},)),
    "a long name": Case(
        model(f"(float[4] x) => (float[] y) {{ {'a' * 5000} = Abs(x) y = Neg({'a' * 5000}) }}"), "more than 4096 characters"),
    "a product that does not fit": Case(
        model("(float[2, 64] x) => (float[] y) { [mm] y = MatMul(x, w) }", {"w": random(63, 4)}),
        "the shapes of an operator's inputs do not fit together", "node mm (MatMul)"),
    "a reshape that does not fit": Case(
        model("(float[2, 64] x) => (float[] y) { [r] y = Reshape(x, w) }", {"w": np.array([3, -1])}),
        "the shapes of an operator's inputs do not fit together", "node r (Reshape)"),
    "a concatenation that does not fit": Case(
        model("(float[2, 64] x, float[3, 63] z) => (float[] y) { [c] y = Concat <axis=0> (x, z) }"),
        "the shapes of an operator's inputs do not fit together", "node c (Concat)"),
    "a convolution of other channels": Case(
        model("(float[2, 3, 8, 8] x) => (float[] y) { [c] y = Conv(x, w) }", {"w": random(4, 2, 3, 3)}),
        "the shapes of an operator's inputs do not fit together", "node c (Conv)"),
    "a convolution larger than its image": Case(
        model("(float[2, 3, 2, 2] x) => (float[] y) { [c] y = Conv(x, w) }", {"w": random(4, 3, 3, 3)}),
        "the shapes of an operator's inputs do not fit together", "node c (Conv)"),
    "a mode that TensorRT lacks": Case(
        model('(float[1, 2, 4, 4] x) => (float[] y) { [r] y = Resize <mode="cubic", '
              'coordinate_transformation_mode="tf_crop_and_resize"> (x, roi, sc) }',
              {"roi": np.zeros(8, np.float32), "sc": np.array([1, 1, 2, 2], np.float32)}),
        "and not this form of it", "node r (Resize)"),
    "a profile that fails at its smallest": Case(
        model("(float[?, 4] x) => (float[] y) { [r] y = Reshape(x, s) }", {"s": np.array([-1, 8])}),
        "do not fit together inside the network", "node r (Reshape)", ({"x": ((1, 4), (2, 4), (4, 4))},)),
    "refit without a GPU": Case(
        model("(float[2, 3, 8, 8] x) => (float[] y) { [c] y = Conv(x, w) }", {"w": random(4, 3, 3, 3)}),
        "the builder needs a GPU here", "", (), {"refit": True}),
    "no workspace": Case(
        model("(float[2, 3, 8, 8] x) => (float[] y) { [c] y = Conv(x, w) }", {"w": random(4, 3, 3, 3)}),
        "no kernel fits", "", (), {"workspace": 1 << 10}),
    "bfloat16 for an old GPU": Case(
        model("(bfloat16[2, 4] x) => (bfloat16[] y) { y = Relu(x) }"),
        "does not exist on one of the compute capabilities", "", (), {"targets": ["sm_75"]}),
    "an empty file": Case(b"", "without reading a model from it"),
    "a web page": Case(b"<!DOCTYPE html>\n", "without reading a model from it"),
    "zeros": Case(bytes(4096), "without reading a model from it"),
}  # fmt: skip
NOT_PROVOKED = {
    r"nested structures that exceed the maximum": "28 branches in each other, which onnx.parser cannot write; tested below",
    r"libnvinfer_lean": "the setting is refused before",
    r"bad optional access": "trtnorm always sets as many compute capabilities as it announces",
    r"std::bad_alloc|[Oo]ut of memory|OutOfMemory|failed to allocate": "needs a machine without memory; tested below",
    r"imports IPluginV3": "needs a plugin, and trtnorm registers none",
    r"CUDA initialization failure": "needs the full TensorRT on a machine without a GPU",
}


@pytest.mark.rtx
@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_a_refusal_is_explained(tmp_path, case):
    (tmp_path / "short.bin").write_bytes(bytes(10))
    result = built(case.model, tmp_path, case.profiles, case.settings)
    assert not result.ok
    given = onnx.ModelProto() if isinstance(case.model, bytes) else case.model
    error = refusal(result, given, tmp_path)
    assert error.exit_code == 5
    lines = error.where.splitlines()
    means = [line for line in lines if line.startswith("that means: ")]
    assert any(case.meaning in line for line in means), error.where
    assert len(means) == len(set(means)), "each family is explained once"
    assert any(line.startswith("TensorRT says: ") for line in lines)
    assert not case.node or case.node in lines
    assert lines[-1] == f"log: {tmp_path / 'build.log'}"
    assert set(error.hint.splitlines()) <= {entry.advice for entry in CATALOGUE}
    assert not is_missing_driver_noise(error.where)
    assert "/_src/" not in error.where
    assert not (tmp_path / "out.engine").exists()


def test_every_family_is_provoked_or_says_why_not():
    """A meaning that begins another one counts for itself only."""
    provoked = {entry.pattern for entry in CATALOGUE if any(case.meaning in entry.meaning for case in CASES.values())}
    assert provoked | NOT_PROVOKED.keys() == {entry.pattern for entry in CATALOGUE}
    assert not provoked & NOT_PROVOKED.keys()


def test_entries_are_usable():
    for entry in CATALOGUE:
        re.compile(entry.pattern)
        assert entry.command.startswith("trtnorm ")
        for text in (entry.meaning, entry.advice):
            assert text
            assert not text.endswith(".")
    assert len({(entry.pattern, entry.operators) for entry in CATALOGUE}) == len(CATALOGUE)


@pytest.mark.parametrize(("text", "operator", "meaning"), [
    ("false", "SequenceAt", "lists of tensors"), ("false", "ConcatFromSequence", "lists of tensors"),
    ("Assertion failed: false", "MatMulInteger", "no quantised operators"), ("false", "QLinearConv", "no quantised operators"),
    ("false", "Det", "by name only"), ("false", "", "lists of tensors"),
    ("at least 4 dimensions are required for input", "LRN", "LRN needs a batch"),
    ("at least 4 dimensions are required for input", "MaxPool", None),
    ("Input to normalization should be at least 3D", "GroupNormalization", "at least one further axis"),
    ("the input should be at least 3D", "ConvTranspose", None),
    ("the lengths of axes and sizes must be equal", "Resize", None),
    ("Dimensions with name H must be equal. Condition '==' violated: 16 != 24", "", "one symbolic name must be equal"),
])  # fmt: skip
def test_a_family_is_about_its_operators(text, operator, meaning):
    found = explain(text, operator)
    assert (found is None) if meaning is None else (meaning in found.meaning)


def test_what_is_said_of_many_nodes_is_said_once(tmp_path):
    messages = tuple(TensorRTMessage("false", f"m{i}", "MatMulInteger", "UNSUPPORTED_NODE", i) for i in range(89))
    error = refusal(BuildResult(False, "parse", errors=messages), onnx.ModelProto(), tmp_path)
    lines = error.where.splitlines()
    assert lines[0] == "node m0 (MatMulInteger), and 88 more of this operator"
    assert len([line for line in lines if line.startswith("TensorRT says: ")]) == 1
    assert "false\n" not in error.where + "\n"
    assert "torch.split" not in error.hint


def test_general_advice_is_left_out_where_there_is_other(tmp_path):
    shapes = TensorRTMessage("the profile's shapes violate shape constraints")
    squeeze = TensorRTMessage("Squeeze_35: ISqueezeLayer without an axes input requires dimension 0 to not be 1 at runtime")
    result = BuildResult(False, "build", errors=(shapes, squeeze))
    hint = refusal(result, onnx.ModelProto(), tmp_path).hint
    assert "the axes of the Squeeze" in hint
    assert "total stride" not in hint
    assert "total stride" in refusal(BuildResult(False, "build", errors=(shapes,)), onnx.ModelProto(), tmp_path).hint


@pytest.mark.parametrize(("message", "meaning"), [
    ("Unable to load library: libnvinfer_lean.so.1: cannot open shared object file", "carries a lean runtime"),
    ("Unexpected exception bad optional access", "fewer compute capabilities were set"),
    ("TensorRT-RTX imports IPluginV3 plugins registered with an IPluginCreatorV3One creator only.", "of a generation"),
    ("CUDA initialization failure with error: 35", "this backend needs an NVIDIA GPU"),
    ("doesn't support mode than 1 outputs for BatchNormalization nodes!", "more than one output"),
])  # fmt: skip
def test_messages_that_are_not_provoked_here(message, meaning):
    assert meaning in explain(message).meaning


def test_an_unknown_message_is_not_explained():
    assert explain("Something nobody has seen before") is None


@pytest.mark.rtx
def test_branches_in_branches(tmp_path):
    inner = "a = Abs(x)"
    for depth in range(28):
        other = f"else_branch = e{depth} () => (float[2] b{depth}) {{ b{depth} = Neg(x) }}"
        name = "a" if depth == 0 else f"r{depth - 1}"
        then = f"then_branch = t{depth} () => (float[2] {name}) {{ {inner} }}"
        inner = f"r{depth} = If (c) <{then}, {other}>"
    result = built(model(f"(float[2] x, bool c) => (float[] r27) {{ {inner} }}"), tmp_path)
    assert not result.ok
    assert "nested deeper than TensorRT takes" in refusal(result, onnx.ModelProto(), tmp_path).where


@pytest.mark.rtx
def test_no_memory(tmp_path):
    """The limit counts the 256 MiB of the worker's stack."""
    weights = {f"w{i}": np.ones((1024, 1024), np.float32) for i in range(48)}
    body = " ".join(f"t{i + 1} = MatMul(t{i}, w{i})" for i in range(48))
    saved(model(f"(float[2, 1024] t0) => (float[2, 1024] t48) {{ {body} }}", weights), tmp_path / "fixed.onnx")
    limited = (
        "import resource; from trtnorm_cli.tensorrt.child import worker; "
        "resource.setrlimit(resource.RLIMIT_DATA, (450 << 20,) * 2); "
        "worker.main()"
    )
    request = BuildRequest("fixed.onnx", str(tmp_path / "out.engine"), "tensorrt-rtx")
    result = launch(request, tmp_path, lambda event: None, Limits(100), (sys.executable, "-c", limited))
    assert not result.ok
    assert "TensorRT found no memory" in refusal(result, onnx.ModelProto(), tmp_path).where


@pytest.mark.rtx
def test_the_command_to_run_next_names_the_users_files(tmp_path):
    case = CASES["an unknown operator"]
    subject = Subject(tmp_path / "my model.onnx", tmp_path / "cfg.yaml", case.model)
    hint = refusal(built(case.model, tmp_path), case.model, tmp_path, subject).hint
    assert hint.splitlines()[-1] == f"run: trtnorm inspect '{tmp_path}/my model.onnx'"
