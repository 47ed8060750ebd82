"""From calibration inputs to the nodes that their values keep in float32."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from pathlib import Path

import onnx

from trtnorm_cli.evaluate.ort_runner import OrtRunner
from trtnorm_cli.onnx_model.shapes import TensorType
from trtnorm_cli.precision.demands import confirmed, range_demands
from trtnorm_cli.precision.emulate import Emulator
from trtnorm_cli.precision.output_errors import Arrays
from trtnorm_cli.precision.ranges import ranges_of_each
from trtnorm_cli.precision.units import Unit
from trtnorm_cli.precision.wider_inputs import wider_inputs
from trtnorm_cli.records.precision import Kept


def kept_by_values(
    model: onnx.ModelProto,
    folder: Path | None,
    types: Mapping[str, TensorType],
    units: Sequence[Unit],
    feeds: Sequence[Arrays],
    is_users_data: bool,
    emulator: Emulator,
    max_error: float,
    float32: Collection[str],
    runner: OrtRunner,
) -> dict[str, Kept]:
    """The nodes of ``model`` whose values do not fit the type of ``emulator``, beyond those that are ``float32`` already.

    Random ``feeds`` are looked at a second time with images of 0 to 255. Raises ``RunFailed`` as ``runner`` does.
    """
    low = emulator.low
    lists = [feeds, [] if is_users_data else wider_inputs(feeds)]
    usual, wider = ranges_of_each(model, folder, types, units, low, lists, runner)
    demands = range_demands(usual, model, units, low, is_users_data, wider)
    return confirmed(demands, emulator, max_error, float32)
