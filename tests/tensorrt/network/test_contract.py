"""Every layer type and every choice that a layer offers is translated or named, for all of TensorRT's releases."""

from __future__ import annotations

from typing import Any

import pytest

from tests.tensorrt.network.harness import load_trt
from trtnorm_cli.tensorrt.network import elementwise, reduce, resampling, slicing
from trtnorm_cli.tensorrt.network.datatypes import ONNX_TYPE
from trtnorm_cli.tensorrt.network.reading import LAYER_CLASS
from trtnorm_cli.tensorrt.network.translate import CONTROL, TRANSLATIONS, UNTRANSLATABLE

#: Types that have no ONNX counterpart in the operator set that is written.
WITHOUT_ONNX_TYPE = ("FP4", "E8M0")

#: ``LayerType`` of TensorRT 10.3 to 11.4 and of TensorRT for RTX 1.4 to 1.7, together.
LAYER_TYPES = frozenset(
    {
        "ACTIVATION",
        "ASSERTION",
        "ATTENTION_INPUT",
        "ATTENTION_OUTPUT",
        "CAST",
        "CONCATENATION",
        "CONDITION",
        "CONDITIONAL_INPUT",
        "CONDITIONAL_OUTPUT",
        "CONSTANT",
        "CONVOLUTION",
        "CUMULATIVE",
        "DECONVOLUTION",
        "DEQUANTIZE",
        "DIST_COLLECTIVE",
        "DYNAMIC_QUANTIZE",
        "EINSUM",
        "ELEMENTWISE",
        "FILL",
        "GATHER",
        "GRID_SAMPLE",
        "IDENTITY",
        "ITERATOR",
        "KV_CACHE_UPDATE",
        "LOOP_OUTPUT",
        "LRN",
        "MATRIX_MULTIPLY",
        "MOE",
        "NMS",
        "NON_ZERO",
        "NORMALIZATION",
        "ONE_HOT",
        "PADDING",
        "PARAMETRIC_RELU",
        "PLUGIN",
        "PLUGIN_V2",
        "PLUGIN_V3",
        "POOLING",
        "QUANTIZE",
        "RAGGED_SOFTMAX",
        "RECURRENCE",
        "REDUCE",
        "RESIZE",
        "REVERSE_SEQUENCE",
        "ROTARY_EMBEDDING",
        "SCALE",
        "SCATTER",
        "SELECT",
        "SHAPE",
        "SHUFFLE",
        "SLICE",
        "SOFTMAX",
        "SQUEEZE",
        "TOPK",
        "TRIP_LIMIT",
        "UNARY",
        "UNSQUEEZE",
    }
)  # fmt: skip


def test_every_layer_type_is_translated_or_named_with_a_reason() -> None:
    sets = [set(TRANSLATIONS), set(CONTROL), set(UNTRANSLATABLE)]
    assert set.union(*sets) == LAYER_TYPES
    assert sum(map(len, sets)) == len(LAYER_TYPES)


def test_every_layer_type_but_the_oldest_plugin_has_its_class() -> None:
    assert LAYER_TYPES - {"PLUGIN"} == set(LAYER_CLASS)


@pytest.mark.rtx
def test_the_installed_release_has_no_other_layer_type() -> None:
    assert set(load_trt().LayerType.__members__) <= LAYER_TYPES


@pytest.mark.rtx
def test_the_installed_release_has_the_classes_that_are_named() -> None:
    trt = load_trt()
    absent = {kind for kind, name in LAYER_CLASS.items() if not hasattr(trt, name)}
    assert absent <= {"PLUGIN_V2", "PLUGIN_V3"}


@pytest.mark.rtx
@pytest.mark.parametrize(
    ("enumeration", "known"),
    [
        ("DataType", {*ONNX_TYPE, *WITHOUT_ONNX_TYPE}),
        ("ElementWiseOperation", {*elementwise._BINARY, "FLOOR_DIV", "MAX", "MIN"}),
        ("UnaryOperation", set(elementwise._UNARY)),
        ("ActivationType", {*elementwise._PLAIN_ACTIVATION, *elementwise._COMPOSED_ACTIVATION}),
        ("ReduceOperation", {*reduce._REDUCE, "NONE"}),
        ("SampleMode", {*slicing._INDEX, "FILL"}),
        ("InterpolationMode", set(resampling._MODE)),
        ("ResizeCoordinateTransformation", set(resampling._COORDINATES)),
        ("ResizeRoundMode", set(resampling._NEAREST)),
        ("ResizeSelector", {"FORMULA", "UPPER"}),
        ("MatrixOperation", {"NONE", "TRANSPOSE", "VECTOR"}),
        ("ScaleMode", {"UNIFORM", "CHANNEL", "ELEMENTWISE"}),
        ("PoolingType", {"MAX", "AVERAGE", "MAX_AVERAGE_BLEND"}),
        ("PaddingMode", {"EXPLICIT_ROUND_DOWN", "EXPLICIT_ROUND_UP", "SAME_UPPER", "SAME_LOWER"}),
        ("GatherMode", {"DEFAULT", "ELEMENT", "ND"}),
        ("ScatterMode", {"ELEMENT", "ND"}),
        ("FillOperation", {"LINSPACE", "RANDOM_UNIFORM", "RANDOM_NORMAL"}),
        ("LoopOutput", {"LAST_VALUE", "CONCATENATE", "REVERSE"}),
        ("TripLimit", {"COUNT", "WHILE"}),
        ("TopKOperation", {"MAX", "MIN"}),
        ("CumulativeOperation", {"SUM"}),
        ("KVCacheMode", {"LINEAR"}),
        ("CausalMaskKind", {"NONE", "UPPER_LEFT", "LOWER_RIGHT"}),
        ("AttentionNormalizationOp", {"NONE", "SOFTMAX"}),
        ("BoundingBoxFormat", {"CORNER_PAIRS", "CENTER_SIZES"}),
    ],
)
def test_every_choice_of_the_installed_release_is_known(enumeration: str, known: Any) -> None:
    assert set(getattr(load_trt(), enumeration).__members__) <= known


def test_the_reasons_are_sentences_about_the_layer() -> None:
    for kind, reason in UNTRANSLATABLE.items():
        assert len(reason.split()) > 4, kind
