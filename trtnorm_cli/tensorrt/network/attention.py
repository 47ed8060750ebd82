"""Attention, rotary embedding and key-value cache layers, written out in primitive operators."""

from __future__ import annotations

from typing import Any

import numpy as np

from trtnorm_cli.tensorrt.network.context import LayerContext

_MASK, _QUANTIZE_SCALE, _QUERY_LENGTHS, _KEY_VALUE_LENGTHS = 3, 4, 5, 6


def attention_input(layer: LayerContext) -> str:
    """``IAttention``: softmax(query · keyᵀ + mask) · value, computed where its inputs enter.

    Tensors are [batch, heads, tokens, width]. Fewer key-value heads serve groups of query heads. A boolean mask tells where to
    attend, any other is added. TensorRT expects the query to be scaled before.
    """
    attention = layer.handle.attention
    causal = _causal_kind(attention)
    _require_plain(layer, attention, causal)
    query, key, value = layer.wide(0), _per_query_head(layer, 1), _per_query_head(layer, 2)
    scores = layer.op("MatMul", query, layer.op("Transpose", key, perm=[0, 1, 3, 2]))
    for mask in (_own_mask, _length_mask):
        scores = mask(layer, scores)
    if causal != "NONE":
        scores = _attend(layer, scores, _causal_mask(layer, causal))
    if attention.norm_op.name == "SOFTMAX":
        scores = layer.op("Softmax", scores, axis=-1)
    return layer.narrow(layer.op("MatMul", scores, value))


def attention_output(layer: LayerContext) -> str:
    """The attention's result leaves its scope unchanged."""
    return layer.op("Identity", layer.value(0))


def _causal_kind(attention: Any) -> str:
    kind = getattr(attention, "causal_kind", None)
    if kind is not None:
        return str(kind.name)
    return "UPPER_LEFT" if attention.causal else "NONE"


def _require_plain(layer: LayerContext, attention: Any, causal: str) -> None:
    forms = [getattr(attention, name).name for name in ("query_form", "key_value_form") if hasattr(attention, name)]
    if any(form != "PADDED_BHND" for form in forms) or layer.has(_QUERY_LENGTHS):
        raise layer.layer.refused("attention over packed tokens")
    if layer.has(_QUANTIZE_SCALE):
        raise layer.layer.refused("attention with a quantized softmax")
    masked = causal != "NONE" or layer.has(_MASK) or layer.has(_KEY_VALUE_LENGTHS)
    if attention.norm_op.name != "SOFTMAX" and masked:
        raise layer.layer.refused("masked attention without softmax")
    if causal == "LOWER_RIGHT" and layer.has(_KEY_VALUE_LENGTHS):
        raise layer.layer.refused("causal attention aligned at the end, with a length for each batch entry")


def _per_query_head(layer: LayerContext, index: int) -> str:
    """Keys or values with one head for each query head. Each is repeated for its group."""
    x, query_heads, heads, width = layer.wide(index), layer.shape(0)[1], layer.shape(index)[1], layer.shape(index)[3]
    if query_heads == heads:
        return x
    if min(query_heads, heads, width) < 1:
        raise layer.layer.refused("grouped heads whose number or width is known at run time only")
    repeated = layer.op("Expand", layer.op("Unsqueeze", x, layer.ints(2)), layer.ints(1, 1, query_heads // heads, 1, 1))
    return layer.op("Reshape", repeated, layer.ints(0, query_heads, -1, width))


def _attend(layer: LayerContext, scores: str, where: str) -> str:
    return layer.op("Where", where, scores, layer.array(-np.inf, np.float32))


def _own_mask(layer: LayerContext, scores: str) -> str:
    if not layer.has(_MASK):
        return scores
    if layer.tensor(_MASK).dtype == "BOOL":
        return _attend(layer, scores, layer.value(_MASK))
    return layer.op("Add", scores, layer.wide(_MASK))


def _length_mask(layer: LayerContext, scores: str) -> str:
    if not layer.has(_KEY_VALUE_LENGTHS):
        return scores
    lengths = layer.op("Reshape", layer.int64(_KEY_VALUE_LENGTHS), layer.ints(-1, 1, 1, 1))
    return _attend(layer, scores, layer.op("Less", _positions(layer, 1, 2), lengths))


def _causal_mask(layer: LayerContext, causal: str) -> str:
    """Query i attends to keys j ≤ i, or j ≤ i + (keys − queries) when aligned at the end."""
    queries = layer.op("Unsqueeze", _positions(layer, 0, 2), layer.ints(1))
    if causal == "LOWER_RIGHT":
        queries = layer.op("Add", queries, layer.op("Sub", layer.dim(1, 2), layer.dim(0, 2)))
    return layer.op("LessOrEqual", _positions(layer, 1, 2), queries)


def _positions(layer: LayerContext, index: int, axis: int) -> str:
    count = layer.op("Squeeze", layer.dim(index, axis), layer.ints(0))
    return layer.op("Range", layer.array(0, np.int64), count, layer.array(1, np.int64))


def rotary_embedding(layer: LayerContext) -> str:
    """``IRotaryEmbeddingLayer``: rotate pairs of the first ``rotary_embedding_dim`` elements (0: all) of each head.

    The input is [batch, heads, tokens, width]. Cosines and sines are [batch, tokens, half the rotated width], or a table that
    input 3, the positions, looks up. A pair is two neighbours if interleaved, else elements half the width apart.
    """
    width = layer.shape(0)[3]
    rotated = int(layer.handle.rotary_embedding_dim) or width
    if rotated < 0:
        raise layer.layer.refused("a head width known at run time only")
    x = layer.wide(0)
    cosine, sine = (_angles(layer, index) for index in (1, 2))
    pairs = _interleaved if layer.handle.interleaved else _halves
    turned = pairs(layer, _part(layer, x, 0, rotated), cosine, sine, rotated)
    if rotated != width:
        turned = layer.op("Concat", turned, _part(layer, x, rotated, np.iinfo(np.int64).max), axis=-1)
    return layer.narrow(turned)


def _angles(layer: LayerContext, index: int) -> str:
    """Cosines or sines as [batch, 1, tokens, half]."""
    values = layer.op("Gather", layer.wide(index), layer.int64(3), axis=0) if layer.has(3) else layer.wide(index)
    return layer.op("Unsqueeze", values, layer.ints(1))


def _part(layer: LayerContext, x: str, start: int, end: int, step: int = 1) -> str:
    return layer.op("Slice", x, layer.ints(start), layer.ints(end), layer.ints(-1), layer.ints(step))


def _rotation(layer: LayerContext, first: str, second: str, cosine: str, sine: str) -> tuple[str, str]:
    def product(a: str, b: str) -> str:
        return layer.op("Mul", a, b)

    real = layer.op("Sub", product(first, cosine), product(second, sine))
    return real, layer.op("Add", product(first, sine), product(second, cosine))


def _halves(layer: LayerContext, x: str, cosine: str, sine: str, rotated: int) -> str:
    first, second = _part(layer, x, 0, rotated // 2), _part(layer, x, rotated // 2, rotated)
    return layer.op("Concat", *_rotation(layer, first, second, cosine, sine), axis=-1)


def _interleaved(layer: LayerContext, x: str, cosine: str, sine: str, rotated: int) -> str:
    first, second = (_part(layer, x, start, rotated, step=2) for start in (0, 1))
    columns = [layer.op("Unsqueeze", v, layer.ints(-1)) for v in _rotation(layer, first, second, cosine, sine)]
    return layer.op("Reshape", layer.op("Concat", *columns, axis=-1), layer.ints(0, 0, 0, rotated))


def key_value_cache_update(layer: LayerContext) -> str:
    """``IKVCacheUpdateLayer``: out[b, :, start[b] + s, :] = update[b, :, s, :], the cache elsewhere."""
    form = getattr(layer.handle, "update_form", None)
    if layer.handle.cache_mode.name != "LINEAR" or (form is not None and form.name != "PADDED_BHND"):
        raise layer.layer.refused("a cache that is not written linearly from padded tokens")
    steps = layer.op("Reshape", _positions(layer, 1, 2), layer.ints(1, 1, -1, 1))
    where = layer.op("Add", steps, layer.op("Reshape", layer.int64(2), layer.ints(-1, 1, 1, 1)))
    where = layer.op("Expand", where, layer.dims(layer.value(1)))
    onnx_type = layer.tensor(0).onnx_type
    inputs = [layer.value(0), where, layer.value(1)]
    return layer.move("ScatterElements", inputs, onnx_type, data=(0, 2), axis=2)
