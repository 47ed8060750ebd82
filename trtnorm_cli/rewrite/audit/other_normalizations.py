"""Find normalizations other than BatchNormalization that TensorRT refuses or computes wrongly; see ``audit``."""

from __future__ import annotations

from typing import TYPE_CHECKING

import onnx

from trtnorm_cli.onnx_model.shapes import format_shape
from trtnorm_cli.rewrite.audit.site import EXPORT_AGAIN, Refusal, Site

if TYPE_CHECKING:
    import onnx_graphsurgeon as gs

_GROUP, _INSTANCE, _LAYER = "GroupNormalization", "InstanceNormalization", "LayerNormalization"
_OVER_LAST_AXES = (_LAYER, "RMSNormalization", "SimplifiedLayerNormalization")
_FUSED = ("SkipLayerNormalization", "SkipSimplifiedLayerNormalization", "GroupNorm")
_MICROSOFT = "com.microsoft"
_STATE_THE_SHAPE = "state the shape of its data in the model"


def is_fused(node: gs.Node) -> bool:
    """True for operators of ONNX Runtime that a rule should have taken apart."""
    return node.domain == _MICROSOFT and node.op in _FUSED


def _fused(site: Site) -> Refusal | None:
    if not is_fused(site.node):
        return None
    reason = "it is an operator of ONNX Runtime that TensorRT does not know, and no rule could take it"
    return site.refusal(reason, f"{_STATE_THE_SHAPE}, or export it without the optimizations of ONNX Runtime")


def _too_new(site: Site) -> Refusal | None:
    """ONNX Runtime has LayerNormalization in every opset."""
    operator, opset = site.node.op, site.surgery.opset
    if operator == _LAYER or not onnx.defs.has(operator) or onnx.defs.has(operator, max_inclusive_version=opset):
        return None
    first = min(s.since_version for s in onnx.defs.get_all_schemas_with_history() if s.name == operator and not s.domain)
    return site.refusal(
        f"the operator exists since opset {first}, and the model is of opset {opset}: it is not valid ONNX",
        f"export the model with opset {first}, or in operators that it has",
    )


def _groups(site: Site) -> Refusal | None:
    if site.node.op != _GROUP:
        return None
    count, shape = site.node.attrs.get("num_groups", 0), site.shape or ()
    channels = shape[1] if len(shape) > 1 else None
    if not isinstance(count, int) or count < 1:
        return site.refusal(f"it has num_groups={count}", "export the model again")
    if isinstance(channels, int) and channels % count:
        return site.refusal(
            f"its {count} groups do not divide the {channels} channels of {format_shape(shape)}", "export it again"
        )
    if count > 1 or channels == 1:
        return None
    reason = "it has one group, and TensorRT would silently compute an instance normalization; no rule could take it"
    return site.refusal(reason, f"{_STATE_THE_SHAPE}, or write it as a LayerNormalization over channels and positions")


def _no_positions(site: Site) -> Refusal | None:
    if site.node.op not in (_GROUP, _INSTANCE) or site.shape is None or len(site.shape) > 2:
        return None
    reason = (
        f"its data are {format_shape(site.shape)}; TensorRT normalizes data of three axes at least, and no rule could take it"
    )
    return site.refusal(reason, _STATE_THE_SHAPE)


def _parameters_are_no_vectors(site: Site) -> Refusal | None:
    if site.node.op not in (_GROUP, _INSTANCE):
        return None
    shapes = {role: value.shape for role, value in site.parameters().items() if value.ndim != 1}
    if not shapes:
        return None
    said = ", ".join(f"{role} {list(shape)}" for role, shape in shapes.items())
    return site.refusal(f"its parameters are not vectors: {said}", "give them one axis of length C")


def _axis_beyond(site: Site) -> Refusal | None:
    if site.node.op not in _OVER_LAST_AXES or site.shape is None:
        return None
    axis, rank = site.node.attrs.get("axis", -1), len(site.shape)
    if -rank <= axis < rank:
        return None
    return site.refusal(
        f"its axis is {axis}, and its data {format_shape(site.shape)} have {rank} axes", "export the model again"
    )


def _parameters_do_not_broadcast(site: Site) -> Refusal | None:
    if site.node.op not in _OVER_LAST_AXES or site.shape is None:
        return None
    for role, value in site.parameters().items():
        if value.ndim > len(site.shape) or any(
            not _fits(a, b) for a, b in zip(value.shape[::-1], site.shape[::-1], strict=False)
        ):
            reason = f"its {role} {list(value.shape)} cannot be broadcast to its data {format_shape(site.shape)}"
            return site.refusal(reason, EXPORT_AGAIN)
    return None


def _fits(size: int, data: int | str | None) -> bool:
    return size == 1 or not isinstance(data, int) or size == data


def _order_of_norm(site: Site) -> Refusal | None:
    order = site.node.attrs.get("p", 2)
    if site.node.op != "LpNormalization" or order in (1, 2):
        return None
    return site.refusal(f"it has p={order}; ONNX, ONNX Runtime and TensorRT know 1 and 2", "write it in Abs, Pow and ReduceSum")


def _window(site: Site) -> Refusal | None:
    size = site.node.attrs.get("size", 0)
    if site.node.op != "LRN" or size > 0:
        return None
    return site.refusal(f"its window has size={size}", "export the model again")


FORMS = (
    _fused,
    _too_new,
    _parameters_are_no_vectors,
    _groups,
    _no_positions,
    _axis_beyond,
    _parameters_do_not_broadcast,
    _order_of_norm,
    _window,
)
