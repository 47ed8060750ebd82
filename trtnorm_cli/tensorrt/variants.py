"""Build variants of a model to see what they cost. Their engines are thrown away, or kept for the build that chooses one."""

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
from trtnorm_cli.onnx_model.save import MAPPED_FROM, save_model
from trtnorm_cli.records.cost import EngineCostRecord
from trtnorm_cli.rewrite.kernels import Cost
from trtnorm_cli.rewrite.rewriting import Rewriting
from trtnorm_cli.tensorrt.launch import launch
from trtnorm_cli.tensorrt.manifest import Kernels, kernels_by_type
from trtnorm_cli.tensorrt.plugin_request import with_plugins
from trtnorm_cli.tensorrt.request import BuildRequest, BuildResult

# What estimates the cost of the engine that was built of a model; None where its kernels are not known.
Estimator = Callable[[BuildResult, onnx.ModelProto], EngineCostRecord | None]
Run = Callable[[BuildRequest, Path], BuildResult]
VARIANT_NAME = "variant.onnx"
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
    """A rewriting, what TensorRT made of it, and what that costs. ``result`` is None where it died.

    ``engine`` is where the engine stays, if it does. ``folder`` is where the model stays as ``variant.onnx`` with the network
    that TensorRT made of it, if they do.
    """

    rewriting: Rewriting
    kernels: Kernels
    result: BuildResult | None = None
    cost: EngineCostRecord | None = None
    engine: Path | None = None
    folder: Path | None = None

    def result_for(self, rewriting: Rewriting, settings: Mapping[str, object]) -> BuildResult | None:
        """The result where a build of ``rewriting`` with these settings would be the same, to the byte."""
        detailed = settings.get("profiling_verbosity", "detailed") == "detailed"
        is_equal = self.engine is not None and rewriting.changes == self.rewriting.changes
        return self.result if detailed and is_equal else None


@dataclass(frozen=True)
class VariantBuilder:
    """Builds rewritings in ``folder`` as ``request`` says, which holds for all but model, engine and plugin nodes.

    With ``kept_in`` the engines of variants that were tried stay in that folder, with their ``network`` where that is wanted.
    ``kept`` holds these variants.
    """

    folder: Path
    request: BuildRequest
    estimate: Estimator
    limits: Limits = field(default_factory=Limits)
    kept_in: Path | None = None
    network: str | None = None
    kept: list[BuiltVariant] = field(default_factory=list)

    def tried(self, rewriting: Rewriting, run: Run | None = None) -> BuiltVariant:
        """One variant, which may be the one that stays. What TensorRT refuses or dies on has no kernels."""
        if self.kept_in is None:
            return self.built(rewriting, run=run)
        self.kept.append(self.built(rewriting, self.kept_in / f"variant-{len(self.kept)}.engine", self.network, run))
        return self.kept[-1]

    def built(
        self, rewriting: Rewriting, engine: Path | None = None, network: str | None = None, run: Run | None = None
    ) -> BuiltVariant:
        """One variant. Its engine stays where ``engine`` says where, and its folder where a ``network`` is asked for.

        ``run`` does what a request says in a folder, where that is not left to ``launch``.
        """
        work = self.folder / f"variant-{uuid.uuid4().hex[:8]}"
        stays = False
        try:
            work.mkdir()
            model = for_builder(rewriting.model)
            save_model(model, work / VARIANT_NAME, rewriting.folder, MAPPED_FROM)
            settings = {**self.request.settings, "profiling_verbosity": "detailed"}
            path = engine or work / "variant.engine"
            asked = network if model is rewriting.model else None  # a definition stands for a plugin where it is compared
            request = replace(self.request, model=VARIANT_NAME, engine=str(path), settings=settings, network=asked)
            request = with_plugins(request, rewriting.model, self.request.plugins)
            result = launch(request, work, None, self.limits) if run is None else run(request, work)
            cost = self.estimate(result, rewriting.model) if result.ok else None
            stays = asked is not None and result.ok
            places = (engine if result.ok else None, work if stays else None)
            return BuiltVariant(rewriting, kernels_of(result, cost), result, cost, *places)
        except (BuilderDied, NoRoom) as error:  # it is only looked at: the build can do without
            return BuiltVariant(rewriting, Kernels({}, 0, error.summary))
        finally:
            if not stays:
                shutil.rmtree(work, ignore_errors=True)
