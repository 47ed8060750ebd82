"""Build variants of a model to see what they cost; their engines are thrown away."""

from __future__ import annotations

import shutil
import sys
import uuid
from collections.abc import Callable, Mapping
from dataclasses import field, replace
from pathlib import Path

import onnx

from trtnorm_cli.child_process import Limits
from trtnorm_cli.errors import BuilderDied, NoRoom
from trtnorm_cli.light_dataclass import dataclass
from trtnorm_cli.onnx_model.plugin_nodes import for_builder
from trtnorm_cli.onnx_model.save import save_model
from trtnorm_cli.records.cost import EngineCostRecord
from trtnorm_cli.rewrite.kernels import Cost
from trtnorm_cli.rewrite.rewriting import Rewriting
from trtnorm_cli.tensorrt.launch import launch
from trtnorm_cli.tensorrt.manifest import Kernels, kernels_by_type
from trtnorm_cli.tensorrt.plugin_request import with_plugins
from trtnorm_cli.tensorrt.request import BuildRequest, BuildResult

# What estimates the cost of the engine that was built of a model; None where its kernels are not known.
Estimator = Callable[[BuildResult, onnx.ModelProto], EngineCostRecord | None]
NOT_BUILT = Cost(sys.maxsize, sys.maxsize, sys.float_info.max)


def cost_of(kernels: Kernels) -> Cost:
    """The cost that a search compares. A variant that was not built costs more than any other."""
    if kernels.reason:
        return NOT_BUILT
    about = kernels.cost
    return Cost(kernels.launches, kernels.engine_bytes, *(() if about is None else (about.us, about.compiled_on_device)))


def kernels_of(result: BuildResult, cost: EngineCostRecord | None) -> Kernels:
    """The kernels of a build, with the estimate of their cost."""
    if not result.ok:
        return Kernels({}, 0, "; ".join(message.text for message in result.errors))
    return Kernels(kernels_by_type(result), result.engine_bytes, cost=None if cost is None else cost.total)


@dataclass(frozen=True)
class BuiltVariant:
    """A rewriting, what TensorRT made of it, and what that costs. ``result`` is None where it died."""

    rewriting: Rewriting
    kernels: Kernels
    result: BuildResult | None = None
    cost: EngineCostRecord | None = None

    def result_for(self, rewriting: Rewriting, settings: Mapping[str, object]) -> BuildResult | None:
        """The result where a build of ``rewriting`` with these settings would be the same, to the byte."""
        detailed = settings.get("profiling_verbosity", "detailed") == "detailed"
        return self.result if detailed and rewriting.changes == self.rewriting.changes else None


@dataclass(frozen=True)
class VariantBuilder:
    """Builds rewritings in ``folder`` as ``request`` says, which holds for all but model, engine and plugin nodes."""

    folder: Path
    request: BuildRequest
    estimate: Estimator
    limits: Limits = field(default_factory=Limits)

    def build(self, rewriting: Rewriting) -> Kernels:
        """The kernels of one variant. What TensorRT refuses or dies on has none."""
        return self.built(rewriting).kernels

    def built(self, rewriting: Rewriting, engine: Path | None = None) -> BuiltVariant:
        """One variant. Its engine stays where ``engine`` says where."""
        work = self.folder / f"variant-{uuid.uuid4().hex[:8]}"
        try:
            work.mkdir()
            save_model(for_builder(rewriting.model), work / "variant.onnx", rewriting.folder)
            settings = {**self.request.settings, "profiling_verbosity": "detailed"}
            path = engine or work / "variant.engine"
            request = replace(self.request, model="variant.onnx", engine=str(path), settings=settings)
            request = with_plugins(request, rewriting.model, self.request.plugins)
            result = launch(request, work, None, self.limits)
            cost = self.estimate(result, rewriting.model) if result.ok else None
            return BuiltVariant(rewriting, kernels_of(result, cost), result, cost)
        except (BuilderDied, NoRoom) as error:  # it is only looked at: the build can do without
            return BuiltVariant(rewriting, Kernels({}, 0, error.summary))
        finally:
            shutil.rmtree(work, ignore_errors=True)
