"""Find in a rewritten graph what TensorRT is known to refuse or to compute wrongly, and name the way out of it.

TensorRT imports most of these without a word: a wrong engine comes out. Each entry of ``FORMS`` was seen with TensorRT for
RTX 1.7. An entry that the rules have repaired is gone from the graph and is not found here.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

import ml_dtypes
import numpy as np
import onnx

from trtnorm_cli.onnx_model.domains import DEFAULT_DOMAINS
from trtnorm_cli.onnx_model.normalization_nodes import PARAMETERS
from trtnorm_cli.onnx_model.shapes import TensorType
from trtnorm_cli.profile.rewriting import RewriteSettings
from trtnorm_cli.rewrite.audit import other_normalizations
from trtnorm_cli.rewrite.audit.diagnosis import OVER_CHANNELS, diagnose, listed
from trtnorm_cli.rewrite.audit.readings import Choice, choose, yaml_line
from trtnorm_cli.rewrite.audit.site import EXPORT_AGAIN, Refusal, Site
from trtnorm_cli.rewrite.channels import DEFAULT_EPSILON, channels_where

if TYPE_CHECKING:
    import onnx_graphsurgeon as gs

    from trtnorm_cli.onnx_model.surgery import Surgery

_BATCHNORM = "BatchNormalization"
_SAVED_VARIANCE = 4
_HALF = {onnx.TensorProto.FLOAT16: np.dtype(np.float16), onnx.TensorProto.BFLOAT16: np.dtype(ml_dtypes.bfloat16)}
_TRAINING_WAY_OUT = (
    "export the model after model.eval(), or say in the build profile what is meant:\n"
    "training_mode: eval         # the running statistics\n"
    "training_mode: as-written   # those of each batch"
)


Form = Callable[[Site], "Refusal | None"]


def audit(
    surgery: Surgery, types: Mapping[str, TensorType], settings: RewriteSettings, forms: Sequence[Form] | None = None
) -> list[Refusal]:
    """The normalization nodes that must not reach TensorRT, each with the first reason that applies, of ``forms`` or of all."""
    forms = FORMS if forms is None else forms
    outputs = {tensor.name for graph in surgery.graphs() for tensor in graph.outputs}
    found: list[Refusal | None] = []
    for graph in surgery.graphs():
        for node in graph.nodes:
            if not _is_normalization(node) or not node.outputs:
                continue
            used = tuple(t.name for t in node.outputs[1:] if t.name and (t.outputs or t.name in outputs))
            site = Site(node, surgery, types, settings, used)
            found.append(next((refusal for form in forms if (refusal := form(site)) is not None), None))
    return [refusal for refusal in found if refusal is not None]


def _is_normalization(node: gs.Node) -> bool:
    return (node.op in PARAMETERS and node.domain in DEFAULT_DOMAINS) or other_normalizations.is_fused(node)


def _wrong_type_of_epsilon(site: Site) -> Refusal | None:
    value = site.node.attrs.get("epsilon", DEFAULT_EPSILON)
    if isinstance(value, float):
        return None
    return site.refusal(
        f"its attribute epsilon is {value!r}, not a float; TensorRT would silently compute with 0",
        "write epsilon as a float, or export the model again",
    )


def _arity(site: Site) -> Refusal | None:
    if site.node.op != _BATCHNORM:
        return None
    given = [tensor for tensor in site.node.inputs if tensor.name]
    if len(site.node.inputs) == 5 and len(given) == 5:
        return None
    return site.refusal(
        f"it has {len(given)} inputs where data, scale, bias, mean and variance are wanted; TensorRT would ignore further ones",
        "export the model again; affine=False is a scale of ones and a bias of zeros",
    )


def _scalar(site: Site) -> Refusal | None:
    kind = site.types.get(site.node.inputs[0].name)
    if site.node.op not in OVER_CHANNELS or kind is None or kind.shape != ():
        return None
    return site.refusal(f"its data {site.node.inputs[0].name} are one number: there is no batch and no channel", EXPORT_AGAIN)


def _training(site: Site) -> Refusal | None:
    if site.node.op != _BATCHNORM or not site.is_training:
        return None
    if site.surgery.opset < 7:
        return site.refusal(
            f"opset {site.surgery.opset} without is_test=1 means training mode; TensorRT would silently take it for inference",
            "set is_test=1 where inference is meant, or export the model with opset 7 or later",
        )
    if site.settings.training_mode == "refuse":
        return site.refusal("it is in training mode, which the build profile refuses", _TRAINING_WAY_OUT)
    kind = site.types.get(site.node.inputs[0].name)
    if kind is None or not kind.shape:
        reason = "it is in training mode, which TensorRT does not have, and the rank of its data is not known"
        return site.refusal(reason, "state the shape of its data in the model, or export the model after model.eval()")
    return site.refusal("it is in training mode, which TensorRT does not have, and no rule could take it", _TRAINING_WAY_OUT)


def _saved_statistics(site: Site) -> Refusal | None:
    if site.node.op != _BATCHNORM or not site.is_training or len(site.node.outputs) <= _SAVED_VARIANCE:
        return None
    tensor = site.node.outputs[_SAVED_VARIANCE]
    if tensor.name not in site.used_outputs:
        return None
    return site.refusal(
        f"its output saved_var, {tensor.name}, is used: to ONNX it is a variance, to ONNX Runtime 1/√(variance + epsilon)",
        "remove what uses it: the output was meant for training frameworks alone",
    )


def _further_outputs(site: Site) -> Refusal | None:
    if site.node.op != _BATCHNORM or site.is_training or not site.used_outputs:
        return None
    return site.refusal(
        f"its further output {site.used_outputs[0]} is used, and has no meaning outside of training",
        "remove what uses it, or export the model again in inference mode",
    )


def _no_values(site: Site) -> Refusal | None:
    empty = [role for role, value in site.parameters().items() if value.size == 0]
    if not empty:
        return None
    return site.refusal(f"no values in its {listed(empty)}; TensorRT would silently build an identity", EXPORT_AGAIN)


def _misfit(site: Site) -> Refusal | None:
    found = diagnose(site.node, site.surgery, site.types)
    if found is None:
        return None
    choice = _readings(site)
    head, *details = found.lines()
    if choice is None:
        return site.refusal(head, EXPORT_AGAIN, tuple(details))
    if not choice.readings:
        return site.refusal(head, f"{EXPORT_AGAIN}, or give them with --weights model.safetensors", tuple(details))
    details += [f"it could be meant as {r.name}: {r.says}{f' ({r.evidence})' if r.evidence else ''}" for r in choice.readings]
    lines = [yaml_line(found.node, reading.name) for reading in choice.readings]
    way_out = f"{choice.why_not}; name the one that is meant in the build profile, as in\n{lines[0]}\n"
    return site.refusal(head, way_out + "or give the right weights with --weights model.safetensors", tuple(details))


def _readings(site: Site) -> Choice | None:
    """The readings on offer; None for parameters of run time."""
    found = diagnose(site.node, site.surgery, site.types)
    values = site.parameters()
    if found is None or values.keys() != found.counts.keys() or len(values) != len(PARAMETERS[site.node.op]):
        return None
    names = dict(zip(PARAMETERS[site.node.op], (tensor.name for tensor in site.node.inputs[1:]), strict=True))
    return choose(found, values, names, site.settings, in_training=site.is_training)


def _not_vectors(site: Site) -> Refusal | None:
    if site.node.op != _BATCHNORM:
        return None
    shapes = {role: list(value.shape) for role, value in site.parameters().items() if value.ndim != 1}
    if not shapes:
        return None
    listed = ", ".join(f"{role} {shape}" for role, shape in shapes.items())
    return site.refusal(f"its parameters are not vectors, which TensorRT wants: {listed}", "give them one axis of length C")


def _not_finite(site: Site) -> Refusal | None:
    """Running statistics do not matter to the result in training mode."""
    unused = ("mean", "variance") if site.node.op == _BATCHNORM and site.is_training else ()
    for role, value in site.parameters().items():
        if role in unused:
            continue
        where = channels_where(~np.isfinite(value.astype(np.float64)), value)
        if where is not None:
            return site.refusal(f"its {role} is not finite in {where}", EXPORT_AGAIN)
    return None


def _variance_not_positive(site: Site) -> Refusal | None:
    variance = site.parameters().get("variance")
    if variance is None or site.is_training:
        return None
    shifted = variance.astype(np.float64) + _epsilon(site)
    where = channels_where(shifted <= 0, shifted)
    if where is None:
        return None
    return site.refusal(
        f"its variance + epsilon is not above zero in {where}; the result is not a number there",
        "export the model again from weights that are in order, or raise epsilon",
    )


def _out_of_range(site: Site) -> Refusal | None:
    """TensorRT rounds the parameters to the type of half-precision data, and folds them in float32 otherwise."""
    if site.node.op != _BATCHNORM:
        return None
    kind = site.types.get(site.node.inputs[0].name)
    dtype = _HALF.get(kind.dtype if kind is not None else 0, np.dtype(np.float32))
    with np.errstate(all="ignore"):
        for role, value in _applied(site).items():
            where = channels_where(~np.isfinite(value.astype(dtype).astype(np.float64)), value)
            if where is not None:
                text = f"its {role} is more than {dtype.name} holds in {where}"
                wider = "" if dtype == np.float32 else "export the model in float32, or "
                return site.refusal(f"{text}; TensorRT would compute with infinity", wider + EXPORT_AGAIN)
    return None


def _applied(site: Site) -> dict[str, np.ndarray]:
    """The constant parameters, and what they come to when all four are known."""
    values = site.parameters()
    if len(values) < len(PARAMETERS[_BATCHNORM]) or len({value.shape for value in values.values()}) > 1:
        return values
    scale, bias, mean, variance = (value.astype(np.float64) for value in values.values())
    factor = scale / np.sqrt(variance + _epsilon(site))
    return {**values, "scale over deviation": factor, "bias less scaled mean": bias - mean * factor}


def _epsilon(site: Site) -> float:
    return float(site.node.attrs.get("epsilon", DEFAULT_EPSILON))


def _per_element(site: Site) -> Refusal | None:
    if site.node.op != _BATCHNORM or site.surgery.opset > 8 or site.node.attrs.get("spatial", 1) != 0:
        return None
    return site.refusal("it has spatial=0 (a value for each element), which TensorRT does not take", "export it per channel")


# What is wrong whatever a rule makes of the node: looked for before the rules run, which would carry it along.
SPOILT: tuple[Form, ...] = (_not_finite,)

# The first that applies is reported: the cause before its consequences.
FORMS: tuple[Form, ...] = (
    _wrong_type_of_epsilon,
    _arity,
    _scalar,
    _no_values,
    _misfit,
    _per_element,
    _not_vectors,
    _not_finite,
    _variance_not_positive,
    _saved_statistics,
    _training,
    _further_outputs,
    _out_of_range,
    *other_normalizations.FORMS,
)
