"""Facts that a build profile states of a model, which are the ranks, sizes and elements that are the same in all that it
allows.
"""

from __future__ import annotations

from collections.abc import Sequence

import onnx

from trtnorm_cli.onnx_model.fixed_inputs import FixedInputs, with_ranks
from trtnorm_cli.profile.dims import MinOptMax
from trtnorm_cli.profile.fit import FittedProfiles
from trtnorm_cli.profile.model import BuildProfile


def as_profiled(model: onnx.ModelProto, profile: BuildProfile | None) -> onnx.ModelProto:
    """``model`` as its profile reads it, where inputs of unknown rank have the rank of their entries."""
    ranks: dict[str, int] = {}
    for one in profile.optimization_profiles if profile is not None else ():
        for name, entry in one.inputs.items():
            ranks.setdefault(name, len(entry.opt))
    return with_ranks(model, ranks)


def fixed_inputs(fitted: FittedProfiles) -> FixedInputs:
    """The sizes and the elements that are one and the same at min, opt and max of every optimization profile."""
    first = fitted.profiles[0]
    sizes = {name: _settled([one.shapes[name] for one in fitted.profiles]) for name in first.shapes}
    values = {
        name: _settled([one.values[name] for one in fitted.profiles])
        for name in first.values
        if all(name in one.values for one in fitted.profiles)
    }
    return FixedInputs(
        {name: sizes[name] for name in fitted.dynamic_inputs if any(size is not None for size in sizes[name])},
        {name: tuple(e for e in elements if e is not None) for name, elements in values.items() if None not in elements},
    )


def _settled(ranges: Sequence[MinOptMax]) -> tuple[int | None, ...]:
    """The numbers that do not differ between any of ``ranges``, None for the others."""
    corners = [corner for one in ranges for corner in one]
    if len({len(corner) for corner in corners}) > 1:
        return (None,)
    return tuple(column[0] if len(set(column)) == 1 else None for column in zip(*corners, strict=True))
