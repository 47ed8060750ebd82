"""Hold the ``builder:`` settings against the backend before anything is rewritten or built."""

from __future__ import annotations

from typing import Any

import onnx

from trtnorm_cli.onnx_model.walk import all_nodes, all_tensors
from trtnorm_cli.profile.model import BuildProfile
from trtnorm_cli.profile.problems import Problem, refusal
from trtnorm_cli.tensorrt.facts import BackendFacts, ask_facts
from trtnorm_cli.tensorrt.settings import faults_of

# The first compute capability that has each type (measured with TensorRT for RTX 1.7; older ones refuse to compile for it).
FIRST_CAPABILITY = {"BFLOAT16": 80, "FLOAT8E4M3FN": 89}
_ALWAYS_THERE = frozenset({"profiling_verbosity", "optimization_level", "workspace"})


def builder_settings(profile: BuildProfile | None) -> dict[str, Any]:
    """The ``builder:`` settings that the profile gives, as JSON values."""
    return {} if profile is None else profile.builder.model_dump(mode="json", exclude_none=True)


def require_settings(profile: BuildProfile | None, backend: str | None, model: onnx.ModelProto) -> None:
    """Raise ``ProfileError``, with the line of each setting that the backend does not take or that does not fit ``model``.

    The backend is only asked where a setting is given that some release lacks.
    """
    settings = builder_settings(profile)
    if profile is None or not settings.keys() - _ALWAYS_THERE:
        return
    problems = setting_problems(settings, ask_facts(backend), model)
    if problems:
        raise refusal(problems, profile.positions)


def setting_problems(settings: dict[str, Any], facts: BackendFacts, model: onnx.ModelProto) -> list[Problem]:
    """Problems of the profile, which are ``settings`` that this backend or model does not take."""
    backend = f"{facts.name} {facts.version}"
    faults = faults_of(settings, backend, frozenset(facts.capabilities), facts.targets)
    problems = [Problem(("builder", fault.key), fault.message, fault.instead) for fault in faults]
    return problems or _type_problems(settings.get("targets", ()), model)


def _type_problems(targets: list[str], model: onnx.ModelProto) -> list[Problem]:
    """A problem for each target that lacks a type which the model uses."""
    used = types_of(model) if targets else frozenset()
    return [
        Problem(
            ("builder", "targets", index),
            f"the model uses {name.lower()}, which {target} does not have",
            f"leave out compute capabilities below sm_{first}, or convert the model to float16 or float32",
        )
        for index, target in enumerate(targets)
        for name, first in FIRST_CAPABILITY.items()
        if name in used and int(target.removeprefix("sm_")) < first
    ]


def types_of(model: onnx.ModelProto) -> frozenset[str]:
    """The element types in the model, of inputs, outputs, values, weights, and what Cast makes."""
    values = (*model.graph.input, *model.graph.output, *model.graph.value_info)
    numbers = {value.type.tensor_type.elem_type for value in values} | {tensor.data_type for tensor in all_tensors(model)}
    for node in all_nodes(model):
        if node.op_type == "Cast":
            numbers |= {attribute.i for attribute in node.attribute if attribute.name == "to"}
    return frozenset(onnx.TensorProto.DataType.Name(number) for number in numbers if number)
