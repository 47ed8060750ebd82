"""ONNX's own operator tests through TensorRT's parser; `python -m tests.tensorrt.network.suite` prints the whole table."""

from __future__ import annotations

from collections import Counter

import pytest

from tests.tensorrt.network import suite as network_suite

pytestmark = [pytest.mark.rtx, pytest.mark.slow]

#: Tests that TensorRT for RTX 1.7 parses and gets wrong, by the beginning of their names. Each was looked at in the network.
PARSER_ERRORS = {
    "test_attention_4d_causal_nonpad": "nonpad_kv_seqlen is ignored",
    "test_attention_4d_gqa_causal_nonpad": "nonpad_kv_seqlen is ignored",
    "test_attention_local_window": "left_window_size is ignored",
    "test_attention_bidirectional_window": "the window is ignored",
    "test_averagepool_2d_ceil_last_window_starts_on_pad": "TensorRT keeps the window that ONNX leaves out",
    "test_maxpool_2d_ceil_output_size_reduce_by_one": "TensorRT keeps the window that ONNX leaves out",
    "test_gru_batchwise": "layout is ignored",
    "test_lstm_batchwise": "layout is ignored",
    "test_simple_rnn_batchwise": "layout is ignored",
    "test_loop11": "the input cond is renamed cond_in",
    "test_selu_default": "default constants of five digits",
    "test_spacetodepth_crd_mode": "mode is ignored",
    "test_triu": "the default of upper is taken for 0",
    "test_clip_min_greater_than_max": "TensorRT's clip gives the lower bound",
}

#: Where TensorRT's documentation does not say what happens, or says that it differs from ONNX.
UNSPECIFIED = {
    "test_cast_no_saturate": "what a cast to float8 does out of range; saturate is ignored",
    "test_castlike_no_saturate": "what a cast to float8 does out of range; saturate is ignored",
    "test_attention_23_boolmask_fullymasked_row": "a row that attends to nothing",
    "test_nonmaxsuppression_two_classes": "TensorRT sorts by score across classes",
    "test_resize_downsample_scales": "coordinates by the ratio of lengths, where ONNX takes the scale",
}

#: The parser finds no such plugin, and crashes when it lets go of the network or parses the next one.
CRASHES = {"test_roialign"}


def begins_with(name: str, beginnings: object) -> bool:
    return any(name.startswith(str(beginning)) for beginning in beginnings)  # type: ignore[attr-defined]


@pytest.mark.parametrize(("constants", "least"), [(False, 850), (True, 1000)])
def test_every_difference_is_known(constants: bool, least: int) -> None:
    outcomes = network_suite.run("", constants)
    wrong = {o.name: o.words for o in outcomes if o.verdict == "wrong"}
    unknown = {name: words for name, words in wrong.items() if not begins_with(name, [*PARSER_ERRORS, *UNSPECIFIED])}
    assert not unknown
    assert all(begins_with(o.name, CRASHES) for o in outcomes if o.verdict == "crash")
    assert Counter(o.verdict for o in outcomes)["pass"] > least


def test_layers_without_a_translation_in_these_tests() -> None:
    refused = [o for o in network_suite.run("", constants=False) if o.verdict == "untranslatable"]
    allowed = ("draws its values", "a zero point of UINT8", "a zero point that is known at run time only", "the type FP4")
    assert [o.words for o in refused if not any(reason in o.words for reason in allowed)] == []


NORMALIZATIONS = "batchnorm|instancenorm|(layer|group|rms)_normalization|mvn|lpnorm|l[12]norm|lrn"


@pytest.mark.parametrize("constants", [False, True])
def test_normalization_operators(constants: bool) -> None:
    outcomes = network_suite.run(NORMALIZATIONS, constants)
    verdicts = Counter(o.verdict for o in outcomes)
    assert verdicts["pass"] > 20
    assert [o for o in outcomes if o.verdict in ("wrong", "crash", "untranslatable")] == []
