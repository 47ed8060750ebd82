"""Refusals that all BatchNormalization rules share: one case for each precondition."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import onnx

from tests.models import batchnorm, parse
from trtnorm_cli.profile.rewriting import RewriteSettings
from trtnorm_cli.rewrite.parts import batchnorm as shared
from trtnorm_cli.rewrite.rule import Precondition


@dataclass(frozen=True)
class Refusal:
    """A model that ``precondition`` refuses under ``settings``, for a reason that contains ``reason``."""

    precondition: Precondition
    model: onnx.ModelProto
    reason: str
    settings: RewriteSettings | None = None

    @property
    def name(self) -> str:
        return f"{self.precondition.__name__}: {self.reason}"


@dataclass(frozen=True)
class Feeding:
    """What stands before the BatchNormalization under test: ``before`` writes ``c``, which has ``channels`` channels."""

    inputs: str
    before: str
    channels: int
    weights: dict[str, np.ndarray] = field(default_factory=dict)

    def model(self, norm: str = "", opset: int = 17, outputs: str = "y", **changed: np.ndarray) -> onnx.ModelProto:
        """The model with attributes ``norm`` on the BatchNormalization and some of its parameters ``changed``."""
        weights = {**batchnorm(self.channels), **self.weights, **changed}
        norm = f"{outputs} = BatchNormalization {norm}(c, gamma, beta, mu, var)"
        return parse(f"g ({self.inputs}) => (float[] y) {{ {self.before} {norm} }}", weights, opset=opset)


def shared_refusals(feeding: Feeding) -> list[Refusal]:
    """One case at least for each precondition in ``batchnorm.PRECONDITIONS``."""
    c = feeding.channels
    spoilt = np.ones(c, np.float32)
    spoilt[1] = np.nan
    negative = np.ones(c, np.float32)
    negative[0] = -0.5
    infinite = np.zeros(c, np.float32)
    infinite[2] = -np.inf
    unscaled = np.full(c, -np.float32(1e-5))
    per_element = {name: np.ones((c, 3), np.float32) for name in ("gamma", "beta", "mu", "var")}
    return [
        Refusal(shared.is_inference, feeding.model("<training_mode=1>", outputs="y, m2, v2"), "training_mode=1"),
        Refusal(shared.is_inference, feeding.model(opset=9, outputs="y, m2, v2, sm, sv"), "has 5 outputs"),
        Refusal(shared.is_per_channel, feeding.model("<spatial=0>", opset=7, **per_element), "spatial=0"),
        Refusal(shared.is_per_channel, feeding.model("<spatial=0>", opset=8, **per_element), "spatial=0"),
        Refusal(shared.parameters_agree, feeding.model(mu=np.zeros(c + 1, np.float32)), f"mean [{c + 1}]"),
        Refusal(shared.parameters_agree, feeding.model(gamma=np.ones((1, c), np.float32)), f"scale [1, {c}]"),
        Refusal(shared.parameters_agree, feeding.model(var=np.ones((), np.float32)), "variance []"),
        Refusal(shared.parameters_are_finite, feeding.model(gamma=spoilt), "gamma (scale) is not finite in channel 1 (nan)"),
        Refusal(shared.parameters_are_finite, feeding.model(beta=infinite), "beta (bias) is not finite in channel 2 (-inf)"),
        Refusal(shared.variance_is_positive, feeding.model(var=negative), "is not positive in channel 0 (-0.49999)"),
        Refusal(shared.variance_is_positive, feeding.model(var=unscaled), "is not positive in channel 0 (0)"),
    ]
