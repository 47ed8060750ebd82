"""How much a reading of the model that the user asked for changes its results."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import onnx

from trtnorm_cli.evaluate.float64 import ReferenceUnavailable, evaluate_float64
from trtnorm_cli.evaluate.metrics import distance
from trtnorm_cli.evaluate.ort_runner import OrtRunner, RunFailed
from trtnorm_cli.onnx_model.save import save_model
from trtnorm_cli.onnx_model.shapes import model_inputs
from trtnorm_cli.rewrite.proof.check_shapes import check_types
from trtnorm_cli.rewrite.proof.sampling import draw, fitting_domains

_SEED = 0


def effect_on_results(
    before: onnx.ModelProto,
    after: onnx.ModelProto,
    folder: Path,
    proof_shapes: Mapping[str, tuple[int, ...]] | None,
    runner: OrtRunner,
) -> str:
    """By how much the model's outputs change from ``before`` to ``after``, measured on one set of random inputs."""
    kinds = {name: kind for name, kind in check_types(before, proof_shapes).items() if name in model_inputs(before)}
    if any(not kind.is_static for kind in kinds.values()):
        return "by how much the results change was not measured: the shapes of the inputs are not known"
    shapes = {name: tuple(size for size in kind.shape or () if isinstance(size, int)) for name, kind in kinds.items()}
    feeds = draw(np.random.default_rng(_SEED), kinds, shapes, domains=fitting_domains(before, kinds, shapes))
    with tempfile.TemporaryDirectory(prefix="trtnorm-effect-") as name:
        files = [_saved(model, Path(name) / f"{index}.onnx", folder) for index, model in enumerate((before, after))]
        try:
            wanted, got = (runner.run(file, feeds) for file in files)
        except RunFailed:
            try:
                wanted, got = (evaluate_float64(file, feeds).outputs for file in files)
            except ReferenceUnavailable as error:
                return f"by how much the results change was not measured: {error}"
    changes = [f"{output} by {distance(wanted[output], got[output]).relative_max:.2g}" for output in wanted]
    return f"the results change: {', '.join(changes)} of the largest value, on random inputs (seed {_SEED})"


def _saved(model: onnx.ModelProto, path: Path, folder: Path) -> Path:
    save_model(model, path, folder)
    return path
