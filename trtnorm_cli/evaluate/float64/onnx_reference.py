"""Operators that are left to ``onnx.reference``: those of its kernels that were checked in float64, and no others."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import onnx
from onnx import NodeProto

from trtnorm_cli.evaluate.float64.raising import raised_array

VERIFIED = frozenset(
    ("", name)
    for name in (
        *("MelWeightMatrix", "TensorScatter", "TfIdfVectorizer"),
        *("RegexFullMatch", "StringConcat", "StringNormalizer", "StringSplit"),
    )
)
"""Domain and operator; the strings compute nothing, the others were compared with ONNX Runtime."""
DESCRIPTION = f"onnx.reference {onnx.__version__}"


def evaluate(node: NodeProto, inputs: Sequence[Any], opsets: Mapping[str, int], cache: dict[str, Any]) -> Sequence[Any]:
    """The outputs of one node; ``cache`` keeps its evaluator between iterations."""
    if "onnx.reference" not in cache:
        from onnx.reference import ReferenceEvaluator  # imports every operator's kernel

        cache["onnx.reference"] = ReferenceEvaluator(node, opsets=dict(opsets))
    named = {name: value for name, value in zip(node.input, inputs, strict=True) if name}
    return [raised_array(value) for value in cache["onnx.reference"].run(None, named)]
