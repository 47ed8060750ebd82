"""Forms of InstanceNormalization and GroupNormalization, and of their parameters."""

from __future__ import annotations

import numpy as np

from benchmarks.forms import Form
from benchmarks.normalization_models import (
    BF16,
    DYNAMIC,
    FROM_ONE,
    GN,
    HALF,
    IN,
    ONE,
    Model,
    Named,
    behind_convolution,
    in_a_branch,
    in_a_function,
    in_a_loop,
    model,
    runtime,
    scales,
    spoilt,
    tensor,
    with_attribute,
)


def instance() -> list[Named]:
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


def group() -> list[Named]:
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


def mismatches() -> list[Form]:
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
