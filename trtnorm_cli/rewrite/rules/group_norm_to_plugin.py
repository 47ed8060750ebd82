"""Let a plugin compute a GroupNormalization, where the user asks for it and gives the library.

    y = (x − μ) · γ/√(σ²+ε) + β

μ, σ² of each instance and group of channels, γ and β of each channel. The node becomes `GroupNormalizationPlugin`, version "1":
inputs data, scale and bias, all float32; attributes `eps` (float), `num_groups` (int), `plugin_version`, `plugin_namespace`
(strings). The plugin takes data of rank 4 with a fixed batch. NVIDIA's own is deprecated since TensorRT 10.12, calls cuDNN, and
is not supported on Blackwell and later GPUs, so that the build profile has to name a library that has it.
The node calls a function that says the same in standard ONNX, so that others than TensorRT can run the model.
Source: NVIDIA TensorRT open source, plugin/groupNormalizationPlugin (2020 to 2025); Wu & He 2018, "Group Normalization".
"""

from __future__ import annotations

import numpy as np
import onnx

from trtnorm_cli.onnx_model import plugin_functions as plugin
from trtnorm_cli.onnx_model.normalization_nodes import DEFAULT_EPSILON
from trtnorm_cli.profile.rewriting import GROUP_NORM_TO_PLUGIN
from trtnorm_cli.rewrite.pattern import Var, describe, op
from trtnorm_cli.rewrite.rule import Match, NewConstant, NewNode, Rule

NORM = "norm"
_RANK = 4
# From this opset on scale and bias have a value for each channel; before, for each group.
_PER_CHANNEL = 21


def the_profile_asks_for_it(m: Match) -> str | None:
    """the build profile says ``group_norm: plugin`` for the node."""
    choice = m.settings.group_norm.of(describe(m.node(NORM)))
    return None if choice == "plugin" else "no plugin is asked for (group_norm: native)"


def the_data_suits_the_plugin(m: Match) -> str | None:
    """the data is float32 of rank 4, of a fixed batch and a fixed number of channels."""
    data = m.given("x")
    kind = m.type_of(data)
    if kind is None or not kind.dtype or kind.shape is None:
        return f"type or rank of {data.name}, the data of {describe(m.node(NORM))}, is not known"
    if kind.dtype != onnx.TensorProto.FLOAT:
        return f"{data.name} is {onnx.TensorProto.DataType.Name(kind.dtype).lower()}, the plugin takes float32 only"
    if len(kind.shape) != _RANK:
        return f"{data.name} has rank {len(kind.shape)}, the plugin takes rank 4"
    for axis, what in enumerate(("batch", "number of channels")):
        if not isinstance(kind.shape[axis], int):
            return f"the {what} of {data.name} is {kind.shape[axis] or 'not known'}, the plugin wants it fixed"
    return None


def parameters_fit_the_channels(m: Match) -> str | None:
    """scale and bias are constants in float32, with one value for each channel (for each group below opset 21)."""
    channels, groups = (m.shape("x") or (None, 0))[1], m.node(NORM).attrs.get("num_groups", 0)
    if not isinstance(channels, int) or groups < 1 or channels % groups:
        return f"{channels} channels do not make {groups} groups"
    count, unit = (channels, "channels") if m.opset >= _PER_CHANNEL else (groups, "groups")
    for role in ("scale", "bias"):
        tensor = m.given(role)
        if not m.surgery.is_constant(tensor):
            return f"{tensor.name}, the {role} of {describe(m.node(NORM))}, is computed at run time"
        value = m.value(role)
        if value.dtype != np.float32 or value.shape != (count,):
            return f"{tensor.name} is {value.dtype.name} of shape {list(value.shape)}, {count} {unit} want one float32 each"
    return None


def epsilon_is_a_float(m: Match) -> str | None:
    """the attribute epsilon is a float, or left out."""
    value = m.node(NORM).attrs.get("epsilon", DEFAULT_EPSILON)
    return None if isinstance(value, float) else f"epsilon of {describe(m.node(NORM))} is {value!r}, not a float"


def plugin_node(m: Match) -> NewNode:
    norm = m.node(NORM)
    attrs = {
        "eps": norm.attrs.get("epsilon", DEFAULT_EPSILON),
        "num_groups": norm.attrs["num_groups"],
        "plugin_version": plugin.GROUP_NORM_VERSION,
        "plugin_namespace": "",
    }
    inputs = (m.tensor("x"), _per_channel(m, "scale"), _per_channel(m, "bias"))
    function = plugin.group_norm_function(m.opset)
    return NewNode(plugin.GROUP_NORM, inputs, attrs, name=norm.name, role="plugin", function=function)


def _per_channel(m: Match, role: str) -> NewConstant:
    channels = (m.shape("x") or ())[1]
    assert isinstance(channels, int), "the_data_suits_the_plugin holds"
    value = m.value(role)
    return NewConstant(role, np.repeat(value, channels // value.size))


def warning(m: Match) -> str:
    return plugin.NOT_RUN.format(plugin=plugin.GROUP_NORM)


RULE = Rule(
    name=GROUP_NORM_TO_PLUGIN,
    pattern=op("GroupNormalization", Var("x"), Var("scale"), Var("bias"), name=NORM),
    preconditions=(
        the_profile_asks_for_it,
        the_data_suits_the_plugin,
        parameters_fit_the_channels,
        epsilon_is_a_float,
    ),
    replacement=plugin_node,
    warning=warning,
    because="the build profile asks for a plugin and names its library (group_norm: plugin)",
    since_opset=18,
)
