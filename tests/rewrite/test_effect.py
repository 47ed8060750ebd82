"""What users read of small things: changes of results, attributes as JSON, and why a normalization is left."""

from __future__ import annotations

import math
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from trtnorm_cli.rewrite.describe import _plain
from trtnorm_cli.rewrite.effect import Effect, OutputEffect
from trtnorm_cli.rewrite.norms.kinds import GROUP, INSTANCE, LAYER, RMS
from trtnorm_cli.rewrite.norms.record import why_left
from trtnorm_cli.rewrite.proof.check import _differ_next_to_ties

ASKED = "dynamic_quantization: float"


def test_a_change_of_results_in_words():
    outputs = {"y": OutputEffect(0.125, 0.0625), "classes": OutputEffect(1.0, 1.0, share=0.03)}
    effect = Effect(ASKED, 4, outputs, way="in ONNX Runtime")
    assert str(effect) == (
        f"{ASKED} changes the results: y by 0.12 of its largest value (0.062 in L2), classes in 0.03 of its elements;"
        " 4 draws of random inputs, in ONNX Runtime"
    )
    assert Effect(ASKED, reason="it does not run").measured == "not measured: it does not run"


@pytest.mark.parametrize(
    ("value", "plain"),
    [
        (b"SAME_UPPER", "SAME_UPPER"),
        ([1, (2.5, b"a")], [1, [2.5, "a"]]),
        ({"a": math.inf, "b": math.nan, "c": None}, {"a": "inf", "b": "nan", "c": None}),
        (np.zeros(3), "ndarray"),
    ],
)
def test_attributes_as_json_can_say_them(value, plain):
    assert _plain(value) == plain


@pytest.mark.parametrize(
    ("misgiving", "kind", "shape", "axes", "why"),
    [
        ("divided by n − 1", LAYER, (2, 3), (1,), "divided by n − 1"),
        ("", LAYER, (2, 3, 4), (2,), "over the last axis it takes TensorRT as few kernels in every spelling"),
        ("", RMS, (2, 3, 4), (2,), "over the last axis it takes TensorRT as few kernels in every spelling"),
        ("", RMS, (2, 3, 4), (1,), "no other form is known to take TensorRT fewer kernels"),
        ("", INSTANCE, (2, 3, 4), (2,), "what it is made of is not known well enough"),
        ("", GROUP, None, (1,), "what it is made of is not known well enough"),
        ("", LAYER, None, (0, 1), "no other form is known to take TensorRT fewer kernels"),
    ],
)
def test_why_a_normalization_in_pieces_is_left(misgiving, kind, shape, axes, why):
    norm: Any = SimpleNamespace(misgiving=misgiving, kind=kind, shape=shape, axes=axes)
    assert why_left(norm) == why


BYTES = np.arange(2000, dtype=np.uint8)


@pytest.mark.parametrize(
    ("wanted", "got", "tied"),
    [
        (BYTES, BYTES, True),
        (BYTES, np.where(np.arange(2000) == 7, BYTES + 1, BYTES).astype(np.uint8), True),
        (BYTES, np.where(np.arange(2000) == 7, BYTES + 2, BYTES).astype(np.uint8), False),
        (BYTES, np.where(np.arange(2000) % 2 == 0, BYTES + 1, BYTES).astype(np.uint8), False),
        (BYTES, BYTES.astype(np.int8), False),
        (BYTES, BYTES.reshape(2, 1000), False),
        (BYTES.astype(np.float32), BYTES.astype(np.float32), False),
    ],
    ids=["equal", "one by a step", "one by two steps", "half by a step", "another type", "another shape", "real numbers"],
)
def test_quantised_results_a_step_apart_in_few_places_are_ties(wanted, got, tied):
    assert _differ_next_to_ties([wanted], [got]) == tied
