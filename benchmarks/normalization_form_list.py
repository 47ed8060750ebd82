"""Every form of the other normalizations that ONNX and ONNX Runtime allow or exporters write, and forms that are broken."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np

from benchmarks.forms import Form
from benchmarks.normalization_models import (
    MICROSOFT,
    Model,
    behind_convolution,
    in_a_branch,
    in_a_function,
    in_a_loop,
    model,
    random,
    scales,
    spoilt,
    with_attribute,
)

Named = tuple[Any, ...]
IN = "n = InstanceNormalization(c, s, b)"
GN = "n = GroupNormalization <num_groups={}> (c, s, b)"
LN = "n = LayerNormalization(c, s, b)"
BF16 = ml_dtypes.bfloat16
HALF = np.float16
DYNAMIC = {"x": ((1, 8, 2, 2), (2, 8, 6, 5), (3, 8, 9, 9))}
FROM_ONE = {"x": ((1, 8, 1, 1), (2, 8, 6, 5), (3, 8, 9, 9))}
ONE = "2, 8, 1, 1"
RUNTIME = ", {kind}[{length}] s, {kind}[{length}] b"


def runtime(length: str = "8", kind: str = "float") -> str:
    return RUNTIME.format(kind=kind, length=length)


def tensor(*shape: int) -> tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...]]:
    """One shape as min, opt and max."""
    return (shape, shape, shape)


def _instance() -> list[Named]:
    eight = scales(8)
    return [
        ("rank 4", model(IN, eight)),
        *((f"opset {o}", model(IN, eight, opset=o)) for o in (1, 6, 7, 11, 21, 22, 23)),
        ("rank 3", model(IN, eight, "2, 8, 7")),
        ("rank 5", model(IN, eight, "2, 8, 3, 4, 5")),
        ("rank 6", model(IN, eight, "2, 8, 3, 2, 2, 3")),
        ("rank 2", model(IN, eight, "2, 8")),
        ("between convolutions", behind_convolution(IN, eight)),
        ("dynamic N, H, W", model(IN, eight, "N, 8, H, W"), DYNAMIC),
        ("dynamic N, H, W from 1×1", model(IN, eight, "N, 8, H, W"), FROM_ONE),
        ("dynamic N, H, W, 1×1 only", model(IN, eight, "N, 8, H, W"), {"x": ((1, 8, 1, 1), (2, 8, 1, 1), (3, 8, 1, 1))}),
        ("dynamic C", model(IN, eight, "2, C, 6, 5"), {"x": tensor(2, 8, 6, 5)}),
        ("dynamic C, profile of another C", model(IN, eight, "2, C, 6, 5"), {"x": ((2, 4, 6, 5), (2, 8, 6, 5), (2, 16, 6, 5))}),
        ("1×1", model(IN, eight, ONE)),
        ("1×1, rank 3", model(IN, eight, "2, 8, 1")),
        ("1×1, dynamic N", model(IN, eight, "N, 8, 1, 1"), {"x": ((1, 8, 1, 1), (2, 8, 1, 1), (4, 8, 1, 1))}),
        (
            "1×1 behind GlobalAveragePool, dynamic N, H, W",
            model(IN, eight, "N, 8, H, W", out="N, 8, 1, 1", before="c = GlobalAveragePool(x)"),
            DYNAMIC,
        ),
        ("1×1, parameters of run time", model(IN, {}, ONE, inputs=runtime())),
        ("parameters of run time (adaptive)", model(IN, {}, inputs=runtime())),
        (
            "parameters computed per sample count",
            model("t = Mul(s, s) n = InstanceNormalization(c, t, b)", {}, inputs=runtime()),
        ),
        ("float16", model(IN, scales(8, dtype=HALF), kind="float16")),
        ("float16 data, float32 parameters", model(IN, eight, kind="float16")),
        (
            "float16 data, float32 parameters beyond float16",
            model(
                IN, {"s": np.full(8, 1e6, np.float32), "b": np.full(8, 1e-9, np.float32)}, kind="float16", after="y = Tanh(n)"
            ),
        ),
        ("float16 data, float32 parameters of run time", model(IN, {}, kind="float16", inputs=runtime())),
        ("bfloat16", model(IN, scales(8, dtype=BF16), kind="bfloat16", opset=22)),
        ("bfloat16 data, float32 parameters", model(IN, eight, kind="bfloat16", opset=22)),
        ("float32 data, float16 parameters", model(IN, scales(8, dtype=HALF))),
        ("float64", model(IN, scales(8, dtype=np.float64), kind="double")),
        ("float32 data, float64 parameters", model(IN, scales(8, dtype=np.float64))),
        ("inside `If`", in_a_branch(IN, eight)),
        ("1×1 inside `If`", in_a_branch(IN, eight, ONE)),
        ("inside `Loop`", in_a_loop(IN, eight)),
        ("1×1 inside `Loop`", in_a_loop(IN, eight, ONE)),
        ("parameters behind `Identity`", model("i = Identity(s) j = Identity(b) n = InstanceNormalization(c, i, j)", eight)),
        ("in a model-local function", in_a_function(IN, eight)),
        ("`epsilon` absent", model(IN, eight)),
        ("`epsilon` 0", model("n = InstanceNormalization <epsilon=0.0> (c, s, b)", eight)),
        ("`epsilon` 1.0", model("n = InstanceNormalization <epsilon=1.0> (c, s, b)", eight)),
        ("`epsilon` negative", model("n = InstanceNormalization <epsilon=-0.01> (c, s, b)", eight)),
        ("`epsilon` as an integer", model("n = InstanceNormalization <epsilon=1> (c, s, b)", eight)),
        ("`epsilon` as a text", model('n = InstanceNormalization <epsilon="1e-5"> (c, s, b)', eight)),
        ("NaN in the scale", model(IN, spoilt(np.nan))),
        ("infinite scale", model(IN, spoilt(np.inf))),
        ("scale of shape [1, C]", model(IN, scales(1, 8))),
        ("scale of shape [1, C, 1, 1]", model(IN, scales(1, 8, 1, 1))),
        ("scale of shape []", model(IN, scales())),
        ("one scale for all channels", model(IN, scales(1))),
        ("length 0", model(IN, scales(0))),
        ("bias left out", model('n = InstanceNormalization(c, s, "")', eight)),
        ("two inputs", model("n = InstanceNormalization(c, s)", eight)),
        ("one channel", model(IN, scales(1), "2, 1, 6, 5")),
    ]


def _groups(count: int) -> str:
    return "1 group" if count == 1 else f"{count} groups"


def _group() -> list[Named]:
    eight, four = scales(8), scales(4)
    new, old = 21, 18
    return [
        *((f"{_groups(g)} of 8 channels, opset {new}", model(GN.format(g), eight, opset=new)) for g in (1, 2, 4, 8)),
        *((f"{_groups(g)} of 8 channels, opset {old}", model(GN.format(g), scales(g), opset=old)) for g in (1, 2, 4, 8)),
        *((f"{_groups(g)}, opset 20", model(GN.format(g), scales(g), opset=20)) for g in (1, 4)),
        *((f"{_groups(g)}, opset 23", model(GN.format(g), eight, opset=23)) for g in (1, 4)),
        *((f"{_groups(g)}, rank 3", model(GN.format(g), eight, "2, 8, 7", opset=new)) for g in (1, 4)),
        *((f"{_groups(g)}, rank 5", model(GN.format(g), eight, "2, 8, 3, 4, 5", opset=new)) for g in (1, 4)),
        *((f"{_groups(g)}, rank 6", model(GN.format(g), eight, "2, 8, 3, 2, 2, 3", opset=new)) for g in (1, 4)),
        *((f"{_groups(g)}, rank 2", model(GN.format(g), eight, "2, 8", opset=new)) for g in (1, 4, 8)),
        *((f"{_groups(g)}, rank 2, opset {old}", model(GN.format(g), scales(g), "2, 8", opset=old)) for g in (1, 4, 8)),
        *((f"{_groups(g)} between convolutions", behind_convolution(GN.format(g), eight, opset=new)) for g in (1, 4)),
        *((f"{_groups(g)}, dynamic N, H, W", model(GN.format(g), eight, "N, 8, H, W", opset=new), DYNAMIC) for g in (1, 4)),
        *(
            (f"{_groups(g)}, dynamic N, H, W, opset {old}", model(GN.format(g), scales(g), "N, 8, H, W", opset=old), DYNAMIC)
            for g in (1, 4)
        ),
        *(
            (f"{_groups(g)}, dynamic from 1×1", model(GN.format(g), eight, "N, 8, H, W", opset=new), FROM_ONE)
            for g in (1, 4, 8)
        ),
        *(
            (f"{_groups(g)}, dynamic C", model(GN.format(g), eight, "2, C, 6, 5", opset=new), {"x": tensor(2, 8, 6, 5)})
            for g in (1, 4)
        ),
        (
            f"4 groups, dynamic C, opset {old}",
            model(GN.format(4), four, "2, C, 6, 5", opset=old),
            {"x": tensor(2, 8, 6, 5)},
        ),
        *((f"{_groups(g)}, 1×1", model(GN.format(g), eight, ONE, opset=new)) for g in (1, 4, 8)),
        *((f"{_groups(g)}, 1×1, opset {old}", model(GN.format(g), scales(g), ONE, opset=old)) for g in (1, 4, 8)),
        ("one group, one channel", model(GN.format(1), scales(1), "2, 1, 6, 5", opset=new)),
        ("one group, one channel, 1×1", model(GN.format(1), scales(1), "2, 1, 1, 1", opset=new)),
        *((f"{_groups(g)}, parameters of run time", model(GN.format(g), {}, inputs=runtime(), opset=new)) for g in (1, 4)),
        *(
            (f"{_groups(g)}, parameters of run time, opset {old}", model(GN.format(g), {}, inputs=runtime(str(g)), opset=old))
            for g in (1, 4)
        ),
        *((f"{_groups(g)}, float16", model(GN.format(g), scales(8, dtype=HALF), kind="float16", opset=new)) for g in (1, 4)),
        *(
            (f"{_groups(g)}, float16 data, float32 parameters", model(GN.format(g), eight, kind="float16", opset=new))
            for g in (1, 4)
        ),
        *((f"{_groups(g)}, bfloat16", model(GN.format(g), scales(8, dtype=BF16), kind="bfloat16", opset=new)) for g in (1, 4)),
        *(
            (f"{_groups(g)}, float64", model(GN.format(g), scales(8, dtype=np.float64), kind="double", opset=new))
            for g in (1, 4)
        ),
        (
            "one group, `stash_type` float16",
            model("n = GroupNormalization <num_groups=1, stash_type=10> (c, s, b)", eight, opset=new),
        ),
        (
            "4 groups, `stash_type` float64",
            model("n = GroupNormalization <num_groups=4, stash_type=11> (c, s, b)", eight, opset=new),
        ),
        ("one group inside `If`", in_a_branch(GN.format(1), eight, opset=new)),
        ("one group inside `Loop`", in_a_loop(GN.format(1), eight, opset=new)),
        ("one group, one parameter of run time for all channels", model(GN.format(1), {}, inputs=runtime("1"), opset=new)),
        ("one group, `epsilon` 1.0", model("n = GroupNormalization <num_groups=1, epsilon=1.0> (c, s, b)", eight, opset=new)),
        ("one group in a model-local function", in_a_function(GN.format(1), eight, opset=new)),
        ("3 groups of 8 channels", model(GN.format(3), eight, opset=new)),
        (
            "`num_groups` absent",
            with_attribute(model(GN.format(1), eight, opset=new), "num_groups", None, "GroupNormalization"),
        ),
        ("`num_groups` 0", model(GN.format(0), eight, opset=new)),
        (
            "4 groups, `epsilon` as an integer",
            model("n = GroupNormalization <num_groups=4, epsilon=1> (c, s, b)", eight, opset=new),
        ),
        ("4 groups, NaN in the scale", model(GN.format(4), spoilt(np.nan), opset=new)),
        ("4 groups, bias left out", model('n = GroupNormalization <num_groups=4> (c, s, "")', eight, opset=new)),
    ]


def _layer() -> list[Named]:
    last = scales(16)
    tokens = "2, 7, 16"
    ln = "n = LayerNormalization <{}> (c, s, b)"
    three = "n, m, d = LayerNormalization <axis=-1> (c, s, b)"
    return [
        ("last axis", model(LN, last, tokens)),
        *((f"opset {o}", model(LN, last, tokens, opset=o)) for o in (11, 13, 16, 18, 21, 23)),
        ("rank 2", model(LN, last, "4, 16")),
        ("rank 1", model(LN, last, "16")),
        ("rank 4", model(LN, last, "2, 3, 5, 16")),
        ("rank 6", model(LN, last, "2, 3, 2, 2, 5, 16")),
        ("`axis` -2", model(ln.format("axis=-2"), scales(7, 16), tokens)),
        ("`axis` 1, rank 4 (channels and positions)", model(ln.format("axis=1"), scales(8, 6, 5))),
        ("`axis` 0", model(ln.format("axis=0"), scales(2, 7, 16), tokens)),
        ("scale of the last axis, `axis` 1", model(ln.format("axis=1"), scales(16), tokens)),
        ("scale [1, 16]", model(LN, scales(1, 16), tokens)),
        ("scale [7, 16] over the last axis", model(LN, scales(7, 16), tokens)),
        ("scale of one value", model(LN, scales(1), tokens)),
        ("scale that is a scalar", model(LN, scales(), tokens)),
        ("without bias", model("n = LayerNormalization(c, s)", last, tokens)),
        ("bias left out as an empty name", model('n = LayerNormalization(c, s, "")', last, tokens)),
        ("mean and deviation, nobody uses them", model(three, last, tokens)),
        ("mean is used", model(three, last, tokens, outputs=", float[2, 7, 1] m")),
        ("deviation is used", model(three, last, tokens, outputs=", float[2, 7, 1] d")),
        (
            "deviation is used, mean is left out",
            model('n, "", d = LayerNormalization(c, s, b)', last, tokens, outputs=", float[2, 7, 1] d"),
        ),
        (
            "both are used, without bias",
            model("n, m, d = LayerNormalization(c, s)", last, tokens, outputs=", float[2, 7, 1] m, float[2, 7, 1] d"),
        ),
        (
            "mean is used, dynamic N and T",
            model(three, last, "N, T, 16", outputs=", float[N, T, 1] m"),
            {"x": ((1, 1, 16), (2, 7, 16), (4, 9, 16))},
        ),
        ("dynamic N and T", model(LN, last, "N, T, 16"), {"x": ((1, 1, 16), (2, 7, 16), (4, 9, 16))}),
        ("dynamic last axis", model(LN, last, "2, 7, C"), {"x": tensor(2, 7, 16)}),
        (
            "dynamic last axis, profile of other sizes",
            model(LN, last, "2, 7, C"),
            {"x": ((2, 7, 8), (2, 7, 16), (2, 7, 32))},
        ),
        ("scale of run time [7, 16] over the last axis", model(LN, {}, tokens, inputs=runtime("7, 16"))),
        ("mean is used, parameters of run time", model(three, {}, tokens, inputs=runtime("16"), outputs=", float[2, 7, 1] m")),
        ("one element per row", model(LN, scales(1), "2, 7, 1")),
        ("parameters of run time", model(LN, {}, tokens, inputs=runtime("16"))),
        ("float16", model(LN, scales(16, dtype=HALF), tokens, kind="float16")),
        ("float16 data, float32 parameters", model(LN, last, tokens, kind="float16")),
        ("float16 data, float32 scale, no bias", model("n = LayerNormalization(c, s)", last, tokens, kind="float16")),
        (
            "float16 data, float32 parameters beyond float16",
            model(
                LN,
                {"s": np.full(16, 1e6, np.float32), "b": np.full(16, 1e-9, np.float32)},
                tokens,
                kind="float16",
                after="y = Tanh(n)",
            ),
        ),
        ("bfloat16", model(LN, scales(16, dtype=BF16), tokens, kind="bfloat16")),
        ("bfloat16 data, float32 parameters", model(LN, last, tokens, kind="bfloat16")),
        ("float32 data, float16 parameters", model(LN, scales(16, dtype=HALF), tokens)),
        ("float64", model(LN, scales(16, dtype=np.float64), tokens, kind="double")),
        ("`stash_type` float16", model(ln.format("stash_type=10"), last, tokens)),
        ("`stash_type` float64", model(ln.format("stash_type=11"), last, tokens)),
        ("inside `If`", in_a_branch(LN, last, tokens)),
        ("mean is used, inside `If`", in_a_branch("n0, m, d = LayerNormalization(c, s, b) n = Add(n0, m)", last, tokens)),
        ("inside `Loop`", in_a_loop(LN, last, tokens)),
        ("in a model-local function", in_a_function(LN, last, tokens)),
        ("`epsilon` 0", model(ln.format("epsilon=0.0"), last, tokens)),
        ("`epsilon` as an integer", model(ln.format("epsilon=1"), last, tokens)),
        ("`axis` beyond the rank", model(ln.format("axis=3"), last, tokens)),
        ("scale of another length", model(LN, scales(8), tokens)),
        ("NaN in the scale", model(LN, {**last, "s": np.full(16, np.nan, np.float32)}, tokens)),
    ]


def _rms() -> list[Named]:
    last = scales(16)
    tokens = "2, 7, 16"
    rms = "n = RMSNormalization <{}> (c, s)"
    simple = "n = SimplifiedLayerNormalization <axis=-1, epsilon=1e-6> (c, s)"
    skip = "n = com.microsoft.SkipLayerNormalization <epsilon=1e-5> (c, k, s, b)"
    skips = {**last, "k": random(2, 7, 16), "e": random(16, seed=5)}
    ms: dict[str, Any] = {"domains": (MICROSOFT,)}
    return [
        ("RMSNormalization, last axis", model(rms.format("axis=-1"), last, tokens, opset=23)),
        ("RMSNormalization, `axis` 1", model(rms.format("axis=1"), scales(7, 16), tokens, opset=23)),
        ("RMSNormalization, `axis` 0", model(rms.format("axis=0"), scales(2, 7, 16), tokens, opset=23)),
        ("RMSNormalization, rank 4", model(rms.format("axis=-1"), last, "2, 3, 5, 16", opset=23)),
        ("RMSNormalization, rank 2", model(rms.format("axis=-1"), last, "4, 16", opset=23)),
        ("RMSNormalization, scale that broadcasts", model(rms.format("axis=1"), last, tokens, opset=23)),
        ("RMSNormalization, scale of one value", model(rms.format("axis=-1"), scales(1), tokens, opset=23)),
        (
            "RMSNormalization, dynamic",
            model(rms.format("axis=-1"), last, "N, T, 16", opset=23),
            {"x": ((1, 1, 16), (2, 7, 16), (4, 9, 16))},
        ),
        ("RMSNormalization, scale of run time", model(rms.format("axis=-1"), {}, tokens, opset=23, inputs=", float[16] s")),
        ("RMSNormalization, float16", model(rms.format("axis=-1"), scales(16, dtype=HALF), tokens, kind="float16", opset=23)),
        (
            "RMSNormalization, float16 data, float32 scale",
            model(rms.format("axis=-1"), last, tokens, kind="float16", opset=23, after="y = Cast <to=10> (n)"),
        ),
        ("RMSNormalization, bfloat16", model(rms.format("axis=-1"), scales(16, dtype=BF16), tokens, kind="bfloat16", opset=23)),
        (
            "RMSNormalization, float64",
            model(rms.format("axis=-1"), scales(16, dtype=np.float64), tokens, kind="double", opset=23),
        ),
        (
            "RMSNormalization, `stash_type` float16",
            model(rms.format("stash_type=10"), scales(16, dtype=HALF), tokens, kind="float16", opset=23),
        ),
        ("RMSNormalization, `epsilon` 0", model(rms.format("epsilon=0.0"), last, tokens, opset=23)),
        ("RMSNormalization, `epsilon` as an integer", model(rms.format("epsilon=1"), last, tokens, opset=23)),
        ("RMSNormalization in opset 20", model(rms.format("axis=-1"), last, tokens, opset=20)),
        ("SimplifiedLayerNormalization", model(simple, last, tokens)),
        ("SimplifiedLayerNormalization, float16", model(simple, scales(16, dtype=HALF), tokens, kind="float16")),
        (
            "SimplifiedLayerNormalization, float16 data, float32 scale",
            model(simple, last, tokens, kind="float16", after="y = Cast <to=10> (n)"),
        ),
        (
            "SimplifiedLayerNormalization, deviation is used",
            model(simple.replace("n =", "n, d ="), last, tokens, outputs=", float[2, 7, 1] d"),
        ),
        ("SimplifiedLayerNormalization, dynamic", model(simple, last, "N, T, 16"), {"x": ((1, 1, 16), (2, 7, 16), (4, 9, 16))}),
        ("SkipLayerNormalization", model(skip, skips, tokens, **ms)),
        ("SkipLayerNormalization, bias", model(skip.replace("s, b)", "s, b, e)"), skips, tokens, **ms)),
        ("SkipLayerNormalization, no beta", model(skip.replace("s, b)", "s)"), skips, tokens, **ms)),
        ("SkipLayerNormalization, no beta, bias", model(skip.replace("s, b)", 's, "", e)'), skips, tokens, **ms)),
        (
            "SkipLayerNormalization, the sum is used",
            model(skip.replace("n =", 'n, "", "", q ='), skips, tokens, outputs=", float[2, 7, 16] q", **ms),
        ),
        ("SkipLayerNormalization, skip of run time", model(skip, last, tokens, inputs=", float[2, 7, 16] k", **ms)),
        ("SkipLayerNormalization, skip without batch", model(skip, {**last, "k": random(7, 16)}, tokens, **ms)),
        (
            "SkipLayerNormalization, dynamic",
            model(skip.replace("k,", "x,"), last, "N, T, 16", **ms),
            {"x": ((1, 1, 16), (2, 7, 16), (4, 9, 16))},
        ),
        ("SkipLayerNormalization, rank 2", model(skip, {**last, "k": random(7, 16)}, "7, 16", **ms)),
        (
            "SkipLayerNormalization, float16",
            model(skip, {n: v.astype(HALF) for n, v in skips.items()}, tokens, kind="float16", **ms),
        ),
        (
            "SkipSimplifiedLayerNormalization",
            model("n = com.microsoft.SkipSimplifiedLayerNormalization <epsilon=1e-6> (c, k, s)", skips, tokens, **ms),
        ),
        (
            "SkipSimplifiedLayerNormalization, bias, the sum is used",
            model(
                'n, "", "", q = com.microsoft.SkipSimplifiedLayerNormalization <epsilon=1e-6> (c, k, s, e)',
                skips,
                tokens,
                outputs=", float[2, 7, 16] q",
                **ms,
            ),
        ),
        (
            "com.microsoft GroupNorm, channels last, SiLU",
            model(
                "n = com.microsoft.GroupNorm <activation=1, channels_last=1, epsilon=1e-5, groups=4> (c, s, b)",
                last,
                "2, 6, 5, 16",
                **ms,
            ),
        ),
        (
            "com.microsoft GroupNorm, one group",
            model("n = com.microsoft.GroupNorm <activation=0, channels_last=1, groups=1> (c, s, b)", last, "2, 6, 5, 16", **ms),
        ),
    ]


def _without_parameters() -> list[Named]:
    mvn, lp = "n = MeanVarianceNormalization <{}> (c)", "n = LpNormalization <{}> (c)"
    zeros = {"z": np.array([1, 1, 0, 1, 0, 1, 1, 1], np.float32).reshape(1, 8, 1, 1)}
    return [
        ("MeanVarianceNormalization", model(mvn.format(""))),
        *((f"MeanVarianceNormalization, opset {o}", model(mvn.format(""), opset=o)) for o in (9, 13, 21)),
        ("MeanVarianceNormalization, `axes` of one instance", model(mvn.format("axes=[2, 3]"))),
        ("MeanVarianceNormalization, `axes` of the channel", model(mvn.format("axes=[1]"))),
        ("MeanVarianceNormalization, negative `axes`", model(mvn.format("axes=[-1, -2]"))),
        ("MeanVarianceNormalization, all `axes`", model(mvn.format("axes=[0, 1, 2, 3]"))),
        ("MeanVarianceNormalization, rank 3, `axes` 0 and 2", model(mvn.format("axes=[0, 2]"), shape="2, 8, 7")),
        ("MeanVarianceNormalization, rank 3, default `axes`", model(mvn.format(""), shape="2, 8, 7")),
        ("MeanVarianceNormalization, rank 5", model(mvn.format("axes=[0, 2, 3, 4]"), shape="2, 8, 3, 4, 5")),
        ("MeanVarianceNormalization, rank 5, default `axes`", model(mvn.format(""), shape="2, 8, 3, 4, 5")),
        ("MeanVarianceNormalization, dynamic", model(mvn.format(""), shape="N, 8, H, W"), DYNAMIC),
        ("MeanVarianceNormalization, 1×1, batch of one", model(mvn.format(""), shape="1, 8, 1, 1")),
        ("MeanVarianceNormalization, float16", model(mvn.format(""), kind="float16")),
        ("MeanVarianceNormalization, bfloat16", model(mvn.format(""), kind="bfloat16")),
        ("MeanVarianceNormalization, float64", model(mvn.format(""), kind="double")),
        *((f"LpNormalization, p={p}, axis {a}", model(lp.format(f"p={p}, axis={a}"))) for p in (1, 2) for a in (-1, 1)),
        ("LpNormalization, axis 0", model(lp.format("axis=0"))),
        ("LpNormalization, p=3", model(lp.format("p=3"))),
        ("LpNormalization, p=0", model(lp.format("p=0"))),
        *((f"LpNormalization, opset {o}", model(lp.format(""), opset=o)) for o in (1, 11, 22)),
        ("LpNormalization, rank 1", model(lp.format(""), shape="16")),
        ("LpNormalization, rank 2", model(lp.format(""), shape="4, 16")),
        ("LpNormalization, rank 5", model(lp.format("axis=2"), shape="2, 3, 4, 2, 3")),
        ("LpNormalization, vectors that are zero, p=2", model(lp.format("axis=2, p=2"), zeros, before="c = Mul(x, z)")),
        ("LpNormalization, vectors that are zero, p=1", model(lp.format("axis=2, p=1"), zeros, before="c = Mul(x, z)")),
        ("LpNormalization, dynamic", model(lp.format("axis=1"), shape="N, 8, H, W"), DYNAMIC),
        ("LpNormalization, float16", model(lp.format("axis=1"), kind="float16")),
        ("LpNormalization, bfloat16", model(lp.format("axis=1"), kind="bfloat16", opset=22)),
        ("LpNormalization, float64", model(lp.format("axis=1"), kind="double")),
        (
            "F.normalize (ReduceL2, Clip, Expand, Div), vectors that are zero",
            model(
                "l = ReduceL2 <keepdims=1> (c, a) m = Clip(l, e) h = Shape(c) q = Expand(m, h) n = Div(c, q)",
                {**zeros, "a": np.array([2]), "e": np.array(1e-12, np.float32)},
                before="c = Mul(x, z)",
                opset=18,
            ),
        ),
    ]


def _lrn() -> list[Named]:
    lrn = "n = LRN <{}> (c)"
    usual = "alpha=0.02, beta=0.6, bias=1.5, size={}"
    return [
        *((f"size {n}", model(lrn.format(usual.format(n)))) for n in (1, 3, 4, 5, 15, 17)),
        ("default attributes, size 5", model(lrn.format("size=5"))),
        *((f"opset {o}", model(lrn.format(usual.format(5)), opset=o)) for o in (1, 11, 21)),
        ("more than the channels", model(lrn.format(usual.format(9)), shape="2, 4, 6, 5")),
        ("`bias` 1e-7", model(lrn.format("alpha=0.02, beta=0.6, bias=1e-7, size=5"))),
        ("`bias` 0", model(lrn.format("alpha=0.5, beta=0.6, bias=0.0, size=5"))),
        ("`beta` 0", model(lrn.format("beta=0.0, size=5"))),
        ("`beta` 0.005", model(lrn.format("alpha=0.5, beta=0.005, bias=2.0, size=5"))),
        ("`beta` negative", model(lrn.format("alpha=0.5, beta=-0.5, bias=2.0, size=5"))),
        ("`alpha` 0", model(lrn.format("alpha=0.0, size=5"))),
        ("`alpha` 100, large", model(lrn.format("alpha=100.0, size=5"))),
        ("`alpha` negative", model(lrn.format("alpha=-0.001, bias=2.0, size=5"))),
        ("rank 3", model(lrn.format(usual.format(5)), shape="2, 8, 7")),
        ("rank 5", model(lrn.format(usual.format(5)), shape="2, 8, 3, 4, 5")),
        ("rank 2", model(lrn.format(usual.format(5)), shape="2, 8")),
        ("size 4, dynamic", model(lrn.format(usual.format(4)), shape="N, 8, H, W"), DYNAMIC),
        (
            "size 4, dynamic C",
            model(lrn.format(usual.format(4)), shape="2, C, 6, 5"),
            {"x": ((2, 4, 6, 5), (2, 8, 6, 5), (2, 9, 6, 5))},
        ),
        ("float16", model(lrn.format(usual.format(5)), kind="float16")),
        ("size 4, float16", model(lrn.format(usual.format(4)), kind="float16")),
        ("bfloat16", model(lrn.format(usual.format(5)), kind="bfloat16")),
        ("float64", model(lrn.format(usual.format(5)), kind="double")),
        ("`size` 0", model(lrn.format("size=0"))),
        ("`size` absent", model("n = LRN(c)")),
    ]


def _mismatches() -> list[Form]:
    section = "Parameters that do not fit the channels"
    wide, sixteen = "2, 64, 6, 5", scales(16)
    in_, gn = f"[norm] {IN}", "[norm] n = GroupNormalization <num_groups={}> (c, s, b)"
    doubled = {name: np.tile(value, 2) for name, value in scales(8).items()}

    def form(name: str, made: Model, profile: str = "", weights: dict[str, np.ndarray] | None = None) -> Form:
        return Form(section, name, made, profile, weights or {})

    return [
        form("instance, 16 for 64", model(in_, sixteen, wide)),
        form(
            "instance, 16 for 64, profile: `repeat-per-group`", model(in_, sixteen, wide), "mismatch: {norm: repeat-per-group}"
        ),
        form("instance, 16 for 64, profile: `tile`", model(in_, sixteen, wide), "mismatch: {norm: tile}"),
        form("instance, 16 for 64, the right ones in `--weights`", model(in_, sixteen, wide), weights=scales(64)),
        form("instance, 16 for 8, the tail repeats the head", model(in_, doubled)),
        form("instance, 16 for 8", model(in_, sixteen)),
        form("instance, channels last", model(in_, sixteen, "2, 6, 5, 16")),
        form("instance, 16 of run time for 64", model(in_, {}, wide, inputs=runtime("16"))),
        form("instance, 16 for a channel count that is dynamic", model(in_, sixteen, "N, C, 6, 5")),
        form("instance, scale has 4 for 8, bias fits", model(in_, {**scales(8), "s": scales(4)["s"]})),
        form("group, 16 for 64", model(gn.format(8), sixteen, wide, opset=21)),
        form("group, one value per group in opset 21", model(gn.format(16), sixteen, wide, opset=21)),
        form("group, one value per channel in opset 18", model(gn.format(16), scales(64), wide, opset=18)),
        form("group, 16 for 64, profile: `tile`", model(gn.format(8), sixteen, wide, opset=21), "mismatch: {norm: tile}"),
        form("one group, one value in opset 21", model(gn.format(1), scales(1), opset=21)),
        form("one group, 8 values in opset 18", model(gn.format(1), scales(8), opset=18)),
        form(
            "group, 16 for 64, the right ones in `--weights`", model(gn.format(8), sixteen, wide, opset=21), weights=scales(64)
        ),
    ]


def _rows(section: str, make: Callable[[], list[Named]]) -> list[Form]:
    return [Form(section, name, made, ranges=(rest[0] if rest else {})) for name, made, *rest in make()]


def forms() -> list[Form]:
    """Every form, in the order of the table."""
    return [
        *_rows("InstanceNormalization", _instance),
        *_rows("GroupNormalization", _group),
        *_rows("LayerNormalization", _layer),
        *_rows("RMSNormalization and the operators of ONNX Runtime", _rms),
        *_rows("MeanVarianceNormalization and LpNormalization", _without_parameters),
        *_rows("LRN", _lrn),
        *_mismatches(),
    ]
