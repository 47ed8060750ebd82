"""The rules, in the order in which they are tried. The first that fits a node takes it."""

from __future__ import annotations

from trtnorm_cli.errors import UsageProblem
from trtnorm_cli.onnx_model.quantised_nodes import DYNAMIC
from trtnorm_cli.profile.rewriting import RewriteSettings
from trtnorm_cli.rewrite.rule import Rule
from trtnorm_cli.rewrite.rules import (
    activated_product_in_rows,
    asymmetric_quantization,
    batchnorm_batch_statistics,
    batchnorm_parameters_to_vectors,
    batchnorm_per_element,
    batchnorm_runtime_parameters,
    batchnorm_to_inference,
    batchnorm_to_scale_shift,
    cast_moved_weights,
    dequantised_inputs,
    dequantize_weights,
    drop_expand,
    drop_zero_bias,
    dynamic_dequantize_to_float,
    dynamic_lstm_to_float,
    dynamic_matmul_to_float,
    fold_batchnorm_constant,
    fold_batchnorm_conv,
    fold_batchnorm_conv_transpose,
    fold_batchnorm_downstream,
    fold_batchnorm_gemm,
    fold_batchnorm_upstream,
    fold_scale_shift_upstream,
    fourier_transform,
    gather_block_weights,
    group_norm_to_plugin,
    groupnorm_of_vectors,
    groupnorm_one_group,
    instance_norm_to_plugin,
    integer_product_to_float,
    layer_norm_channels_first,
    layernorm_further_outputs,
    local_response_normalization,
    log_softmax,
    lp_normalization,
    matmul_block_weights,
    mean_variance_normalization,
    merge_parallel_convolutions,
    merge_scale_shift,
    microsoft_groupnorm,
    microsoft_qlinear_operators,
    normalization_in_rows,
    normalization_of_one_element,
    normalization_parameter_types,
    normalization_parameters_to_vectors,
    normalization_to_scale_shift,
    qlinear_operators,
    recompose_group_norm,
    recompose_instance_norm,
    repair_batchnorm_channels,
    repair_normalization_channels,
    short_time_fourier_transform,
    simplified_layernorm,
    skip_layernorm,
    skip_simplified_layernorm,
    symmetric_activations,
    symmetric_weights,
    untile_batchnorm,
)

# These resolve what is ambiguous in a model and run before all others: they make it valid, then read it as the user asks.
REPAIRS: tuple[Rule, ...] = (
    qlinear_operators.RULE,
    microsoft_qlinear_operators.RULE,
    matmul_block_weights.RULE,
    gather_block_weights.RULE,
    asymmetric_quantization.RULE,
    dequantize_weights.RULE,
    cast_moved_weights.RULE,
    fold_batchnorm_constant.RULE,
    batchnorm_parameters_to_vectors.RULE,
    repair_batchnorm_channels.RULE,
    normalization_parameters_to_vectors.RULE,
    repair_normalization_channels.RULE,
    # Operators that ONNX does not know hide the shapes of all that is behind them.
    simplified_layernorm.RULE,
    skip_layernorm.RULE,
    skip_simplified_layernorm.RULE,
    microsoft_groupnorm.RULE,
)
# Those of the build profile's `training_mode: eval` and `dynamic_quantization: float`, which change what a model computes.
INFERENCE: tuple[Rule, ...] = (batchnorm_to_inference.RULE,)
FLOATS: tuple[Rule, ...] = (
    integer_product_to_float.RULE,
    dynamic_matmul_to_float.RULE,
    dynamic_lstm_to_float.RULE,
    dynamic_dequantize_to_float.RULE,
)
ON_REQUEST: tuple[Rule, ...] = (*INFERENCE, *FLOATS)

RULES: tuple[Rule, ...] = (
    *REPAIRS,
    *ON_REQUEST,
    # Quantisation that TensorRT does not take. BatchNormalizations fold into what comes of it.
    symmetric_weights.RULE,
    symmetric_activations.RULE,
    dequantised_inputs.RULE,
    # Normalizations that TensorRT refuses or computes wrongly; the special before the general.
    normalization_of_one_element.RULE,
    # On request only, and before the detours that TensorRT's own layers need: a plugin takes mixed types and one group.
    instance_norm_to_plugin.RULE,
    group_norm_to_plugin.RULE,
    groupnorm_of_vectors.RULE,
    groupnorm_one_group.RULE,
    layernorm_further_outputs.RULE,
    normalization_parameter_types.RULE,
    mean_variance_normalization.RULE,
    lp_normalization.RULE,
    local_response_normalization.RULE,
    log_softmax.RULE,
    # Transforms that it refuses, or computes with little accuracy.
    fourier_transform.RULE,
    short_time_fourier_transform.RULE,
    untile_batchnorm.RULE,
    # Normalizations in pieces come before the rules that would take their scales and shifts away.
    drop_expand.RULE,
    layer_norm_channels_first.RULE,
    recompose_instance_norm.RULE,
    recompose_group_norm.RULE,
    # Large instances before small ones.
    normalization_to_scale_shift.RULE,
    normalization_in_rows.RULE,
    # Right behind its convolution a BatchNormalization folds whatever the shapes are; weights further away have to be searched.
    fold_batchnorm_conv.RULE,
    fold_batchnorm_conv_transpose.RULE,
    fold_batchnorm_gemm.RULE,
    # Weights before come before weights behind: those take every shift, these only where they pad no zeros.
    fold_batchnorm_upstream.RULE,
    fold_batchnorm_downstream.RULE,
    drop_zero_bias.RULE,
    # Constants go into weights first; what is left of a chain of constants is merged; then branches are bare convolutions.
    fold_scale_shift_upstream.RULE,
    merge_scale_shift.RULE,
    merge_parallel_convolutions.RULE,
    # When no constant goes into the weights any more.
    activated_product_in_rows.RULE,
    # For what nothing takes. It is tried last of all, because its halves are harder to recognise than a BatchNormalization.
    batchnorm_to_scale_shift.RULE,
    batchnorm_per_element.RULE,
    batchnorm_runtime_parameters.RULE,
    batchnorm_batch_statistics.RULE,
)


# Of operators on integers that stand for floats, none of which TensorRT has.
QUANTISED: tuple[Rule, ...] = (
    qlinear_operators.RULE,
    microsoft_qlinear_operators.RULE,
    matmul_block_weights.RULE,
    gather_block_weights.RULE,
    *FLOATS,
)


def rewritten_operators(settings: RewriteSettings) -> frozenset[str]:
    """The operators on integers that rules take under ``settings``, as far as the operator alone tells."""
    taken = {kind for rule in QUANTISED if rule not in FLOATS and rule.name not in settings.skip for kind in rule.pattern.types}
    return frozenset(taken | set(DYNAMIC if settings.dynamic_quantization == "float" else ()))


def rule_named(name: str) -> Rule:
    """The rule called ``name``; raises ``UsageProblem`` with the nearest names otherwise."""
    for rule in RULES:
        if rule.name == name:
            return rule
    raise UsageProblem(f"there is no rule named {name!r}", hint=f"rules: {', '.join(rule.name for rule in RULES)}")
