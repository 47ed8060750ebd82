"""Smaller inputs as the tests ask for them: with ``partial``, at the sizes of one module."""

from __future__ import annotations

from collections.abc import Mapping

import onnx

from trtnorm_cli.compare import smaller_inputs


def found_at(sizes: Mapping[str, tuple[int, ...]], model: onnx.ModelProto) -> smaller_inputs.Smaller:
    """The smaller inputs of a model that has some."""
    found = smaller_inputs.smaller_inputs(model, sizes)
    assert found is not None
    return found


def is_same_at(sizes: Mapping[str, tuple[int, ...]], model: onnx.ModelProto, found: smaller_inputs.Smaller) -> bool:
    """True where a model surely does the same at the smaller inputs that were ``found`` for another."""
    return smaller_inputs.at_smaller(model, sizes, found) is not None
