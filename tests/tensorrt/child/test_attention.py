"""Attention nodes for which TensorRT has no kernel of its own."""

from __future__ import annotations

from pathlib import Path

import pytest
from onnx import parser

from tests.tensorrt.builds import built

pytestmark = pytest.mark.rtx


@pytest.mark.parametrize(("heads", "width"), [(4, 16), (2, 5)])
@pytest.mark.parametrize("kind", ["float", "float16", "bfloat16"])
def test_attention_without_a_kernel_of_its_own_is_decomposed(tmp_path: Path, kind: str, heads: int, width: int) -> None:
    size = f"N, {heads}, 7, {width}"
    model = parser.parse_model(
        f'<ir_version: 11, opset_import: ["" : 23]> g ({kind}[{size}] q, {kind}[{size}] k, {kind}[{size}] v)'
        f" => ({kind}[{size}] y) {{ y = Attention <scale = 0.25> (q, k, v) }}"
    )
    shapes = tuple((batch, heads, 7, width) for batch in (1, 2, 3))
    result = built(model, tmp_path, (dict.fromkeys("qkv", shapes),))
    assert [error.text for error in result.errors] == []
    assert [layer.type for layer in result.layers].count("ATTENTION_INPUT") == 1
