"""The estimated cost of what was built, at the sizes of the build profile."""

from __future__ import annotations

import onnx

from trtnorm_cli.cost.device import DEFAULT, DEVICES, Device
from trtnorm_cli.engine_cost.engine import engine_cost
from trtnorm_cli.profile.prove import sizes_of
from trtnorm_cli.records.cost import EngineCostRecord
from trtnorm_cli.rewrite.prepare import Prepared
from trtnorm_cli.tensorrt.request import BuildResult


def device_of(prepared: Prepared) -> Device:
    """The device that estimates are for."""
    return DEVICES[DEFAULT] if prepared.profile is None else prepared.profile.target_device


def opt_sizes(prepared: Prepared) -> dict[str, dict[str, int]]:
    """The opt size of every symbol of the model's inputs, for each optimization profile."""
    inputs = prepared.proof.inputs if prepared.proof is not None else ()
    profiles = prepared.fitted.profiles
    return {one.name: {name: opt for name, (_, opt, _) in sizes_of(one, inputs).items()} for one in profiles}


def estimated(result: BuildResult, model: onnx.ModelProto, prepared: Prepared) -> EngineCostRecord | None:
    """The cost of the engine that was built from ``model``; None where the build did not list its kernels."""
    if not result.kernels:
        return None
    weights = [one.weight for one in prepared.fitted.profiles]
    return engine_cost(result.kernels, model, opt_sizes(prepared), device_of(prepared), result.layers, weights)
