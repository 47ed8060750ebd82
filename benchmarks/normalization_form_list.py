"""Every form of the other normalizations that ONNX and ONNX Runtime allow or exporters write, and forms that are broken."""

from __future__ import annotations

from collections.abc import Callable

from benchmarks.forms import Form
from benchmarks.normalization_forms_over_axes import layer, local_response, root_mean_square, without_parameters
from benchmarks.normalization_forms_over_channels import group, instance, mismatches
from benchmarks.normalization_models import Named


def _rows(section: str, make: Callable[[], list[Named]]) -> list[Form]:
    return [Form(section, name, made, ranges=(rest[0] if rest else {})) for name, made, *rest in make()]


def forms() -> list[Form]:
    """Every form, in the order of the table."""
    return [
        *_rows("InstanceNormalization", instance),
        *_rows("GroupNormalization", group),
        *_rows("LayerNormalization", layer),
        *_rows("RMSNormalization and the operators of ONNX Runtime", root_mean_square),
        *_rows("MeanVarianceNormalization and LpNormalization", without_parameters),
        *_rows("LRN", local_response),
        *mismatches(),
    ]
