"""Attention, rotary embedding and key-value cache layers against NumPy."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.tensorrt.network.harness import Bench
from trtnorm_cli.tensorrt.network import UntranslatableLayer

pytestmark = pytest.mark.rtx

RNG = np.random.default_rng(0)
Q, K, V = (RNG.normal(size=s).astype(np.float32) for s in ((2, 4, 3, 8), (2, 2, 5, 8), (2, 2, 5, 8)))


def attend(where: Any = True, bias: Any = 0.0) -> np.ndarray:
    key, value = (np.repeat(x.astype(np.float64), 2, axis=1) for x in (K, V))
    scores = np.where(where, Q @ key.transpose(0, 1, 3, 2) + bias, -np.inf)
    weights = np.exp(scores - scores.max(-1, keepdims=True))
    return weights / weights.sum(-1, keepdims=True) @ value


def attention(bench: Bench, causal: str = "NONE") -> Any:
    tensors = [bench.input(name, array.shape) for name, array in (("q", Q), ("k", K), ("v", V))]
    kind = getattr(bench.trt.CausalMaskKind, causal)
    return bench.network.add_attention_v2(*tensors, bench.trt.AttentionNormalizationOp.SOFTMAX, kind)


COLUMN, ROW = np.arange(5), np.arange(3)[:, None]


@pytest.mark.parametrize(
    ("causal", "where"), [("NONE", True), ("UPPER_LEFT", COLUMN <= ROW), ("LOWER_RIGHT", COLUMN <= ROW + 2)]
)
def test_grouped_and_causal_attention(causal: str, where: Any) -> None:
    bench = Bench()
    (y,) = bench.run(attention(bench, causal).get_output(0), q=Q, k=K, v=V)
    np.testing.assert_allclose(y, attend(where), rtol=1e-5, atol=1e-6)


def test_boolean_and_additive_masks_and_lengths() -> None:
    where, bias = RNG.random((1, 1, 3, 5)) < 0.7, RNG.normal(size=(2, 1, 3, 5)).astype(np.float32)
    where[..., 0] = True
    lengths = np.array([5, 2], np.int32)
    for name, dtype, values, expected in (
        ("mask", "BOOL", where, attend(where)),
        ("mask", "FLOAT", bias, attend(bias=bias)),
        ("key_value_lengths", "INT32", lengths, attend(lengths[:, None, None, None] > COLUMN)),
    ):
        bench = Bench()
        layer = attention(bench)
        setattr(layer, name, bench.input("extra", values.shape, dtype))
        (y,) = bench.run(layer.get_output(0), q=Q, k=K, v=V, extra=values)
        np.testing.assert_allclose(y, expected, rtol=1e-5, atol=1e-6)


def test_packed_attention_is_refused() -> None:
    bench = Bench()
    tensors = [bench.input(name, (7, heads, 8)) for name, heads in (("q", 4), ("k", 2), ("v", 2))]
    kind, operation = bench.trt.CausalMaskKind.NONE, bench.trt.AttentionNormalizationOp.SOFTMAX
    layer = bench.network.add_attention_v2(*tensors, operation, kind)
    layer.query_form = layer.key_value_form = bench.trt.AttentionIOForm.PACKED_NHD
    layer.query_lengths = layer.key_value_lengths = bench.input("lengths", (3,), "INT32")
    with pytest.raises(UntranslatableLayer, match="packed tokens"):
        bench.model(layer.get_output(0))


@pytest.mark.parametrize("positions", [False, True])
@pytest.mark.parametrize("rotated", [0, 4])
@pytest.mark.parametrize("interleaved", [False, True])
def test_rotary_embedding(interleaved: bool, rotated: int, positions: bool) -> None:
    bench = Bench()
    half = (rotated or 8) // 2
    shape = (50, half) if positions else (2, 3, half)
    angle = RNG.uniform(0, 6, size=shape)
    cosine, sine = np.cos(angle).astype(np.float32), np.sin(angle).astype(np.float32)
    tables = [bench.input(name, shape) for name in ("cosine", "sine")]
    layer = bench.network.add_rotary_embedding(bench.input("x", Q.shape), *tables, interleaved, rotated)
    at = RNG.integers(0, 50, size=(2, 3))
    if positions:
        layer.set_input(3, bench.input("at", (2, 3), "INT64"))
    (y,) = bench.run(layer.get_output(0), x=Q, cosine=cosine, sine=sine, at=at)
    angles = (angle[at] if positions else angle)[:, None]
    first, second = (slice(0, 2 * half, 2), slice(1, 2 * half, 2)) if interleaved else (slice(0, half), slice(half, 2 * half))
    turned = Q[..., first] + 1j * Q[..., second]
    turned = turned * np.exp(1j * angles)
    expected = Q.astype(np.float64).copy()
    expected[..., first], expected[..., second] = turned.real, turned.imag
    np.testing.assert_allclose(y, expected, rtol=1e-5, atol=1e-6)


def test_key_value_cache_update_writes_each_entry_at_its_own_place() -> None:
    bench = Bench()
    cache, update = RNG.normal(size=(2, 3, 6, 2)).astype(np.float32), RNG.normal(size=(2, 3, 2, 2)).astype(np.float32)
    tensors = bench.input("cache", cache.shape), bench.input("update", update.shape), bench.input("at", (2,), "INT32")
    layer = bench.network.add_kv_cache_update(*tensors, bench.trt.KVCacheMode.LINEAR)
    (y,) = bench.run(layer.get_output(0), cache=cache, update=update, at=np.array([1, 4], np.int32))
    expected = cache.copy()
    expected[0, :, 1:3], expected[1, :, 4:6] = update
    assert y.tolist() == expected.tolist()
