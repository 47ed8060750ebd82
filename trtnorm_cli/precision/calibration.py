"""From calibration inputs to the nodes that their values keep in float32."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from pathlib import Path

import onnx

from trtnorm_cli.evaluate.ort_runner import OrtRunner
from trtnorm_cli.light_dataclass import dataclass
from trtnorm_cli.onnx_model.shapes import TensorType
from trtnorm_cli.precision.demands import (
    NEXT_DRAW,
    RANDOM_MARGIN,
    USERS_MARGIN,
    Demand,
    all_kept,
    confirmed,
    magnitudes,
    overflow_demands,
    range_demands,
)
from trtnorm_cli.precision.emulate import Emulator
from trtnorm_cli.precision.low_types import LowType
from trtnorm_cli.precision.output_errors import Arrays
from trtnorm_cli.precision.ranges import Ranges, ranges_of_each
from trtnorm_cli.precision.units import Unit
from trtnorm_cli.precision.wider_inputs import wider_inputs
from trtnorm_cli.records.precision import Kept

IMAGES = "images of 0 to 255"
# A network that is made for such images has usual values behind its first layers. One that overflows in more of its nodes is
# made for others.
_MOST = 0.25


@dataclass(frozen=True)
class ValueRanges:
    """The ranges over calibration inputs, which may be the user's, and ``wider`` ones with images of 0 to 255.

    ``outputs`` are the model's for each of these inputs.
    """

    usual: Ranges
    wider: Ranges
    is_users_data: bool
    outputs: Sequence[Arrays] = ()

    def magnitudes(self, model: onnx.ModelProto, units: Sequence[Unit], low: LowType) -> dict[str, float]:
        """How large each tensor may become: what was seen, with the margins that overflows are looked for with."""
        margin = USERS_MARGIN if self.is_users_data else RANDOM_MARGIN
        usual = magnitudes(self.usual, model, units, low, margin)
        wider = magnitudes(self.wider, model, units, low, NEXT_DRAW)
        return {name: max(value, wider.get(name, 0.0)) for name, value in usual.items()}


@dataclass(frozen=True)
class KeptByValues:
    """The nodes whose values do not fit a type, and what the user should know of it.

    ``takes_images`` is false of a network that is not made for images of 0 to 255.
    """

    kept: Mapping[str, Kept]
    notes: tuple[str, ...] = ()
    takes_images: bool = True


def value_ranges(
    model: onnx.ModelProto,
    folder: Path | None,
    types: Mapping[str, TensorType],
    units: Sequence[Unit],
    low: LowType,
    feeds: Sequence[Arrays],
    is_users_data: bool,
    runner: OrtRunner,
) -> ValueRanges:
    """The ranges of ``model`` over ``feeds``. Random ones are looked at a second time with images of 0 to 255.

    Raises ``RunFailed`` as ``runner`` does.
    """
    lists = [feeds, [] if is_users_data else wider_inputs(feeds)]
    measured = ranges_of_each(model, folder, types, units, low, lists, runner)
    usual, wider = measured.of_lists
    return ValueRanges(usual, wider, is_users_data, measured.outputs)


def kept_by_values(
    model: onnx.ModelProto,
    units: Sequence[Unit],
    ranges: ValueRanges,
    emulator: Emulator,
    max_error: float,
    float32: Collection[str],
) -> KeptByValues:
    """The nodes of ``model`` whose values do not fit the type of ``emulator``, beyond those that are ``float32`` already."""
    low = emulator.low
    demands = range_demands(ranges.usual, model, units, low, ranges.is_users_data)
    kept = confirmed(demands, emulator, max_error, float32)
    further = overflow_demands(ranges.wider, model, units, low, IMAGES)
    more = {key: one for key, one in all_kept(further).items() if key not in kept and key not in float32}
    if len(more) > _MOST * len(emulator.keys):
        return KeptByValues(kept, (_not_for_images(further, len(more), len(emulator.keys), low.name),), False)
    return KeptByValues({**more, **kept})


def _not_for_images(demands: Sequence[Demand], count: int, of: int, low: str) -> str:
    first = next(iter(demands[0].kept.values()))
    return (
        f"{count} of {of} nodes would overflow in {low} with {IMAGES} as inputs, {first.tensor} first; the network is taken "
        "for one that is fed smaller numbers. Give your own inputs with precision: {data: …} if it is not"
    )
