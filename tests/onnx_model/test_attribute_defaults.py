"""Defaults that TensorRT's parser has otherwise are written out."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tests.models import parse, saved
from trtnorm_cli.cli import run
from trtnorm_cli.onnx_model.clean import clean

GRAPH = "g (float[2, 3] x) => (float[2, 3] y) {{ y = Selu{}(x) }}"


def attributes(attribute: str) -> dict[str, float]:
    (node,) = clean(parse(GRAPH.format(attribute))).model.graph.node
    return {attribute.name: pytest.approx(attribute.f) for attribute in node.attribute}


def test_selu_has_both_values_and_keeps_its_own():
    assert attributes("") == {"alpha": 1.6732632, "gamma": 1.050701}
    assert attributes("<alpha = 2.0>") == {"alpha": 2.0, "gamma": 1.050701}
    model = parse(GRAPH.format(""))
    again = clean(clean(model).model)
    assert "attributes written out" not in again.counts


@pytest.mark.parametrize(("stated", "bins"), [("", 5), ("<onesided = 0>", 8)])
def test_an_stft_has_the_bins_of_half_a_spectrum(stated: str, bins: int):
    """What is behind it is proved at its sizes: a fold could not be, at twice as many bins."""
    weights = {"step": np.array(3), "window": np.ones(8, np.float32)}
    model = parse(f"g (float[2, 40] x) => (float[2, F, B, C] z) {{ y = STFT{stated}(x, step, window) z = Relu(y) }}", weights)
    (found,) = (value for value in clean(model).model.graph.value_info if value.name == "y")
    assert [size.dim_value for size in found.type.tensor_type.shape.dim] == [2, 11, bins, 2]


@pytest.mark.rtx
def test_the_parser_has_other_values_and_the_build_is_right(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(tmp_path)
    saved(parse(GRAPH.format("")), tmp_path / "m.onnx")
    assert run(["compare", "m.onnx", "network:m.onnx", "--no-blame"]) == 1
    assert run(["build", "m.onnx", "--require-compare"]) == 0
