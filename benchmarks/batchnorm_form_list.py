"""Every form of BatchNormalization that ONNX allows or exporters write, and forms that are broken."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import onnx

from benchmarks.batchnorm_models import (
    BATCH_STATISTICS,
    EPSILON_NODE,
    FIVE,
    PLAIN,
    RUNTIME,
    TRAINING,
    Weights,
    alone,
    as_inputs,
    doubled,
    half,
    in_a_branch,
    in_a_function,
    network,
    old,
    parameters,
    random,
    shaped,
    spoilt,
    standardised,
    three_blocks,
    tiled,
)
from benchmarks.forms import Form


def _parameters_where() -> list[tuple[str, onnx.ModelProto]]:
    constants = " ".join(
        f"k_{n} = Constant <value = float[8] {{{', '.join(map(str, v))}}}> ()" for n, v in parameters(8).items()
    )
    return [
        ("initializers", network()),
        ("initializers listed as inputs (IR version 3)", as_inputs(network(ir=3, opset=9))),
        ("`Constant` nodes", network(f"{constants} b = BatchNormalization(c, k_gamma, k_beta, k_mu, k_var)")),
        ("behind `Identity`", network("i = Identity(gamma) b = BatchNormalization(c, i, beta, mu, var)")),
        ("computed from constants", network("q = Mul(var, var) b = BatchNormalization(c, gamma, beta, mu, q)")),
        ("of the outer graph, inside `If`", in_a_branch()),
        ("of a model-local function", in_a_function()),
        ("graph inputs, all four", network(inputs=RUNTIME)),
        ("graph inputs, all four, in three blocks", three_blocks()),
        ("graph inputs, scale and bias (conditional)", network(inputs=", float[8] gamma, float[8] beta")),
        (
            "statistics of the batch, from dynamo (`track_running_stats=False`)",
            network(BATCH_STATISTICS + "b = BatchNormalization(c, gamma, beta, m1, v1)"),
        ),
        (
            "statistics of the batch, from TorchScript",
            network(BATCH_STATISTICS + "b, m, v = BatchNormalization <training_mode=1> (c, gamma, beta, m1, v1)"),
        ),
        ("tiled per sample (instance norm, tracked), batch known at run time", tiled(True)),
        ("tiled per sample, batch known before", tiled(False)),
        ("over a constant weight, `training_mode=1` (weight standardisation)", standardised(True)),
        ("over a constant weight, inference", standardised(False)),
    ]


def _shapes_and_types() -> list[tuple[str, onnx.ModelProto]]:
    double = parameters(8, np.float64)
    return [
        *((f"parameters of shape {list(s)}", network(weights=shaped(*s))) for s in ((1, 8, 1, 1), (8, 1, 1), (1, 8))),
        ("parameters of shape []", network(weights={n: v.reshape(()) for n, v in parameters(1).items()})),
        ("parameters of shape [1]", network(weights=parameters(1))),
        ("data of rank 1", alone(weights=parameters(1), shape="16")),
        ("data of rank 2", alone(shape="4, 8")),
        ("data of rank 3", alone(shape="2, 8, 16")),
        ("data of rank 5", alone(shape="2, 8, 4, 4, 4")),
        (
            "`spatial=0` (opset 7)",
            alone(
                "b = BatchNormalization <spatial=0> (x, gamma, beta, mu, var)",
                {n: np.abs(random(8, 4, 4, seed=i)) + 0.5 for i, n in enumerate(parameters(8))},
                "2, 8, 4, 4",
                opset=7,
            ),
        ),
        ("float64 parameters, float32 data", network(weights=double)),
        ("float64", alone(weights=double, kind="double")),
        ("float16", network(weights=half({"w": random(8, 3, 3, 3), **parameters(8)}), kind="float16")),
        ("float16 data, float32 parameters", network(weights=half({"w": random(8, 3, 3, 3)}), kind="float16")),
        (
            "float16 data, float32 variance 1e6",
            network(
                weights={
                    **half({"w": random(8, 3, 3, 3)}),
                    "var": np.full(8, 1e6, np.float32),
                    "gamma": np.full(8, 1e3, np.float32),
                },
                before="e = Conv <pads=[1, 1, 1, 1]> (x, w) c = Exp(e)",
                kind="float16",
            ),
        ),
        ("bfloat16 data, float32 parameters", alone(kind="bfloat16")),
    ]


def _modes() -> list[tuple[str, onnx.ModelProto, str]]:
    evaluate, refuse = "training_mode: eval", "training_mode: refuse"
    return [
        ("`training_mode=1`", network(TRAINING), ""),
        ("`training_mode=1`, batch of one", network(TRAINING, shape="1, 3, 16, 16", out="1, 8, 16, 16"), ""),
        ("`training_mode=1`, running statistics used", network(TRAINING, outputs=", float[8] m, float[8] v"), ""),
        ("`training_mode=1`, profile: `eval`", network(TRAINING), evaluate),
        ("`training_mode=1`, profile: `refuse`", network(TRAINING), refuse),
        ("inference with 3 outputs, nobody uses them", network("b, m, v = " + PLAIN.split(" = ")[1]), ""),
        ("inference with 3 outputs, one is used", network("b, m, v = " + PLAIN.split(" = ")[1], outputs=", float[8] m"), ""),
        ("5 outputs (opset 9), nobody uses them", network(FIVE, opset=9), ""),
        ("5 outputs (opset 9), `saved_var` is used", network(FIVE, opset=9, outputs=", float[8] sv"), ""),
        (
            "opset 1, `is_test=1`",
            old("b = BatchNormalization <is_test=1, consumed_inputs=[0, 0, 0, 1, 1]> (c, gamma, beta, mu, var)", 1),
            "",
        ),
        ("opset 6, `is_test=1`", old("b = BatchNormalization <is_test=1> (c, gamma, beta, mu, var)", 6), ""),
        ("opset 6, `is_test=0`", old(PLAIN, 6), ""),
        *((f"opset {opset}", network(opset=opset), "") for opset in (7, 9, 14, 15, 21, 23)),
    ]


def _mismatches() -> list[Form]:
    section = "Parameters that do not fit the channels"
    wide = {"channels": 64, "out": "2, 64, 16, 16"}
    sixteen = parameters(16)

    def form(name: str, model: onnx.ModelProto, profile: str = "", weights: Weights | None = None) -> Form:
        return Form(section, name, model, profile, weights or {})

    named = "[bn] " + PLAIN
    return [
        form("16 for 64", network(named, sixteen, **wide)),
        form("16 for 64, profile: `repeat-per-group`", network(named, sixteen, **wide), "mismatch: {bn: repeat-per-group}"),
        form("16 for 64, the right ones in `--weights`", network(named, sixteen, **wide), weights=parameters(64)),
        form(
            "16 for 64, convolution with 16 groups",
            network(
                named,
                {**sixteen, "w": random(64, 1, 3, 3)},
                before="c = Conv <group=16, pads=[1, 1, 1, 1]> (x, w)",
                shape="2, 16, 16, 16",
                out="2, 64, 16, 16",
            ),
        ),
        form("16 for 64, a 64³ volume without its batch axis", alone(PLAIN, sixteen, "16, 64, 64, 64")),
        form("64 for 16, channels last", alone(PLAIN, parameters(64), "2, 16, 16, 64")),
        form("16 for 8, the tail repeats the head", network(named, doubled())),
        form("one of four has 4 for 8", network(named, {"mu": parameters(4)["mu"]})),
        form("16 for a channel count that is dynamic", alone(PLAIN, sixteen, "N, C, 16, 16")),
        form("length 0", network(named, {n: v[:0] for n, v in sixteen.items()})),
    ]


def _broken() -> list[tuple[str, onnx.ModelProto]]:
    return [
        ("NaN in the scale", network(weights=spoilt("gamma", np.nan))),
        ("infinite mean", network(weights=spoilt("mu", np.inf))),
        ("negative variance", network(weights=spoilt("var", -1.0))),
        (
            "scale/√(variance + ε) beyond float32",
            network(weights={**spoilt("gamma", 3e38), "var": np.full(8, 1e-9, np.float32)}),
        ),
        ("`epsilon` as an integer", network(EPSILON_NODE.format(1))),
        ("`epsilon` as a text", network(EPSILON_NODE.format('"1e-5"'))),
        ("a sixth input", network("b = BatchNormalization(c, gamma, beta, mu, var, var)")),
        ("an input left out", network('b = BatchNormalization(c, "", beta, mu, var)')),
    ]


def _folding() -> list[tuple[str, onnx.ModelProto]]:
    wt, bias = random(3, 8, 2, 2), random(8)
    matrix = {"k": random(6, 8), "d": bias}
    return [
        ("behind `Conv`", network()),
        (
            "behind a grouped `Conv`",
            network(
                weights={"w": random(8, 1, 3, 3)}, before="c = Conv <group=8, pads=[1, 1, 1, 1]> (x, w)", shape="2, 8, 16, 16"
            ),
        ),
        (
            "behind `ConvTranspose`",
            network(weights={"t": wt}, before="c = ConvTranspose <strides=[2, 2]> (x, t)", out="2, 8, 32, 32"),
        ),
        ("behind `Gemm`", network(weights=matrix, before="c = Gemm(x, k, d)", shape="4, 6", out="4, 8")),
        (
            "behind `MatMul` and `Add`",
            network(weights=matrix, before="p = MatMul(x, k) c = Add(p, d)", shape="4, 6", out="4, 8"),
        ),
        (
            "before `Conv` (no padding)",
            network(
                PLAIN,
                {"w": random(4, 8, 3, 3)},
                before="c = Exp(x)",
                after="y = Conv(b, w)",
                shape="2, 8, 16, 16",
                out="2, 4, 14, 14",
            ),
        ),
        (
            "two in a row",
            network("a = BatchNormalization(c, gamma, beta, mu, var) b = BatchNormalization(a, gamma, beta, mu, var)"),
        ),
        ("between elementwise operators", alone()),
    ]


def _rows(section: str, make: Callable[[], list]) -> list[Form]:
    return [Form(section, name, model, *rest) for name, model, *rest in make()]


def forms() -> list[Form]:
    """Every form, in the order of the table."""
    return [
        *_rows("Where the parameters are", _parameters_where),
        *_rows("Shapes and types", _shapes_and_types),
        *_rows("Training mode, outputs and opsets", _modes),
        *_mismatches(),
        *_rows("Values and attributes that are out of order", _broken),
        *_rows("What it stands next to", _folding),
    ]
