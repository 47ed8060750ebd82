"""Forms of LayerNormalization, RMSNormalization, ONNX Runtime's fusions, and normalizations without parameters."""

from __future__ import annotations

from typing import Any

import numpy as np

from benchmarks.normalization_models import (
    BF16,
    DYNAMIC,
    HALF,
    LN,
    MICROSOFT,
    Named,
    in_a_branch,
    in_a_function,
    in_a_loop,
    model,
    random,
    runtime,
    scales,
    tensor,
)


def layer() -> list[Named]:
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


def root_mean_square() -> list[Named]:
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


def without_parameters() -> list[Named]:
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


def local_response() -> list[Named]:
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
