"""Let TensorRT's plugin compute an InstanceNormalization, and the Relu behind it, where the user asks for it.

    y = a((x − μ) · γ/√(σ²+ε) + β),   a(v) = v,  or  a(v) = v for v ≥ 0, αv for v < 0

μ, σ² of each instance and channel. The node becomes `InstanceNormalization_TRT`, version "3" (IPluginV3): attributes
`epsilon`, `alpha` (float), `scales`, `bias` (one float32 per channel), `relu` (int; above zero turns the activation on),
`plugin_version`, `plugin_namespace` (strings). The plugin computes in float32 whatever the type of its data; it takes float32
and float16 data of rank 4 and 5 with a fixed number of channels. It calls cuDNN, and NVIDIA does not support plugins that do so
on Blackwell and later GPUs.
The node calls a function that says the same in standard ONNX, so that others than TensorRT can run the model.
Source: NVIDIA TensorRT open source, plugin/instanceNormalizationPlugin (2019 to 2025); Ulyanov et al. 2016,
"Instance Normalization".
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import onnx

from trtnorm_cli.onnx_model import plugin_functions as plugin
from trtnorm_cli.onnx_model.domains import DEFAULT_DOMAINS
from trtnorm_cli.onnx_model.normalization_nodes import DEFAULT_EPSILON
from trtnorm_cli.profile.rewriting import INSTANCE_NORM_TO_PLUGIN
from trtnorm_cli.rewrite.pattern import Var, describe, op
from trtnorm_cli.rewrite.rule import Extent, Match, NewNode, Rule

if TYPE_CHECKING:
    from trtnorm_cli.rewrite.rule import Node

NORM = "norm"
_TYPES = (onnx.TensorProto.FLOAT, onnx.TensorProto.FLOAT16)
_RANKS = (4, 5)
_DEFAULT_ALPHA = 0.01


def the_profile_asks_for_it(m: Match) -> str | None:
    """the build profile says ``instance_norm: plugin`` for the node."""
    choice = m.settings.instance_norm.of(describe(m.node(NORM)))
    return None if choice == "plugin" else "no plugin is asked for (instance_norm: native)"


def the_data_suits_the_plugin(m: Match) -> str | None:
    """the data is float32 or float16, of rank 4 or 5."""
    data = m.given("x")
    kind = m.type_of(data)
    if kind is None or not kind.dtype or kind.shape is None:
        return f"type or rank of {data.name}, the data of {describe(m.node(NORM))}, is not known"
    if kind.dtype not in _TYPES:
        name = onnx.TensorProto.DataType.Name(kind.dtype).lower()
        return f"{data.name} is {name}, the plugin takes float32 and float16"
    if len(kind.shape) not in _RANKS:
        return f"{data.name} has rank {len(kind.shape)}, the plugin takes rank 4 and 5"
    return None


def parameters_are_constants(m: Match) -> str | None:
    """scale and bias stand in the file: they are attributes of the plugin, not inputs."""
    for role in ("scale", "bias"):
        tensor = m.given(role)
        if not m.surgery.is_constant(tensor):
            return f"{tensor.name}, the {role} of {describe(m.node(NORM))}, is computed at run time"
    return None


def parameters_fit_the_channels(m: Match) -> str | None:
    """the number of channels is fixed, and scale and bias hold one finite value for each that float32 can hold."""
    data = m.given("x")
    channels = (m.shape("x") or (None, None))[1]
    if not isinstance(channels, int):
        return f"{data.name} has {channels or 'an unknown number of'} channels, the plugin wants a fixed number"
    for role in ("scale", "bias"):
        value, name = m.value(role), m.given(role).name
        if value.shape != (channels,):
            return f"{name} has the shape {list(value.shape)}, {data.name} has {channels} channels"
        if not np.all(np.isfinite(value.astype(np.float64))) or not _held_by_float32(value):
            return f"{name} has values that a list of float32 does not hold"
    return None


def the_definition_takes_the_parameters(m: Match) -> str | None:
    """scale and bias have the type of the data below opset 15, where what the plugin computes is written with them."""
    if m.opset >= plugin.ATTRIBUTES_SINCE:
        return None
    kind = m.type_of(m.given("x"))
    for role in ("scale", "bias"):
        given = onnx.helper.np_dtype_to_tensor_dtype(m.value(role).dtype)
        if kind is not None and given != kind.dtype:
            names = [onnx.TensorProto.DataType.Name(dtype).lower() for dtype in (given, kind.dtype)]
            return f"{m.given(role).name} is {names[0]} and {m.given('x').name} is {names[1]}, in opset {m.opset}"
    return None


def epsilon_is_a_float(m: Match) -> str | None:
    """the attribute epsilon is a float, or left out."""
    value = m.node(NORM).attrs.get("epsilon", DEFAULT_EPSILON)
    return None if isinstance(value, float) else f"epsilon of {describe(m.node(NORM))} is {value!r}, not a float"


def a_following_activation(m: Match) -> Extent | str | None:
    """a Relu or LeakyRelu goes into the node when it alone reads what the normalization makes."""
    norm = m.node(NORM)
    activation = _activation(m, norm)
    if activation is None:
        return Extent(norm, (norm,), (), plan=None)
    slope = 0.0 if activation.op == "Relu" else float(activation.attrs.get("alpha", _DEFAULT_ALPHA))
    return Extent(activation, (activation, norm), (), plan=slope)


def _activation(m: Match, norm: Node) -> Node | None:
    made = norm.outputs[0]
    if len(made.outputs) != 1 or m.borders.leaves(made):
        return None
    reader = made.outputs[0]
    fits = reader.op in ("Relu", "LeakyRelu") and reader.domain in DEFAULT_DOMAINS and m.borders.are_together(norm, reader)
    return reader if fits else None


def _held_by_float32(value: np.ndarray) -> bool:
    with np.errstate(over="ignore"):
        return np.array_equal(value.astype(np.float32).astype(value.dtype), value)


def plugin_node(m: Match) -> NewNode:
    assert m.extent is not None
    norm, slope = m.node(NORM), m.extent.plan
    by_attributes = m.opset >= plugin.ATTRIBUTES_SINCE
    no_activation = 0.0 if by_attributes else 1.0
    attrs = {
        "epsilon": norm.attrs.get("epsilon", DEFAULT_EPSILON),
        "scales": m.value("scale").astype(np.float32).tolist(),
        "bias": m.value("bias").astype(np.float32).tolist(),
        "relu": 0 if slope is None else 1,
        "alpha": no_activation if slope is None else slope,
        "plugin_version": plugin.INSTANCE_NORM_VERSION,
        "plugin_namespace": "",
    }
    function = plugin.instance_norm_function(m.opset)
    inputs = (m.tensor("x"),) if by_attributes else (m.tensor("x"), m.tensor("scale"), m.tensor("bias"))
    return NewNode(plugin.INSTANCE_NORM, inputs, attrs, name=norm.name, role="plugin", function=function)


def warning(m: Match) -> str:
    return plugin.NOT_RUN.format(plugin=plugin.INSTANCE_NORM)


RULE = Rule(
    name=INSTANCE_NORM_TO_PLUGIN,
    pattern=op("InstanceNormalization", Var("x"), Var("scale"), Var("bias"), name=NORM),
    preconditions=(
        the_profile_asks_for_it,
        the_data_suits_the_plugin,
        parameters_are_constants,
        parameters_fit_the_channels,
        the_definition_takes_the_parameters,
        epsilon_is_a_float,
    ),
    replacement=plugin_node,
    warning=warning,
    because="the build profile asks for TensorRT's plugin (instance_norm: plugin)",
    extent=a_following_activation,
)
