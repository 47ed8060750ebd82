"""Build variants of a model to see what they cost; their engines are thrown away."""

from __future__ import annotations

import shutil
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

from trtnorm_cli.errors import BuilderDied
from trtnorm_cli.onnx_model.plugin_nodes import for_builder
from trtnorm_cli.onnx_model.save import save_model
from trtnorm_cli.rewrite.kernels import Cost
from trtnorm_cli.rewrite.rewriting import Rewriting
from trtnorm_cli.tensorrt.launch import launch
from trtnorm_cli.tensorrt.layer_table import launched
from trtnorm_cli.tensorrt.manifest import count
from trtnorm_cli.tensorrt.plugin_request import with_plugins
from trtnorm_cli.tensorrt.request import BuildRequest, BuildResult, ShapeTriple

NOT_BUILT = Cost(sys.maxsize, sys.maxsize)


@dataclass(frozen=True)
class Kernels:
    """What the compiled engine of a variant launches, by type, and its size; ``reason`` says why there is none."""

    by_type: dict[str, int]
    engine_bytes: int
    reason: str = ""

    @property
    def cost(self) -> Cost:
        return NOT_BUILT if self.reason else Cost(sum(self.by_type.values()), self.engine_bytes)


@dataclass(frozen=True)
class VariantBuilder:
    """Builds rewritings in ``folder`` under one set of optimization profiles and settings."""

    folder: Path
    backend: str | None
    profiles: tuple[dict[str, ShapeTriple], ...]
    settings: dict[str, object]
    timeout_s: float | None
    plugins: tuple[str, ...] = ()
    memory_bytes: int | None = None

    def build(self, rewriting: Rewriting) -> Kernels:
        """The kernels of one variant. What TensorRT refuses or dies on has none."""
        work = Path(tempfile.mkdtemp(prefix="variant-", dir=self.folder))
        try:
            save_model(for_builder(rewriting.model), work / "variant.onnx", rewriting.folder)
            settings = {**self.settings, "profiling_verbosity": "detailed"}
            request = BuildRequest("variant.onnx", str(work / "variant.engine"), self.backend, self.profiles, settings)
            request = with_plugins(request, rewriting.model, self.plugins)
            return _kernels(launch(request, work, lambda event: None, self.timeout_s, memory_bytes=self.memory_bytes))
        except BuilderDied as error:
            return Kernels({}, 0, error.summary)
        finally:
            shutil.rmtree(work, ignore_errors=True)


def _kernels(result: BuildResult) -> Kernels:
    if not result.ok:
        return Kernels({}, 0, "; ".join(message.text for message in result.errors))
    by_type = count(kernel.get("type", "unread") for kernel in launched(result.kernels))
    return Kernels(by_type, result.engine_bytes)
