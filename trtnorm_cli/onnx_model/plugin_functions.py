"""What plugins compute, as model-local functions in standard ONNX."""

from __future__ import annotations

from functools import cache

import onnx
import onnx.parser

from trtnorm_cli.onnx_model.plugin_nodes import DOMAIN

INSTANCE_NORM, INSTANCE_NORM_VERSION = "InstanceNormalization_TRT", "3"
GROUP_NORM, GROUP_NORM_VERSION = "GroupNormalizationPlugin", "1"
# Constant takes the attributes of a function since opset 12; CastLike came with 15.
FUNCTIONS_SINCE, HALF_SINCE = 12, 15
# What a user must know of a plugin node.
NOT_RUN = "becomes the plugin {plugin}; checks and comparisons run what it is defined to compute, not the plugin itself"

_INSTANCE_NORM = """
{name} <epsilon, scales, bias, relu, alpha, plugin_version, plugin_namespace> (x) => (y)
{{
  data = {open} (x)
  gamma = Constant <value_floats: floats = @scales> ()
  beta = Constant <value_floats: floats = @bias> ()
  normalized = InstanceNormalization <epsilon: float = @epsilon> (data, gamma, beta)
  leaky = LeakyRelu <alpha: float = @alpha> (normalized)
  wanted = Constant <value_int: int = @relu> ()
  zero = Constant <value_int = 0> ()
  is_active = Greater (wanted, zero)
  result = Where (is_active, leaky, normalized)
  y = {close}
}}
"""

_GROUP_NORM = """
{name} <eps, num_groups, plugin_version, plugin_namespace> (x, scale, shift) => (y)
{{
  count = Constant <value_int: int = @num_groups> ()
  vector = Constant <value_ints = [1]> ()
  groups = Reshape (count, vector)
  batch = Constant <value_ints = [0]> ()
  rest = Constant <value_ints = [-1]> ()
  split = Concat <axis = 0> (batch, groups, rest)
  grouped = Reshape (x, split)
  one = Constant <value_float = 1.0> ()
  none = Constant <value_float = 0.0> ()
  ones = Expand (one, groups)
  zeros = Expand (none, groups)
  normalized = InstanceNormalization <epsilon: float = @eps> (grouped, ones, zeros)
  whole = Shape (x)
  joined = Reshape (normalized, whole)
  per_channel = Constant <value_ints = [-1, 1, 1]> ()
  gamma = Reshape (scale, per_channel)
  beta = Reshape (shift, per_channel)
  scaled = Mul (joined, gamma)
  y = Add (scaled, beta)
}}
"""


@cache
def instance_norm_function(opset: int) -> onnx.FunctionProto:
    """``InstanceNormalization_TRT`` for a model of ``opset``: computed in float32, with the activation that ``relu`` turns on.

    Below opset 15 it takes float32 only.
    """
    casts = ("Cast <to = 1>", "CastLike (result, x)") if opset >= HALF_SINCE else ("Identity", "Identity (result)")
    return _function(_INSTANCE_NORM.format(name=INSTANCE_NORM, open=casts[0], close=casts[1]), opset)


@cache
def group_norm_function(opset: int) -> onnx.FunctionProto:
    """``GroupNormalizationPlugin`` for a model of ``opset``: float32 data [N, C, H, W], a scale and shift per channel."""
    return _function(_GROUP_NORM.format(name=GROUP_NORM), opset)


def is_own(function: onnx.FunctionProto) -> bool:
    """True for a function that stands here, as it was written."""
    opset = next((entry.version for entry in function.opset_import if not entry.domain), 0)
    makers = {INSTANCE_NORM: instance_norm_function, GROUP_NORM: group_norm_function}
    is_possible = function.domain == DOMAIN and function.name in makers and opset >= FUNCTIONS_SINCE
    return is_possible and function == makers[function.name](opset)


def _function(text: str, opset: int) -> onnx.FunctionProto:
    return onnx.parser.parse_function(f'<domain: "{DOMAIN}", opset_import: ["" : {opset}]>{text}')
