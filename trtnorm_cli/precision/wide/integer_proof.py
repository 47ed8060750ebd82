"""The proof that a model with int32 in the place of int64 gives the same: both are run on the same inputs."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx

from trtnorm_cli.evaluate.data.drawing import fitting_feeds
from trtnorm_cli.evaluate.data.input_ranges import InputRanges
from trtnorm_cli.evaluate.data.shape_points import shape_points
from trtnorm_cli.evaluate.ort_runner import OrtRunner, RunFailed
from trtnorm_cli.onnx_model.save import save_model
from trtnorm_cli.onnx_model.shapes import model_inputs
from trtnorm_cli.rewrite.prepare import Prepared
from trtnorm_cli.scratch import Scratch

# Two shapes of each model show what a wrong type would do; larger ones only take longer.
_POINTS, _RUN_S = 2, 60.0
# Floats computed from equal integers are equal, but for the order in which threads add them up.
_ROUNDING = 1e-5


def difference(prepared: Prepared, before: onnx.ModelProto, after: onnx.ModelProto, folder: Path | None) -> str | None:
    """The reason for which ``after`` may not stand for ``before``; None where it gives the same at the smallest shapes."""
    assert prepared.proof is not None, "a build has sizes"
    inputs = model_inputs(before)
    points = sorted(shape_points(prepared.proof, inputs, 0, np.random.default_rng(0)), key=lambda point: point.elements)
    data = {} if prepared.profile is None else prepared.profile.data
    feeds, _, _ = fitting_feeds(InputRanges(before), points[:_POINTS], data, 0)
    with Scratch("trtnorm-int64-") as work, OrtRunner(_RUN_S) as runner:
        files = [work / "before.onnx", work / "after.onnx"]
        for model, file in zip((before, after), files, strict=True):
            save_model(model, file, folder)
        try:
            wanted, got = (runner.run_many(file, feeds) for file in files)
        except RunFailed as error:
            return f"ONNX Runtime does not run it: {(error.reason.splitlines() or [''])[0]}"
    return next((found for a, b in zip(wanted, got, strict=True) if (found := _first_difference(a, b)) is not None), None)


def _first_difference(wanted: dict[str, np.ndarray], got: dict[str, np.ndarray]) -> str | None:
    for name, value in wanted.items():
        other = got[name]
        if value.shape != other.shape or value.dtype != other.dtype:
            return f"the output {name} would be {other.dtype} {list(other.shape)}"
        same = (
            np.allclose(other.astype(np.float64), value.astype(np.float64), rtol=_ROUNDING, atol=_ROUNDING, equal_nan=True)
            if value.dtype.kind == "f"
            else np.array_equal(value, other)
        )
        if not same:
            return f"the output {name} would differ"
    return None
