"""Make a BatchNormalization in training mode use its running statistics, where the user asks for it.

    y = (x − μ) · γ/√(σ²+ε) + β      μ, σ² the stored running mean and variance instead of those of the batch

This changes what the model computes. It is what `model.eval()` before the export would have done, and is applied only when
the build profile says `training_mode: eval`. Running statistics that the model hands out are passed on unchanged.
Source: Ioffe & Szegedy 2015, algorithm 2; BatchNormalization-14 in the ONNX operator specification.
"""

from __future__ import annotations

from trtnorm_cli.rewrite.parts import batchnorm, training
from trtnorm_cli.rewrite.parts.data_channels import type_and_rank_are_known
from trtnorm_cli.rewrite.parts.definition import definition, given_parameters
from trtnorm_cli.rewrite.pattern import Const, Var, describe, op
from trtnorm_cli.rewrite.rule import Match, NewNode, NewOutputs, Rule

_RUNNING = {1: "mean", 2: "variance"}


def the_profile_asks_for_it(m: Match) -> str | None:
    """the build profile says ``training_mode: eval``."""
    policy = m.settings.training_mode
    return None if policy == "eval" else f"the build profile says training_mode: {policy}"


def only_running_statistics_are_used(m: Match) -> str | None:
    """no output beside the data and the running statistics is used: the batch has no statistics in inference."""
    for number in m.used_outputs:
        if number > max(_RUNNING):
            return f"{m.root.outputs[number].name}, a statistic of the batch made by {describe(m.root)}, is used"
    return None


def warning(m: Match) -> str:
    text = (
        "uses its running statistics, because the build profile says training_mode: eval; "
        f"the file has {training.how_it_says_so(m)}"
    )
    if not m.value("mean").any() and (m.value("variance") == 1).all():
        text += (
            ". These statistics are the initial values (mean 0, variance 1), which is hardly what is wanted: the model was "
            "not trained in this form, or its statistics were not loaded"
        )
    return text


def inference(m: Match) -> NewOutputs:
    attrs = {key: value for key, value in m.root.attrs.items() if key != "training_mode"}
    inputs = tuple(m.tensor(name) for name in ("x", *batchnorm.PARAMETER_NAMES))
    nodes = {0: NewNode("BatchNormalization", inputs, attrs, name=m.root.name, role="inference")}
    for number in m.used_outputs[1:]:
        name = _RUNNING[number]
        nodes[number] = NewNode("Identity", (m.tensor(name),), role=f"running_{name}")
    return NewOutputs(nodes)


def with_running_statistics(m: Match) -> NewNode:
    return definition(m, given_parameters(m), running=True)


RULE = Rule(
    name="batchnorm-to-inference",
    pattern=op(
        "BatchNormalization",
        Var("x"),
        Var("scale"),
        Var("shift"),
        Const("mean"),
        Const("variance"),
        name=batchnorm.BATCHNORM,
    ),
    preconditions=(
        training.is_training,
        the_profile_asks_for_it,
        batchnorm.is_per_channel,
        only_running_statistics_are_used,
        type_and_rank_are_known,
    ),
    replacement=inference,
    because="the build profile asks for the running statistics (training_mode: eval)",
    replaces_further_outputs=True,
    warning=warning,
    reference=with_running_statistics,
    changes_meaning=lambda m: True,
)
