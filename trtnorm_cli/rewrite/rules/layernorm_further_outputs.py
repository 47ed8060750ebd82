"""Take the further outputs off a LayerNormalization, or write what they are with explicit reductions.

    μ = mean(x)      d = 1/√(mean((x − μ)²)+ε)      y = (x − μ) · d · γ + β

over the axes from ``axis`` on. The outputs Mean and InvStdDev were meant for training; TensorRT takes no node that has them,
used or not.
Source: Ba, Kiros & Hinton 2016; LayerNormalization-17 in the ONNX operator specification.
"""

from __future__ import annotations

from trtnorm_cli.rewrite.parts import group_parameters as group
from trtnorm_cli.rewrite.parts.arithmetic import Arithmetic, arithmetic_for, data_type
from trtnorm_cli.rewrite.parts.data_channels import type_and_rank_are_known
from trtnorm_cli.rewrite.parts.standardised import Standardised, standardised
from trtnorm_cli.rewrite.pattern import Var, describe, op, optional
from trtnorm_cli.rewrite.rule import Match, NewNode, NewOutputs, Rule


def it_has_further_outputs(m: Match) -> str | None:
    """the node has more outputs than the normalized data, whether somebody uses them or not."""
    return None if any(t.name for t in m.root.outputs[1:]) else f"{describe(m.root)} has one output"


def without_them(m: Match) -> NewOutputs:
    if m.used_outputs == (0,):
        inputs = (m.given("x"), m.given("scale"), *([m.given("shift")] if m.has("shift") else []))
        return NewOutputs({0: NewNode(m.root.op, inputs, dict(m.root.attrs), name=m.root.name, role="one_output")})
    a, rank = arithmetic_for(m), len(m.shape("x") or ())
    axes = tuple(range(int(m.root.attrs.get("axis", -1)) % rank, rank))
    made = standardised(a, a.raised(m.given("x"), "to_float32"), axes, group.epsilon(m))
    nodes = {0: _scaled(m, a, made)}
    for number, statistic in enumerate((made.mean, made.inverse), 1):
        if number in m.used_outputs:
            assert statistic is not None, "a LayerNormalization has a mean"
            nodes[number] = a.lowered(statistic, _type_of_output(m, a, number))
    return NewOutputs(nodes)


def _scaled(m: Match, a: Arithmetic, made: Standardised) -> NewNode:
    y = a.binary("Mul", made.value, a.raised(m.given("scale"), "raise_scale"), "scaled")
    if m.has("shift"):
        y = a.binary("Add", y, a.raised(m.given("shift"), "raise_shift"), "shifted")
    return a.lowered(y, data_type(m))


def _type_of_output(m: Match, a: Arithmetic, number: int) -> int:
    kind = m.type_of(m.root.outputs[number])
    return a.data_type if kind is None or not kind.dtype else kind.dtype


RULE = Rule(
    name="layernorm-further-outputs",
    pattern=op("LayerNormalization", Var("x"), Var("scale"), optional(Var("shift")), name="normalization"),
    preconditions=(type_and_rank_are_known, it_has_further_outputs),
    replacement=without_them,
    because="a LayerNormalization has one output in TensorRT",
    replaces_further_outputs=True,
    since_opset=1,
)
