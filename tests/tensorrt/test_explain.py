"""TensorRT's messages turned into a node, its own words, and a hint."""

from __future__ import annotations

import re
from pathlib import Path

import onnx

from tests.models import batchnorm, parse
from trtnorm_cli.tensorrt import explain
from trtnorm_cli.tensorrt.explain import ParsedNodes, informative, refusal, words
from trtnorm_cli.tensorrt.origin import Subject
from trtnorm_cli.tensorrt.request import BuildResult, TensorRTMessage

NOISE = (
    "[checkMacros.cpp::catchCudaError::250] Error Code 1: Cuda Runtime (In catchCudaError at /_src/common/dispatch/"
    "checkMacros.cpp:250 (cudaError 35: CUDA driver version is insufficient for CUDA runtime version))"
)
MIXED = (
    "Invalid Node - ln0\nITensor::getDimensions: Error Code 4: API Usage Error (ln0: INormalizationLayer `input` and `scale`"
    " must have identical types. In validateTypes at /_src/optimizer/common/nodes/normalizationNode.cpp:37)\n" + NOISE
)


def model() -> onnx.ModelProto:
    return parse(
        'g (float[2, 4, 5, 5] x) => (float[] y) { ["/net/bn"] a = BatchNormalization(x, gamma, beta, mu, var)'
        ' ["/net/bn_1"] b = BatchNormalization(a, gamma, beta, mu, var) c = Relu(b) y = Relu(c) }',
        batchnorm(4),
    )


def node_of(message: TensorRTMessage) -> tuple[str, str]:
    return ParsedNodes(model()).of(message)


def refused(*messages: TensorRTMessage, stage: str = "parse") -> BuildResult:
    return BuildResult(ok=False, stage=stage, errors=messages)


def test_words_are_those_that_say_something():
    assert words(MIXED) == (
        "Error Code 4: API Usage Error (ln0: INormalizationLayer `input` and `scale` must have identical types.)"
    )
    assert words("Invalid Node - ln0") == "Invalid Node - ln0"
    places = "In operator() at /_src/runtime/core/shapeMachine.cpp:640 In check at /_src/optimizer/shapeCompiler.cpp:1375"
    assert words(f"Condition '==' violated: 2 != 3. {places})") == "Condition '==' violated: 2 != 3.)"


def test_the_same_message_is_shown_once_and_known_ones_first():
    again = TensorRTMessage("Plugin not found", "n", "Odd")
    unknown = TensorRTMessage("something else", "m", "Relu")
    other_node = TensorRTMessage("Plugin not found", "o", "Odd")
    assert informative((unknown, again, again, other_node)) == [again, other_node, unknown]


def test_a_message_without_news_is_left_out_while_another_has_some():
    empty, news = TensorRTMessage("Invalid Node - n"), TensorRTMessage("something else")
    assert informative((empty, news)) == [news]
    assert informative((empty,)) == [empty]


def test_the_node_that_the_parser_names():
    assert node_of(TensorRTMessage("x", "/net/bn", "BatchNormalization")) == ("/net/bn", "BatchNormalization")
    assert node_of(TensorRTMessage("x", "/net/bn")) == ("/net/bn", "BatchNormalization")
    assert node_of(TensorRTMessage("x", "elsewhere", "Add")) == ("elsewhere", "Add")


def test_a_node_without_name_is_known_by_its_output():
    assert node_of(TensorRTMessage("x", "", "Relu", "", 3)) == ("-> y", "Relu")
    assert node_of(TensorRTMessage("x", "", "Relu", "", 0)) == ("", "Relu"), "another graph's number"
    assert node_of(TensorRTMessage("x", "", "Relu", "", 99)) == ("", "Relu")


def test_the_node_that_the_builder_mentions():
    cases = {
        "IScaleLayer /net/bn: too few weights": "/net/bn",
        "IScaleLayer /net/bn_1: too few weights": "/net/bn_1",
        "(/net/bn:shift weights has count 16)": "/net/bn",
        "Error in /net/bn_normalized : f32[]": "/net/bn",
        "node_of_y: dimensions not compatible": "-> y",
        "x/net/bn and other words": "",
        "node_of_yy: dimensions not compatible": "",
    }
    assert {text: node_of(TensorRTMessage(text))[0] for text in cases} == cases


def test_names_that_a_message_does_not_hold_cost_nothing(monkeypatch):
    """A pattern for each of 20,000 nodes, or for a name of ten megabytes, took a minute."""
    patterns = []
    search = re.search
    monkeypatch.setattr(explain.re, "search", lambda pattern, text: patterns.append(pattern) or search(pattern, text))
    assert node_of(TensorRTMessage("(/net/bn:shift weights has count 16)"))[0] == "/net/bn"
    assert len(patterns) == 1
    assert node_of(TensorRTMessage("Failed to add input to the network.")) == ("", "")
    assert len(patterns) == 1


def test_names_are_gathered_once_for_all_messages(monkeypatch, tmp_path):
    """They were for each message, three times: TensorRT's 204 of a model of 3,900 nodes took five seconds."""
    passes = []
    walk = explain.all_nodes
    monkeypatch.setattr(explain, "all_nodes", lambda model: passes.append(model) or walk(model))
    messages = [TensorRTMessage("false", f"/net/{number}", "SequenceAt") for number in range(200)]
    assert len(refusal(refused(*messages), model(), tmp_path).nodes) == len(messages)
    assert len(passes) == 1


def test_the_error_as_a_whole(tmp_path):
    error = refusal(refused(TensorRTMessage(MIXED, "ln0", "LayerNormalization")), model(), tmp_path)
    assert (error.exit_code, error.summary) == (5, "TensorRT does not accept the model")
    assert error.where.splitlines() == [
        "node ln0 (LayerNormalization)",
        "TensorRT says: Error Code 4: API Usage Error (ln0: INormalizationLayer `input` and `scale` must have identical "
        "types.)",
        "that means: an operator gets tensors of different floating types; the network is strongly typed",
        f"log: {tmp_path / 'build.log'}",
    ]
    assert error.hint == "cast one side in the model, so that data and parameters have one type"


def test_an_unknown_message_is_shown_as_it_is(tmp_path):
    error = refusal(refused(TensorRTMessage("new in this release"), stage="build"), model(), tmp_path)
    assert error.summary == "TensorRT cannot build an engine from the model"
    assert error.where.splitlines()[0] == "TensorRT says: new in this release"
    assert error.hint == "trtnorm does not know this message; the log has everything that TensorRT said"


def test_many_messages_are_cut(tmp_path):
    error = refusal(refused(*(TensorRTMessage(f"message {n}") for n in range(8))), model(), tmp_path)
    assert [line for line in error.where.splitlines() if "says" in line] == [f"TensorRT says: message {n}" for n in range(5)]
    assert "and 3 more messages" in error.where


def test_a_backend_that_cannot_be_loaded_is_a_matter_of_usage(tmp_path):
    error = refusal(
        refused(TensorRTMessage("no TensorRT can be imported\nlibcuda.so.1: not found"), stage="load"), model(), tmp_path
    )
    assert error.exit_code == 2
    assert error.summary == "no TensorRT can be imported\nlibcuda.so.1: not found"


def test_every_stage_has_a_title(tmp_path):
    for stage in ("parse", "profile", "build"):
        assert refusal(refused(TensorRTMessage("x"), stage=stage), model(), tmp_path).summary.startswith("TensorRT ")


def test_a_profile_that_conflicts_is_not_answered_with_another_one(tmp_path):
    conflict = TensorRTMessage("Profile kMIN values are not self-consistent. Condition '==' violated: 8 != 1.")
    again = "trtnorm build m.onnx -p p.yaml --isolate"
    for profile, command in ((None, "trtnorm init m.onnx -o start.yaml"), (Path("p.yaml"), again)):
        error = refusal(refused(conflict, stage="profile"), model(), tmp_path, Subject(Path("m.onnx"), profile))
        assert f"run: {command}" in (error.hint or "")
        assert "8 != 1" in (error.where or "")
