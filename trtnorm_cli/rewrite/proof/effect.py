"""How much a reading of the model that the user asked for changes its results."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import onnx

from trtnorm_cli.evaluate.float64 import ReferenceUnavailable, evaluate_float64
from trtnorm_cli.evaluate.metrics import distance
from trtnorm_cli.evaluate.ort_runner import OrtRunner, RunFailed
from trtnorm_cli.onnx_model.save import save_model
from trtnorm_cli.onnx_model.shapes import model_inputs
from trtnorm_cli.rewrite.effect import Effect, OutputEffect
from trtnorm_cli.rewrite.proof.check_shapes import check_types
from trtnorm_cli.rewrite.proof.sampling import draw, fitting_domains
from trtnorm_cli.scratch import Scratch

_DRAWS = 4
_BUDGET_S = 10.0

Tensors = Mapping[str, np.ndarray]


def effect_on_results(
    asked: str,
    before: onnx.ModelProto,
    after: onnx.ModelProto,
    folder: Path,
    proof_shapes: Mapping[str, tuple[int, ...]] | None,
    runner: OrtRunner,
    of_integers: bool = False,
) -> Effect:
    """By how much the model's outputs change from ``before`` to ``after``, in ONNX Runtime or else in float64.

    Where ``before`` computes products ``of_integers``, float64 comes first: on processors without VNNI ONNX Runtime saturates
    them, which is no part of the model.
    """
    kinds = {name: kind for name, kind in check_types(before, proof_shapes).items() if name in model_inputs(before)}
    if any(not kind.is_static for kind in kinds.values()):
        return Effect(asked, reason="the shapes of the inputs are not known")
    shapes = {name: tuple(size for size in kind.shape or () if isinstance(size, int)) for name, kind in kinds.items()}
    domains = fitting_domains(before, kinds, shapes)
    draws = [draw(np.random.default_rng(seed), kinds, shapes, domains=domains) for seed in range(_DRAWS)]
    with Scratch("trtnorm-effect-") as scratch:
        files = [_saved(model, scratch / f"{index}.onnx", folder) for index, model in enumerate((before, after))]
        run = ("in ONNX Runtime", lambda file: runner.run_many(file, draws))
        exact = ("in float64", lambda file: [evaluate_float64(file, feeds, budget_s=_BUDGET_S).outputs for feeds in draws])
        reason = ""
        for way, outputs_of in (exact, run) if of_integers else (run, exact):
            try:
                wanted, got = map(outputs_of, files)
            except (ReferenceUnavailable, RunFailed) as error:
                reason = str(error)
                continue
            return Effect(asked, _DRAWS, {output: _effect(output, wanted, got) for output in wanted[0]}, way=way)
    return Effect(asked, reason=reason)


def _effect(output: str, wanted: Sequence[Tensors], got: Sequence[Tensors]) -> OutputEffect:
    pairs = [(before[output], after[output]) for before, after in zip(wanted, got, strict=True)]
    if not all(np.issubdtype(before.dtype, np.inexact) for before, _ in pairs):
        return OutputEffect(0.0, 0.0, max(float(np.mean(before != after)) if before.size else 0.0 for before, after in pairs))
    distances = [distance(before, after) for before, after in pairs]
    return OutputEffect(max(d.relative_max for d in distances), max(d.relative_l2 for d in distances))


def _saved(model: onnx.ModelProto, path: Path, folder: Path) -> Path:
    save_model(model, path, folder)
    return path
