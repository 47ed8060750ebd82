"""Model-local functions: a model that calls some must carry them, and import the domains that they are in."""

from __future__ import annotations

from collections.abc import Iterable

import onnx
import onnx.inliner

from trtnorm_cli.onnx_model.light_copy import light_copy

# A domain of functions has no versions of its own; every model that calls one imports it as this.
DOMAIN_VERSION = 1
_FIRST_IR_VERSION = 8


def with_functions_inlined(model: onnx.ModelProto) -> onnx.ModelProto:
    """A copy without large weights in which functions of the model are inlined.

    The model itself where it has no functions, or where they cannot be inlined because they are recursive.
    """
    if not model.functions:
        return model
    try:
        return onnx.inliner.inline_local_functions(light_copy(model))
    except (RuntimeError, ValueError):
        return model


def add_functions(model: onnx.ModelProto, functions: Iterable[onnx.FunctionProto]) -> None:
    """Put ``functions`` into ``model``, in place, each once, and import their domains.

    Raises ``ValueError`` when the model has another function of the same domain and name.
    """
    present = {(function.domain, function.name): function for function in model.functions}
    imported = {entry.domain for entry in model.opset_import}
    for function in functions:
        key = (function.domain, function.name)
        if key not in present:
            model.functions.append(function)
            present[key] = function
        elif present[key] != function:
            raise ValueError(f"the model has another function {function.domain}::{function.name}")
        if function.domain not in imported:
            model.opset_import.add(domain=function.domain, version=DOMAIN_VERSION)
            imported.add(function.domain)
        model.ir_version = max(model.ir_version, _FIRST_IR_VERSION)
