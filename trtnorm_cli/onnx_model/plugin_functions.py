"""The definitions of plugins, as model-local functions in standard ONNX."""

from __future__ import annotations

from functools import cache

import onnx
import onnx.parser

from trtnorm_cli.onnx_model.plugin_nodes import DOMAIN

INSTANCE_NORM, INSTANCE_NORM_VERSION = "InstanceNormalization_TRT", "3"
GROUP_NORM, GROUP_NORM_VERSION = "GroupNormalizationPlugin", "1"
# Constant takes the attributes of a function since opset 12, and CastLike came with 15. Before, the parameters of a definition
# are inputs of the node as well, which the plugin itself does not read.
ATTRIBUTES_SINCE = 15
# What a user must know of a plugin node.
NOT_RUN = (
    "becomes the plugin {plugin}: checks and comparisons run what it is defined to compute, not the plugin itself; "
    "NVIDIA's calls cuDNN, which TensorRT does not support on Blackwell and later GPUs"
)

_INSTANCE_NORM_OF_INPUTS = """
{name} <epsilon, scales, bias, relu, alpha, plugin_version, plugin_namespace> (x, gamma, beta) => (y)
{{
  normalized = InstanceNormalization <epsilon: float = @epsilon> (x, gamma, beta)
  y = LeakyRelu <alpha: float = @alpha> (normalized)
}}
"""

_INSTANCE_NORM = """
{name} <epsilon, scales, bias, relu, alpha, plugin_version, plugin_namespace> (x) => (y)
{{
  data = Cast <to = 1> (x)
  gamma = Constant <value_floats: floats = @scales> ()
  beta = Constant <value_floats: floats = @bias> ()
  normalized = InstanceNormalization <epsilon: float = @epsilon> (data, gamma, beta)
  leaky = LeakyRelu <alpha: float = @alpha> (normalized)
  wanted = Constant <value_int: int = @relu> ()
  zero = Constant <value_int = 0> ()
  is_active = Greater (wanted, zero)
  result = Where (is_active, leaky, normalized)
  y = CastLike (result, x)
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

    Below opset 15 it is computed in the type of the data, with scale and bias as inputs, and a node without an activation has
    to say so by a slope ``alpha`` of 1.
    """
    body = _INSTANCE_NORM if opset >= ATTRIBUTES_SINCE else _INSTANCE_NORM_OF_INPUTS
    return _function(body.format(name=INSTANCE_NORM), opset)


@cache
def group_norm_function(opset: int) -> onnx.FunctionProto:
    """``GroupNormalizationPlugin`` for a model of ``opset``: float32 data [N, C, H, W], a scale and shift per channel."""
    return _function(_GROUP_NORM.format(name=GROUP_NORM), opset)


def is_own(function: onnx.FunctionProto) -> bool:
    """True for a function that stands here, as it was written."""
    opset = next((entry.version for entry in function.opset_import if not entry.domain), 0)
    makers = {INSTANCE_NORM: instance_norm_function, GROUP_NORM: group_norm_function}
    return function.domain == DOMAIN and function.name in makers and opset > 0 and function == makers[function.name](opset)


def _function(text: str, opset: int) -> onnx.FunctionProto:
    return onnx.parser.parse_function(f'<domain: "{DOMAIN}", opset_import: ["" : {opset}]>{text}')
